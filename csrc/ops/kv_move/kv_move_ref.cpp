// Reference and only CPU variant: a thread takes whole (layer, head) planes, reads all moved entries of one into scratch,
// then writes them, so overlap in any direction is harmless.
#include <cstring>

#include "core/thread_pool.h"
#include "ops/kv_move/kv_move.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::kv_move {
namespace {
constexpr int64_t kBlock = rope_kv::kBlockSlots;
constexpr int64_t kGrainBytes = 32 << 10;  // some 10 us of copying: less stays on the caller

// One slot of one head: K is a column of pair rows (2 of its dims side by side), V every other element of a pair row.
struct Entry {
  bf16* k;
  bf16* v;
};

Entry entry(const Params& p, int64_t layer, int64_t head, int64_t slot) {
  const int64_t t = slot % kBlock, plane = (layer * p.blocks + slot / kBlock) * p.kv_heads + head;
  return {p.k_cache + (plane * 2 + t / 16) * p.dim_padded * 16 + t % 16 * 2,
          p.v_cache + (plane * 16 + t / 2) * 2 * p.dim_padded + t % 2};
}

void read(const Entry& e, int64_t dim, bf16* out) {
  for (int64_t d = 0; d < dim; d += 2) std::memcpy(out + d, e.k + d * 16, 2 * sizeof(bf16));
  for (int64_t d = 0; d < dim; ++d) out[dim + d] = e.v[2 * d];
}

void write(const Entry& e, int64_t dim, const bf16* in) {
  for (int64_t d = 0; d < dim; d += 2) std::memcpy(e.k + d * 16, in + d, 2 * sizeof(bf16));
  for (int64_t d = 0; d < dim; ++d) e.v[2 * d] = in[dim + d];
}
}  // namespace

void ref(const Params& p) {
  const int64_t dim = p.dim_padded;
  const auto moves = [&](int64_t i) { return p.from[i] >= 0 && p.to[i] >= 0 && p.from[i] != p.to[i]; };
  int64_t moved = 0;
  for (int64_t i = 0; i < p.count; ++i) moved += moves(i);
  if (moved == 0) return;
  const int64_t bytes = moved * 2 * dim * static_cast<int64_t>(sizeof(bf16));
  ThreadPool::instance().parallel_for(p.layers * p.kv_heads, kGrainBytes / bytes, [&](int64_t begin, int64_t end, int) {
    auto* held = static_cast<bf16*>(worker_scratch(Scratch::kA, bytes));
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t layer = plane / p.kv_heads, head = plane % p.kv_heads;
      bf16* at = held;
      for (int64_t i = 0; i < p.count; ++i)
        if (moves(i)) read(entry(p, layer, head, p.from[i]), dim, at), at += 2 * dim;
      at = held;
      for (int64_t i = 0; i < p.count; ++i)
        if (moves(i)) write(entry(p, layer, head, p.to[i]), dim, at), at += 2 * dim;
    }
  });
}
}  // namespace specpilot::kv_move
