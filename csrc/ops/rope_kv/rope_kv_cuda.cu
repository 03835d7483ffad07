// CUDA twin: a warp takes one head of one row, a q, k or v head. Every input is loaded before any is used, so that a single
// row waits for memory once after its position is known.
//
//   lane l holds dims l + 32 j (`low`) and those D/2 above (`high`), j < kPairs: what the rotation mixes
//   norm: the head goes through shared memory to the 16 chains of the order (inverse_rms.cuh)
//   writes: dim d goes to to[d / 2 * pair + d % 2 * next]   q_out: 2, 1   K (pair rows over D): 32, 1   V (over slots): 4, 2
//
// Roofline: 2 R (2 Hq + 4 Hkv) D bytes.
#include "core/bf16.h"
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/rmsnorm/inverse_rms.cuh"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::rope_kv {
namespace {
constexpr int kWarps = 4;

struct Out {
  bf16* to;
  int pair, next;
  __device__ void put(int d, bf16 value) const { to[d / 2 * pair + d % 2 * next] = value; }
};

__device__ Out output(const Params& p, int64_t r, int64_t head, int64_t slot) {
  if (head < p.q_heads) return {p.q_out + (r * p.q_heads + head) * p.dim_padded, 2, 1};
  const int64_t t = slot % kBlockSlots, kv = head - p.q_heads, h = kv % p.kv_heads;
  const int64_t base = (slot / kBlockSlots * p.kv_heads + h) * kBlockSlots * p.dim_padded;
  if (kv < p.kv_heads) return {p.k_cache + base + t / 16 * 16 * p.dim_padded + t % 16 * 2, 32, 1};
  return {p.v_cache + base + t / 2 * 2 * p.dim_padded + t % 2, 4, 2};
}

template <int kPairs>
__global__ void rope_kv_kernel(const Params p) {
  __shared__ bf16 staged[kWarps][64 * kPairs];
  const int lane = static_cast<int>(threadIdx.x), dim = static_cast<int>(p.dim), half = dim / 2;
  const int64_t r = blockIdx.x, head = static_cast<int64_t>(blockIdx.y) * kWarps + threadIdx.y;
  const bool query = head < p.q_heads, value = head >= p.q_heads + p.kv_heads;
  const bf16* weight = value ? nullptr : query ? p.q_norm : p.k_norm;
  if (weight && lane * 64 < dim) specpilot::cuda::prefetch(weight + lane * 64);  // lines of 128 bytes
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  if (head >= p.q_heads + 2 * p.kv_heads) return;

  const bf16* in = p.qkv + r * p.ld_qkv + head * dim;
  bf16 low[kPairs] = {}, high[kPairs] = {}, low_weight[kPairs] = {}, high_weight[kPairs] = {}, cos[kPairs] = {},
       sin[kPairs] = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j)
    if (const int i = lane + 32 * j; i < half) {
      low[j] = in[i], high[j] = in[i + half];
      if (weight) low_weight[j] = weight[i], high_weight[j] = weight[i + half];
    }
  const int64_t position = p.positions[r], slot = p.slots[r];
  if (position < 0 || position >= p.max_position) return;
  if (!query && (slot < 0 || slot >= p.slot_count)) return;
  const Out out = output(p, r, head, slot);
  if (const int d = dim + lane; d < p.dim_padded) out.put(d, 0);
  if (value) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      if (const int i = lane + 32 * j; i < half) out.put(i, low[j]), out.put(i + half, high[j]);
    return;
  }

#pragma unroll
  for (int j = 0; j < kPairs; ++j)
    if (const int i = lane + 32 * j; i < half) cos[j] = p.cos[position * half + i], sin[j] = p.sin[position * half + i];
  float inv = 0.0f;
  if (weight) {
    bf16* shared = staged[threadIdx.y];
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      if (const int i = lane + 32 * j; i < half) shared[i] = low[j], shared[i + half] = high[j];
    __syncwarp();
    inv = rmsnorm::inverse_rms<8>(shared, dim, lane, p.norm_denom, p.eps);
  }
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) continue;
    float a = to_f32(low[j]), b = to_f32(high[j]);
    const float c = to_f32(cos[j]), s = to_f32(sin[j]);
    if (weight) {
      a = round_bf16(round_bf16(a * inv) * to_f32(low_weight[j]));
      b = round_bf16(round_bf16(b * inv) * to_f32(high_weight[j]));
    }
    out.put(i, to_bf16(round_bf16(a * c) + round_bf16(-b * s)));
    out.put(i + half, to_bf16(round_bf16(b * c) + round_bf16(a * s)));
  }
}
}  // namespace

void cuda::run(const Params& p) {
  const int64_t heads = p.q_heads + 2 * p.kv_heads;
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((heads + kWarps - 1) / kWarps));
  static_assert(kMaxDim == 64 * 8);
  const auto kernel = p.dim <= 128 ? rope_kv_kernel<2> : rope_kv_kernel<8>;
  specpilot::cuda::launch_early("rope_kv", kernel, grid, dim3(32, kWarps), 0, p.stream, p);
}
}  // namespace specpilot::rope_kv
