#include "ops/attention/attention_tile.h"

#include <cstring>
#include <limits>

#include "core/thread_pool.h"

namespace specpilot::attention {
namespace {
// A line more than the keys: rows of a power-of-two stride would meet in few sets of L1.
constexpr int64_t kScoreStride = kSplit + 16;
}  // namespace

RowTile make_tile(const Params& p, const int32_t* rows, int64_t count) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  RowTile tile{rows, count, 0, kNone, 0, kNone};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t prefix = p.prefix[rows[i]], length = visible(p, rows[i]);
    tile.longest = std::max(tile.longest, length);
    tile.shortest = std::min(tile.shortest, length);
    tile.longest_prefix = std::max(tile.longest_prefix, prefix);
    if (length > prefix) tile.first_own = std::min(tile.first_own, prefix);
  }
  return tile;
}

// Brackets runs of the tile product by begin and end, for all vectors of the tile or for those of one row.
class Tile::Shape {
 public:
  explicit Shape(const Mma& mma) : mma_(mma) {}
  ~Shape() { set(0); }
  void set(int64_t m) {
    if (m == m_) return;
    if (m_) mma_.end();
    if (m) mma_.begin(static_cast<int>(m));
    m_ = m;
  }

 private:
  const Mma& mma_;
  int64_t m_ = 0;
};

Tile::Tile(const Params& p, const Tier& tier, const RowTile& rows, int64_t kv_head)
    : p_(p),
      tier_(tier),
      mma_(mma(tier.isa)),
      rows_(rows),
      kv_head_(kv_head),
      group_(p.q_heads / p.kv_heads),
      o_width_(round_up(p.dim, 16)) {
  const int64_t q_bytes = round_up(vectors() * p.dim_padded * mma_.a_bytes, 64), copy_bytes = kBlock * p.dim_padded * 2;
  q_ = static_cast<char*>(worker_scratch(Scratch::kA, q_bytes + copy_bytes + vectors() * kScoreStride * sizeof(float)));
  copy_ = reinterpret_cast<bf16*>(q_ + q_bytes);
  scores_ = reinterpret_cast<float*>(q_ + q_bytes + copy_bytes);
  for (int64_t i = 0; i < rows.count; ++i)
    mma_.pack(p.q + (rows.rows[i] * p.q_heads + kv_head * group_) * p.dim_padded, p.dim_padded, static_cast<int>(group_),
              p.dim_padded, q_ + i * group_ * p.dim_padded * mma_.a_bytes);
}

BlockSlots Tile::shared_slots(int64_t first) const {
  return {p_.slot_table + p_.request[rows_.rows[0]] * p_.ld_table + first, std::min(kBlock, rows_.longest_prefix - first)};
}

BlockSlots Tile::own_slots(int64_t row, int64_t first, int32_t* slots) const {
  const int64_t count = visible_in(p_, row, first, kBlock);
  const int64_t from_table = std::clamp<int64_t>(p_.prefix[row] - first, 0, count);
  const int32_t* table = p_.slot_table + p_.request[row] * p_.ld_table + first;
  std::copy_n(table, from_table, slots);
  if (count > from_table)
    std::copy_n(p_.tail_slots + p_.tail_begin[row] + (first + from_table - p_.prefix[row]), count - from_table,
                slots + from_table);
  return {slots, count};
}

