// How keys and values of a split get into shared memory by position (layout: attention_cuda.cu).
#pragma once
#include "core/cuda_async.cuh"
#include "ops/attention/attention_rows.cuh"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::attention {
namespace {
constexpr int kKeyStride = kSplitKeys + 8;  // words
static_assert(kSplitKeys == 128 && rope_kv::kBlockSlots == 32);

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

  // All warps; 16 keys a warp and turn. Slot -1 gives zeros. Four keys in four slots of a row of the cache are one copy.
  __device__ void stage_keys(uint32_t* to, const int* slots, int warp, int warps, int lane) const {
    const int pairs = static_cast<int>(p.dim_padded) / 2;
    for (int group = warp; group < kSplitKeys / 16; group += warps) {
      const int first = group * 16 + lane % 4 * 4;
      const int4 s = *reinterpret_cast<const int4*>(slots + first);
      uint32_t* out = to + lane / 4 * kKeyStride + first;
      if (aligned && s.x >= 0 && s.x % 4 == 0 && s.y == s.x + 1 && s.z == s.x + 2 && s.w == s.x + 3) {
        const bf16* from = key(s.x, lane / 4);
        for (int pair = lane / 4; pair < pairs; pair += 8, out += 8 * kKeyStride, from += 8 * 32)
          specpilot::cuda::copy16(out, from);
      } else {
        for (int pair = lane / 4; pair < pairs; pair += 8, out += 8 * kKeyStride) {
          const auto word = [&](int slot) { return slot < 0 ? 0u : load_word(key(slot, pair), aligned); };
          *reinterpret_cast<uint4*>(out) = make_uint4(word(s.x), word(s.y), word(s.z), word(s.w));
        }
      }
    }
  }
  // All warps; 4 pairs of keys a warp and turn.
  __device__ void stage_values(uint32_t* to, int stride, const int* slots, int warp, int warps, int lane) const {
    const int dim = static_cast<int>(p.dim_padded);
    for (int pair = warp * 4 + lane / 8; pair < kSplitKeys / 2; pair += warps * 4) {
      const int2 s = *reinterpret_cast<const int2*>(slots + 2 * pair);
      uint32_t* out = to + pair * stride + lane % 8 * 4;
      if (aligned && s.x >= 0 && s.x % 2 == 0 && s.y == s.x + 1) {
        const bf16* from = value(s.x, lane % 8 * 4);
        for (int d = lane % 8 * 4; d < dim; d += 32, out += 32, from += 64) specpilot::cuda::copy16(out, from);
      } else {
        const auto half = [&](int slot, int d) { return slot < 0 ? 0u : uint32_t{*value(slot, d)}; };
        const auto word = [&](int d) { return half(s.x, d) | half(s.y, d) << 16; };
        for (int d = lane % 8 * 4; d < dim; d += 32, out += 32)
          *reinterpret_cast<uint4*>(out) = make_uint4(word(d), word(d + 1), word(d + 2), word(d + 3));
      }
    }
  }
};
}  // namespace
}  // namespace specpilot::attention
