// The records that splits leave, and the fold of a row's records in the order of its splits.
//
// Splits come in segments of kSegment. Whoever brings the last record of a segment folds it, if the segments before it are folded;
// else whoever folds the one before it does. So most of the fold happens while other splits are under way:
//
//   arrivals at a segment   its items, and from the second on the fold of the segment before it
//   state between segments  lies where the first record of the segment was
#pragma once
#include "core/bf16.h"
#include "ops/attention/attention_rows.cuh"

namespace specpilot::attention {
namespace {
constexpr int64_t kWorkspace = 20 << 20;  // floats: 80 MiB
constexpr int kSegment = 16;              // splits
constexpr int64_t kMaxCounters = 1 << 16;

// Records of the launch under way, and who has arrived. One for the process and device: calls on several streams must not overlap.
__device__ __align__(16) float workspace[kWorkspace];
__device__ int arrived[kMaxCounters];  // zero between launches

struct Plan {
  int first_row, rows;  // of this launch
  int tile_rows;        // rows of a tile
  int heads;            // q heads of a block, at most
  int head_blocks;      // blocks that share the q heads of a kv head
  int slots;            // records of a row and head

  __device__ int segments() const { return (slots + kSegment - 1) / kSegment; }
};

// Query vectors of a block: m = row * heads + head.
struct Tile {
  int first_row, rows, first_head, heads;  // row: of this launch

  __device__ int vectors() const { return rows * heads; }
  __device__ int row(int m) const { return first_row + m / heads; }
  __device__ int head(int m) const { return first_head + m % heads; }
};

// Record of a vector and split: o [Dp]; maximum and sum.
struct Records {
  const Plan& plan;
  int heads, dim;

  __device__ int index(const Tile& tile, int m, int split) const {
    return (tile.row(m) * heads + tile.head(m)) * plan.slots + split;
  }
  __device__ float* o(const Tile& tile, int m, int split) const { return workspace + index(tile, m, split) * dim; }
  __device__ float2* softmax(const Tile& tile, int m, int split) const {
    return reinterpret_cast<float2*>(workspace + plan.rows * heads * plan.slots * dim) + index(tile, m, split);
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

// One thread, after a barrier of its block: what the block has written is there for whoever finds all arrivals. True for the last.
__device__ bool arrive(int* counter, int expected) {
  __threadfence();
  if (atomicAdd(counter, 1) + 1 != expected) return false;
  *counter = 0;
  __threadfence();
  return true;
}

// A block folds a segment of all its vectors into their state, and the last one into `out`. weights: float4 [vectors, kSegment] of
// shared memory.
template <class S>
__device__ void fold_segment(const Params& p, const Tile& tile, const Records& records, const Seen* seen, int segment,
                             bool last, float4* weights) {
  const int first = segment * kSegment, before = first - kSegment, lane = threadIdx.x % 32;
  const auto splits = [&](int m) { return min(seen[m / tile.heads].splits() - first, kSegment); };
  for (int m = threadIdx.x / 32; m < tile.vectors(); m += S::kWarps) {
    float2 x = make_float2(-INFINITY, 0.0f), state = x;
    if (lane < splits(m)) x = __ldcg(records.softmax(tile, m, first + lane));
    if (segment > 0) state = __ldcg(records.softmax(tile, m, before));
    float top = x.x;  // running maximum over the splits: a scan, as max has no order
    for (int step = 1; step < kSegment; step *= 2) {
      const float other = __shfl_up_sync(~0u, top, step);
      if (lane >= step) top = fmaxf(top, other);
    }
    float so_far = __shfl_up_sync(~0u, top, 1);
    so_far = lane == 0 ? state.x : fmaxf(so_far, state.x);
    const Weights w = weigh(so_far, x.x, x.y);
    const float n = fmaxf(__shfl_sync(~0u, top, kSegment - 1), state.x);
    if (lane < kSegment) weights[m * kSegment + lane] = make_float4(w.a, w.b, x.y * w.b, n);
  }
  __syncthreads();
  const int quads = records.dim / 4;
  for (int i = threadIdx.x; i < tile.vectors() * quads; i += S::kThreads) {
    const int m = i / quads, d = i % quads * 4, count = splits(m);
    const float4* w = weights + m * kSegment;
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float l = 0.0f;
    if (segment > 0) {
      o = __ldcg(reinterpret_cast<const float4*>(records.o(tile, m, before) + d));
      l = __ldcg(records.softmax(tile, m, before)).y;
    }
    float* to = records.o(tile, m, first) + d;
    const float* from = to;
#pragma unroll 4
    for (int s = 0; s < count; ++s, from += records.dim) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(from)), k = w[s];
      l = std::fma(l, k.x, k.z);
      o.x = std::fma(o.x, k.x, x.x * k.y), o.y = std::fma(o.y, k.x, x.y * k.y);
      o.z = std::fma(o.z, k.x, x.z * k.y), o.w = std::fma(o.w, k.x, x.w * k.y);
    }
    if (last) {
      bf16* out = p.out + int64_t{records.plan.first_row + tile.row(m)} * p.ld_out + tile.head(m) * p.dim;
      const float x[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (d + e < p.dim) out[d + e] = finished(x[e], l);
    } else {
      __stcg(reinterpret_cast<float4*>(to), o);
      if (d == 0) __stcg(records.softmax(tile, m, first), make_float2(w[0].w, l));
    }
  }
}
}  // namespace
}  // namespace specpilot::attention
