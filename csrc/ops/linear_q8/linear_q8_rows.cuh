// The rows of x as integers, where the product of linear_q8's CUDA twin reads them.
//
//   words   [block of T rows][step of 64 k][tile of 8 rows][half of the step][row][8]
//
// T = 8, 16, 32 or 64 rows are what a thread block of the product takes.
// The 8 words of a row and half are its groups of 4 k in the order 0 4  1 5  2 6  3 7: lane (g, t) of a warp finds its B fragments
// of mma.m16n8k32 in words 2t, 2t + 1 of row g, and a warp those of 8 rows in 256 bytes.
#pragma once
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/linear_q8/linear_q8.h"

namespace specpilot::linear_q8 {
namespace {
constexpr int kStep = kTileK, kStepWords = kStep / kGroup, kMostTokens = 64;  // tokens: rows of x that a thread block takes
constexpr int64_t kXWords = 4 << 20, kXRows = 1024;                           // 16 MiB: all rows up to K = 16384

// Of the launch under way. One for the process and device: calls on several streams must not overlap.
struct Row {
  float scale;
  int32_t offset;  // 128 sum_k qx
};
__device__ uint2 x_words[kXWords / 2];
__device__ Row x_rows[kXRows];

// What of a call a launch does.
struct Plan {
  int64_t first;  // row
  int rows, steps, tokens;
};

// kWhole: four bf16 are one aligned load, everywhere.
constexpr int kQuantizeThreads = 512;
template <bool kWhole>
__global__ void __launch_bounds__(kQuantizeThreads) quantize_kernel(const Params p, const Plan plan) {
  __shared__ uint32_t tops[kQuantizeThreads / 32];
  __shared__ int32_t sums[kQuantizeThreads / 32];
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int row = blockIdx.x, thread = threadIdx.x, warp = thread / 32;
  const int k = static_cast<int>(p.k), groups = plan.steps * kStepWords;
  const bf16* x = p.x + (plan.first + row) * p.ldx;
  const auto load = [&](int group) {
    const int at = group * static_cast<int>(kGroup);
    if constexpr (kWhole) return at < k ? *reinterpret_cast<const uint2*>(x + at) : make_uint2(0, 0);
    const auto one = [&](int i) { return at + i < k ? uint32_t{x[at + i]} : 0u; };
    return make_uint2(one(0) | one(1) << 16, one(2) | one(3) << 16);
  };

  uint32_t most = 0;  // of the low and of the high halves
#pragma unroll 4
  for (int i = thread; i < groups; i += kQuantizeThreads) {
    const uint2 v = load(i);
    most = __vmaxu2(most, __vmaxu2(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu));
  }
  most = __reduce_max_sync(~0u, max(most & 0xffffu, most >> 16));
  if (thread % 32 == 0) tops[warp] = most;
  __syncthreads();
  for (const uint32_t top : tops) most = max(most, top);

  const RowScale scale = row_scale(static_cast<bf16>(most));
  const int token = row % plan.tokens, step_words = plan.tokens * kStepWords;
  uint32_t* to = reinterpret_cast<uint32_t*>(x_words) + int64_t{row / plan.tokens} * plan.steps * step_words +
                 token / 8 * (8 * kStepWords) + token % 8 * (kStepWords / 2);
  int32_t sum = 0;
#pragma unroll 4
  for (int i = thread; i < groups; i += kQuantizeThreads) {
    const uint2 v = load(i);
    const auto byte = [&](uint32_t bits) {
      const int q = quantized(static_cast<bf16>(bits), scale.factor);
      sum += q;
      return static_cast<uint32_t>(q) & 0xffu;
    };
    const int half = i / 8 % 2, word = i % 4 * 2 + i / 4 % 2;
    to[int64_t{i / kStepWords} * step_words + half * (8 * kStepWords / 2) + word] =
        byte(v.x & 0xffffu) | byte(v.x >> 16) << 8 | byte(v.y & 0xffffu) << 16 | byte(v.y >> 16) << 24;
  }
  sum = __reduce_add_sync(~0u, sum);
  if (thread % 32 == 0) sums[warp] = sum;
  __syncthreads();
  if (thread > 0) return;
  sum = 0;
  for (const int32_t part : sums) sum += part;
  x_rows[row] = {scale.scale, 128 * sum};
}

void quantize(const Params& p, const Plan& plan) {
  const bool whole = reinterpret_cast<uintptr_t>(p.x) % sizeof(uint2) == 0 && p.ldx % kGroup == 0 && p.k % kGroup == 0;
  const auto kernel = whole ? quantize_kernel<true> : quantize_kernel<false>;
  specpilot::cuda::launch_early("linear_q8", kernel, static_cast<unsigned>(plan.rows), kQuantizeThreads, 0, p.stream, p,
                                plan);
}
}  // namespace
}  // namespace specpilot::linear_q8
