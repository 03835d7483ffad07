// How sums in linear's CUDA kernels become outputs: segments of k added in their order, then rounding, bias and residual.
#pragma once
#include "core/bf16.h"
#include "ops/linear/linear_product.cuh"

namespace specpilot::linear {
namespace {
// Sums of 16 outputs x 8 tokens: rounds them, turns them so that a lane has two neighbouring outputs of a token, adds the residual and
// stores. For a whole warp.
__device__ void finish(const float (&sums)[4], const Params& p, int64_t first_out, int64_t first_row, int lane) {
  const bool wide = reinterpret_cast<uintptr_t>(p.y) % 4 == 0 && p.ldy % 2 == 0;
  const int64_t r = first_row + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t block = first_out + half * 8, mine = block + lane / 4, n = block + lane % 4 * 2;
    float low = sums[2 * half], high = sums[2 * half + 1];
    if (p.bias) {
      const float bias = mine < p.w.n ? to_f32(p.bias[mine]) : 0.0f;
      low = low + bias, high = high + bias;
    }
    const uint32_t turned = specpilot::cuda::transpose(to_bf16(low) | uint32_t{to_bf16(high)} << 16);
    if (r >= p.rows || n >= p.w.n) continue;
    bf16 out[2] = {static_cast<bf16>(turned), static_cast<bf16>(turned >> 16)};
    const int count = n + 1 < p.w.n ? 2 : 1;
    if (p.residual)
      for (int e = 0; e < count; ++e) out[e] = to_bf16(to_f32(p.residual[r * p.ld_residual + n + e]) + to_f32(out[e]));
    bf16* y = p.y + r * p.ldy + n;
    if (wide && count == 2)
      *reinterpret_cast<uint32_t*>(y) = out[0] | uint32_t{out[1]} << 16;
    else
      for (int e = 0; e < count; ++e) y[e] = out[e];
  }
}

template <int kHeight, int kTiles>
__device__ void finish(const Accumulators<kHeight, kTiles>& acc, const Params& p, int64_t first_out, int64_t first_row,
                       int lane) {
#pragma unroll
  for (int i = 0; i < kHeight; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j) finish(acc.c[i][j], p, first_out + i * w12_cuda::kTileRows, first_row + j * 8, lane);
}

template <int kHeight, int kTiles>
constexpr int kSumBytes =
    kHeight * kTiles * 32 * static_cast<int>(sizeof(float4));  // of a warp: [tile of outputs][of tokens][lane]

template <int kHeight, int kTiles>
__device__ float4* sums_of(uint8_t* sums, int warp) {
  return reinterpret_cast<float4*>(sums + warp * kSumBytes<kHeight, kTiles>);
}

// Leaves a segment's sums where others find them.
template <int kHeight, int kTiles>
__device__ void leave(const Accumulators<kHeight, kTiles>& acc, float4* sums, int lane) {
#pragma unroll
  for (int i = 0; i < kHeight; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      sums[(i * kTiles + j) * 32 + lane] = make_float4(acc.c[i][j][0], acc.c[i][j][1], acc.c[i][j][2], acc.c[i][j][3]);
}

// Adds a segment's sums to those of the segments before it, which the lane has left there.
template <int kHeight, int kTiles>
__device__ void add_before(Accumulators<kHeight, kTiles>& acc, const float4* sums, int lane) {
#pragma unroll
  for (int i = 0; i < kHeight; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const float4 before = sums[(i * kTiles + j) * 32 + lane];
      float (&c)[4] = acc.c[i][j];
      c[0] = before.x + c[0], c[1] = before.y + c[1], c[2] = before.z + c[2], c[3] = before.w + c[3];
    }
}

// The sums of `count` segments in their order; segment(g) gives the lane's four of segment g.
template <class Segment>
__device__ void add_up(float (&sums)[4], int count, Segment segment) {
  float4 v[w12_cuda::kMaxWarps];
#pragma unroll
  for (int g = 0; g < w12_cuda::kMaxWarps; ++g)
    if (g < count) v[g] = segment(g);
  sums[0] = v[0].x, sums[1] = v[0].y, sums[2] = v[0].z, sums[3] = v[0].w;
#pragma unroll
  for (int g = 1; g < w12_cuda::kMaxWarps; ++g)
    if (g < count)
      sums[0] = sums[0] + v[g].x, sums[1] = sums[1] + v[g].y, sums[2] = sums[2] + v[g].z, sums[3] = sums[3] + v[g].w;
}
}  // namespace
}  // namespace specpilot::linear
