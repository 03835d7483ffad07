// The records that splits leave, and the fold of a row's records in the order of its splits: a kernel of its own, a block a row and
// head, which starts while the splits end (dependent launch).
//
//   records   o [dims] of split 0 | 1 | …  of one row and head side by side: a chunk of them is one run of memory
//   block     copies of chunk c -> shared memory | weights of the chunk's splits (one warp) | a thread folds four dims
#pragma once
#include "core/bf16.h"
#include "core/cuda_async.cuh"
#include "ops/attention/attention_rows.cuh"

namespace specpilot::attention {
namespace {
constexpr int64_t kWorkspace = 20 << 20;  // floats: 80 MiB
constexpr int kChunk = 32;                // splits: one a lane
constexpr int kFoldThreads = 128;

// Records of the launch under way. One for the process and device: calls on several streams must not overlap.
__device__ __align__(16) float workspace[kWorkspace];

struct Plan {
  int first_row, rows;  // of this launch
  int tile_rows;        // rows of a tile
  int heads;            // q heads of a block, at most
  int head_blocks;      // blocks that share the q heads of a kv head
  int slots;            // records of a row and head
};

// Query vectors of a block: m = row * heads + head.
struct Tile {
  int first_row, rows, first_head, heads;  // row: of this launch

  __device__ int vectors() const { return rows * heads; }
  __device__ int row(int m) const { return first_row + m / heads; }
  __device__ int head(int m) const { return first_head + m % heads; }
};

// Record of a row of the launch, q head and split: o [Dp]; maximum and sum.
struct Records {
  const Plan& plan;
  int heads, dim;

  __device__ int index(int row, int head, int split) const { return (row * heads + head) * plan.slots + split; }
  __device__ float* o(int row, int head, int split) const { return workspace + int64_t{index(row, head, split)} * dim; }
  __device__ float2* softmax(int row, int head, int split) const {
    return reinterpret_cast<float2*>(workspace + int64_t{plan.rows} * heads * plan.slots * dim) + index(row, head, split);
  }
};

// The fold's weights of the state so far (maximum n) and of a split; a split without visible keys (l = 0) changes nothing.
struct Weights {
  float n, a, b;
};
__device__ Weights weigh(float n, float m, float l) {
  if (l == 0.0f) return {n, 1.0f, 0.0f};
  const float top = fmaxf(n, m);
  return {top, exp_f32(n - top), exp_f32(m - top)};
}

__device__ bf16 finished(float o, float l) { return l == 0.0f ? bf16{0} : to_bf16(o / l + 0.0f); }

__global__ void __launch_bounds__(kFoldThreads)
    fold_kernel(const __grid_constant__ Params p, const __grid_constant__ Plan plan) {
  extern __shared__ float4 chunk[];  // [kChunk, Dp / 4]
  __shared__ float4 weights[kChunk];
  const int thread = threadIdx.x, lane = thread % 32, heads = static_cast<int>(p.q_heads);
  const int row = static_cast<int>(blockIdx.x) / heads, head = static_cast<int>(blockIdx.x) % heads;
  const int quads = static_cast<int>(p.dim_padded) / 4;
  const Records records{plan, heads, static_cast<int>(p.dim_padded)};
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int splits = see(p, plan.first_row + row).splits();
  float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float l = 0.0f, n = -INFINITY;  // n: of the first warp
  for (int first = 0; first < splits; first += kChunk) {
    const int count = min(splits - first, kChunk);
    const auto* from = reinterpret_cast<const float4*>(records.o(row, head, first));
    for (int i = thread; i < count * quads; i += kFoldThreads) specpilot::cuda::copy16(chunk + i, from + i);
    if (thread < 32) {
      float2 x = make_float2(-INFINITY, 0.0f);
      if (lane < count) x = __ldcg(records.softmax(row, head, first + lane));
      float top = x.x;  // running maximum over the splits: a scan, as max has no order
      for (int step = 1; step < kChunk; step *= 2) {
        const float other = __shfl_up_sync(~0u, top, step);
        if (lane >= step) top = fmaxf(top, other);
      }
      float so_far = __shfl_up_sync(~0u, top, 1);
      so_far = lane == 0 ? n : fmaxf(so_far, n);
      const Weights w = weigh(so_far, x.x, x.y);
      n = fmaxf(__shfl_sync(~0u, top, kChunk - 1), n);
      weights[lane] = make_float4(w.a, w.b, x.y * w.b, 0.0f);
    }
    specpilot::cuda::wait_all_copies();
    __syncthreads();
    if (thread < quads) {
#pragma unroll 8
      for (int s = 0; s < count; ++s) {
        const float4 x = chunk[s * quads + thread], k = weights[s];
        l = std::fma(l, k.x, k.z);
        o.x = std::fma(o.x, k.x, x.x * k.y), o.y = std::fma(o.y, k.x, x.y * k.y);
        o.z = std::fma(o.z, k.x, x.z * k.y), o.w = std::fma(o.w, k.x, x.w * k.y);
      }
    }
    __syncthreads();
  }
  if (thread >= quads) return;
  bf16* out = p.out + int64_t{plan.first_row + row} * p.ld_out + head * p.dim;
  const float x[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (const int d = 4 * thread + e; d < p.dim) out[d] = finished(x[e], l);
}
}  // namespace
}  // namespace specpilot::attention
