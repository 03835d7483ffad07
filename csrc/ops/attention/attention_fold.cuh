// What a row of attention sees, the records that splits leave, and the fold of a row's records in the order of its splits.
#pragma once
#include "core/bf16.h"
#include "ops/attention/attention.h"

namespace specpilot::attention {
namespace {
constexpr int64_t kWorkspace = 20 << 20;  // floats: 80 MiB

// Records of the launch under way. One for the process and device: calls on several streams must not overlap.
__device__ __align__(16) float workspace[kWorkspace];

struct Plan {
  int first_row, rows;  // of this launch
  int tile_rows;        // rows of a tile
  int heads;            // q heads of a block, at most
  int head_blocks;      // blocks that share the q heads of a kv head
  int slots;            // records of a row and head; 1: one that is folded into
};

// What a row sees; whatever is out of range is not seen.
struct Seen {
  int request, prefix, tail, total;
};

__device__ Seen see(const Params& p, int64_t row) {
  Seen s{p.request[row], 0, 0, 0};
  if (s.request < 0 || s.request >= p.requests) return s;
  s.prefix = static_cast<int>(min(max(int64_t{p.prefix[row]}, int64_t{0}), p.ld_table));
  s.total = s.prefix;
  if (!p.tail_begin) return s;
  const int begin = p.tail_begin[row], end = p.tail_begin[row + 1];
  if (begin >= 0 && begin <= end && end <= p.tail_count) s.tail = begin, s.total += end - begin;
  return s;
}

// The fold's weights of the state so far (maximum n) and of a split; a split without visible keys (l = 0) changes nothing.
struct Weights {
  float n, a, b;
};
__device__ Weights weigh(float n, float m, float l) {
  if (l == 0.0f) return {n, 1.0f, 0.0f};
  const float top = fmaxf(n, m);
  return {top, exp_f32(n - top), exp_f32(m - top)};
}

// A block folds the records of one row and head; thread i holds dims i and i + 128.
constexpr int kFoldThreads = 128;
__global__ void __launch_bounds__(kFoldThreads) fold_kernel(const Params p, const Plan plan) {
  __shared__ float old[kFoldThreads], fresh[kFoldThreads], sums[kFoldThreads], tops[kFoldThreads / 32];
  const int64_t row = plan.first_row + blockIdx.x, head = blockIdx.y;
  const int t = threadIdx.x, dim = static_cast<int>(p.dim_padded), size = dim + 2;
  const int keys = see(p, row).total, count = min(static_cast<int>((keys + kSplit - 1) / kSplit), plan.slots);
  const float* records = workspace + (blockIdx.x * p.q_heads + head) * plan.slots * size;
  float n = -INFINITY, l = 0.0f, o[2] = {};
  for (int first = 0; first < count; first += kFoldThreads) {
    float m = -INFINITY, sum = 0.0f;
    if (first + t < count) {
      const float2 x = *reinterpret_cast<const float2*>(records + int64_t{first + t} * size + dim);
      m = x.x, sum = x.y;
    }
    float top = m;  // running maximum over the splits: a scan, as max has no order
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(~0u, top, step);
      if (t % 32 >= step) top = fmaxf(top, other);
    }
    float before = __shfl_up_sync(~0u, top, 1);
    if (t % 32 == 0) before = -INFINITY;
    if (t % 32 == 31) tops[t / 32] = top;
    __syncthreads();
    before = fmaxf(before, n);
    for (int w = 0; w < kFoldThreads / 32; ++w) {
      if (w < t / 32) before = fmaxf(before, tops[w]);
      n = fmaxf(n, tops[w]);
    }
    const Weights w = weigh(before, m, sum);
    old[t] = w.a, fresh[t] = w.b, sums[t] = sum;
    __syncthreads();
    const float* from = records + int64_t{first} * size + t;
#pragma unroll 8
    for (int s = 0; s < min(kFoldThreads, count - first); ++s, from += size) {
      l = std::fma(l, old[s], sums[s] * fresh[s]);
      if (t < dim) o[0] = std::fma(o[0], old[s], from[0] * fresh[s]);
      if (t + kFoldThreads < dim) o[1] = std::fma(o[1], old[s], from[kFoldThreads] * fresh[s]);
    }
    __syncthreads();
  }
  bf16* out = p.out + row * p.ld_out + head * p.dim;
  for (int i = 0, d = t; d < p.dim; ++i, d += kFoldThreads) out[d] = l == 0.0f ? 0 : to_bf16((i ? o[1] : o[0]) / l + 0.0f);
}
}  // namespace
}  // namespace specpilot::attention