void Tile::scores(int64_t first, int64_t width) {
  const auto run = [&](int64_t vector, int64_t m, const bf16* keys, int64_t column) {
    for (int64_t half = 0; half < 2; ++half)
      mma_.run(q_ + vector * p_.dim_padded * mma_.a_bytes, p_.dim_padded, static_cast<int>(m),
               keys + half * kBlock / 2 * p_.dim_padded, 32, p_.dim_padded / 32,
               scores_ + vector * kScoreStride + column + half * 16, kScoreStride);
  };
  for (int64_t v = 0; v < vectors(); ++v) std::memset(scores_ + v * kScoreStride, 0, width * sizeof(float));
  Shape shape(mma_);
  for (int64_t column = 0; column < width; column += kBlock) {
    if (!own(first + column)) {
      shape.set(vectors());
      run(0, vectors(), key_block(p_, kv_head_, shared_slots(first + column), copy_), column);
      continue;
    }
    shape.set(group_);
    for (int64_t i = 0; i < rows_.count; ++i) {
      int32_t slots[kBlock];
      const BlockSlots block = own_slots(rows_.rows[i], first + column, slots);
      if (block.count) run(i * group_, group_, key_block(p_, kv_head_, block, copy_), column);
    }
  }
}

void Tile::values(int64_t first, int64_t width, float* o) {
  const int64_t p_stride = kScoreStride * static_cast<int64_t>(sizeof(float)) / mma_.a_bytes;
  const auto run = [&](int64_t vector, int64_t m, const bf16* block, int64_t column) {
    for (int64_t d = 0; d < o_width_; d += 16)
      mma_.run(reinterpret_cast<const char*>(scores_ + vector * kScoreStride) + column * mma_.a_bytes, p_stride,
               static_cast<int>(m), block + 2 * d, 2 * p_.dim_padded, 1, o + vector * o_width_ + d, o_width_);
  };
  std::memset(o, 0, vectors() * o_width_ * sizeof(float));
  Shape shape(mma_);
  for (int64_t column = 0; column < width; column += kBlock) {
    if (!own(first + column)) {
      const bf16* block = value_block(p_, kv_head_, shared_slots(first + column), copy_);
      // Where a row sees only a part, e = 0 takes out the rest: unless that holds an infinity or a NaN.
      if (rows_.shortest >= first + column + kBlock || tier_.finite(block, kBlock * p_.dim_padded)) {
        shape.set(vectors());
        run(0, vectors(), block, column);
        continue;
      }
    }
    shape.set(group_);
    for (int64_t i = 0; i < rows_.count; ++i) {
      int32_t slots[kBlock];
      const BlockSlots block = own_slots(rows_.rows[i], first + column, slots);
      if (block.count) run(i * group_, group_, own_value_block(p_, kv_head_, block, copy_), column);
    }
  }
}

void Tile::attend(int64_t split, const State& out) {
  const int64_t first = split * kSplit;
  const int64_t width = round_up(std::min(kSplit, rows_.longest - first), kBlock);
  scores(first, width);
  for (int64_t i = 0; i < rows_.count; ++i) {
    const int64_t count = visible_in(p_, rows_.rows[i], first, kSplit);
    if (count == 0) continue;
    for (int64_t v = i * group_; v < (i + 1) * group_; ++v)
      out.softmax[v] = tier_.softmax(scores_ + v * kScoreStride, count, width, p_.scale);
  }
  values(first, width, out.o);
}

void Tile::fold(int64_t split, const State& s, const State& next) const {
  for (int64_t i = 0; i < rows_.count; ++i) {
    if (visible_in(p_, rows_.rows[i], split * kSplit, kSplit) == 0) continue;
    for (int64_t v = i * group_; v < (i + 1) * group_; ++v)
      tier_.fold(s.softmax[v], s.o + v * o_width_, next.softmax[v], next.o + v * o_width_, o_width_);
  }
}

void Tile::finish(const State& s) const {
  for (int64_t i = 0; i < rows_.count; ++i) {
    bf16* out = p_.out + rows_.rows[i] * p_.ld_out + kv_head_ * group_ * p_.dim;
    if (visible(p_, rows_.rows[i]) == 0)
      std::fill_n(out, group_ * p_.dim, bf16{0});
    else
      for (int64_t g = 0; g < group_; ++g)
        tier_.finish(s.o + (i * group_ + g) * o_width_, s.softmax[i * group_ + g].l, p_.dim, out + g * p_.dim);
  }
}
}  // namespace specpilot::attention
