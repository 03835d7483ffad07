// The tile product of attention's split_kernel, and how keys and values get into shared memory by position (layout:
// attention_cuda.cu).
#pragma once
#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::attention {
namespace {
constexpr int kSplitKeys = kSplit, kWarps = 8, kThreads = 32 * kWarps, kMaxTiles = 4, kMaxVectors = 16 * kMaxTiles;
constexpr int kKeyStride = kSplitKeys + 8, kScoreStride = kSplitKeys + 4;  // words
static_assert(kSplitKeys == 16 * kWarps && rope_kv::kBlockSlots == 32);

__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Columns [first, first + 16) of 16 rows of words; lane (g, t) holds rows g, g + 8 and words t, t + 4.
__device__ void load_a(uint32_t (&a)[4], const uint32_t* rows, int stride, int first, int lane) {
  const uint32_t* x = rows + (lane / 4) * stride + first / 2 + lane % 4;
  a[0] = x[0], a[1] = x[8 * stride], a[2] = x[4], a[3] = x[8 * stride + 4];
}

__device__ void copy16(uint32_t* to, const bf16* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

__device__ uint32_t load_word(const bf16* x, bool aligned) {
  return aligned ? *reinterpret_cast<const uint32_t*>(x) : x[0] | uint32_t{x[1]} << 16;
}

struct Cache {
  const Params& p;
  int64_t kv_head;
  bool aligned;

  __device__ int64_t base(int slot) const { return (slot / 32 * p.kv_heads + kv_head) * 32 * p.dim_padded; }
  __device__ const bf16* key(int slot, int pair) const {  // of dims
    return p.k_cache + base(slot) + (slot % 32 / 16 * (p.dim_padded / 2) + pair) * 32 + slot % 16 * 2;
  }
  __device__ const bf16* value(int slot, int d) const {
    return p.v_cache + base(slot) + slot % 32 / 2 * 2 * p.dim_padded + d * 2 + slot % 2;
  }

  // A warp stages its 16 keys; slot -1 gives zeros. Four keys in four slots of a row of the cache are one copy.
  __device__ void stage_keys(uint32_t* to, const int* slots, int warp, int lane) const {
    const int first = warp * 16 + lane % 4 * 4;
    const int4 s = *reinterpret_cast<const int4*>(slots + first);
    const bool run = aligned && s.x >= 0 && s.x % 4 == 0 && s.y == s.x + 1 && s.z == s.x + 2 && s.w == s.x + 3;
    for (int pair = lane / 4; pair < p.dim_padded / 2; pair += 8) {
      uint32_t* out = to + pair * kKeyStride + first;
      const auto word = [&](int slot) { return slot < 0 ? 0u : load_word(key(slot, pair), aligned); };
      if (run)
        copy16(out, key(s.x, pair));
      else
        *reinterpret_cast<uint4*>(out) = make_uint4(word(s.x), word(s.y), word(s.z), word(s.w));
    }
  }
  __device__ void stage_values(uint32_t* to, int stride, const int* slots, int warp, int lane) const {
    for (int pair = warp * 8 + lane / 8; pair < warp * 8 + 8; pair += 4) {
      const int even = slots[2 * pair], odd = slots[2 * pair + 1];
      const bool run = aligned && even >= 0 && even % 2 == 0 && odd == even + 1;
      for (int d = lane % 8 * 4; d < p.dim_padded; d += 32) {
        uint32_t* out = to + pair * stride + d;
        const auto half = [&](int slot, int i) { return slot < 0 ? 0u : uint32_t{*value(slot, i)}; };
        const auto word = [&](int i) { return half(even, i) | half(odd, i) << 16; };
        if (run)
          copy16(out, value(even, d));
        else
          *reinterpret_cast<uint4*>(out) = make_uint4(word(d), word(d + 1), word(d + 2), word(d + 3));
      }
    }
  }
};

int64_t shared_words(int tiles, int64_t dim) {
  const int64_t keys = std::max<int64_t>(dim / 2 * kKeyStride, 16 * tiles * kScoreStride);
  return keys + kSplitKeys / 2 * (dim + 8) + 16 * tiles * (dim / 2 + 4);
}
}  // namespace
}  // namespace specpilot::attention
