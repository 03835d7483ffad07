// A tile: query vectors that share a request and a kv head, so that keys and values are read once for all of them.
#pragma once
#include <algorithm>

#include "ops/attention/attention_cpu.h"
#include "ops/attention/attention_gather.h"

namespace specpilot::attention {
inline constexpr int64_t kTileVectors = 64;  // rows x q heads of the group

// Rows of one request.
struct RowTile {
  const int32_t* rows;
  int64_t count;
  int64_t longest, shortest;  // visible positions
  int64_t longest_prefix;
  int64_t first_own;  // shortest prefix of a row that has a tail: from there on rows see different keys

  // At least one: a tile that sees nothing has rows to write, too.
  int64_t splits() const { return std::max<int64_t>(1, (longest + kSplit - 1) / kSplit); }
};

inline int64_t tail_length(const Params& p, int64_t row) {
  return p.tail_begin ? p.tail_begin[row + 1] - p.tail_begin[row] : 0;
}
inline int64_t visible(const Params& p, int64_t row) { return p.prefix[row] + tail_length(p, row); }
inline int64_t visible_in(const Params& p, int64_t row, int64_t first, int64_t size) {
  return std::clamp<int64_t>(visible(p, row) - first, 0, size);
}
RowTile make_tile(const Params& p, const int32_t* rows, int64_t count);

// Softmax state of a tile's vectors: Softmax [vectors], then o fp32 [vectors, round_up(D, 16)], both from a cache line on.
struct State {
  Softmax* softmax;
  float* o;

  static int64_t softmax_floats(int64_t vectors) { return round_up(2 * vectors, 16); }
  static int64_t floats(const Params& p, int64_t vectors) { return softmax_floats(vectors) + vectors * round_up(p.dim, 16); }
  static State at(float* memory, int64_t vectors) {
    return {reinterpret_cast<Softmax*>(memory), memory + softmax_floats(vectors)};
  }
};

// One worker's view of a tile and kv head. Its buffers are worker scratch.
class Tile {
 public:
  Tile(const Params& p, const Tier& tier, const RowTile& rows, int64_t kv_head);

  int64_t vectors() const { return rows_.count * group_; }
  void attend(int64_t split, const State& out);  // rows that see nothing of the split: undefined
  void fold(int64_t split, const State& s, const State& next) const;
  void finish(const State& s) const;

 private:
  class Shape;
  void scores(int64_t first, int64_t width);
  void values(int64_t first, int64_t width, float* o);
  BlockSlots shared_slots(int64_t first) const;
  BlockSlots own_slots(int64_t row, int64_t first, int32_t* slots) const;
  bool own(int64_t first) const { return rows_.first_own < first + kBlock; }

  const Params& p_;
  const Tier& tier_;
  const Mma& mma_;
  const RowTile& rows_;
  int64_t kv_head_, group_, o_width_;
  char* q_;        // packed [vectors, Dp]
  float* scores_;  // [vectors, kScoreStride]; after the softmax P in the tier's form, same rows
  bf16* copy_;     // a block of keys or values
};
}  // namespace specpilot::attention
