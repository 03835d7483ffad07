// The work of a warp in linear's CUDA kernels: sums of 32 outputs x some tiles of 8 tokens in registers, a step of 64 k, and how sums
// become outputs.
#pragma once
#include "core/bf16.h"
#include "core/cuda_mma.cuh"
#include "ops/linear/linear_stage.cuh"

namespace specpilot::linear {
namespace {
using w12_cuda::kMaxWarps, w12_cuda::kTilesPerWarp, w12_cuda::Plan;

// Piece that unit u belongs to, and its first unit.
__device__ int piece_of(const Plan& plan, int u) { return ((u + 1) * plan.pieces - 1) / plan.units(); }
__device__ int first_unit(const Plan& plan, int piece) { return piece * plan.units() / plan.pieces; }

template <int kTiles>
struct Accumulators {
  float c[kTilesPerWarp][kTiles][4];

  __device__ void clear() {
    each([](float& x, int, int, int) { x = 0.0f; });
  }
  template <class F>
  __device__ void each(F f) {
#pragma unroll
    for (int i = 0; i < kTilesPerWarp; ++i)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(c[i][j][e], i, j, e);
  }
};

// One step of one warp: 32 weight rows x 64 k x the tokens.
template <Format format, int kTiles>
__device__ void multiply(Accumulators<kTiles>& acc, const uint8_t* tiles, const uint8_t* x, const uint32_t* overflow,
                         int lane) {
  // Loads of x, and how many of them come before they are due: all where registers are left for them.
  constexpr int kLoads = kTiles == 1 ? 2 : 2 * kTiles, kAhead = kTiles == 8 ? 4 : kTiles == 4 ? 2 : kLoads;
  Packet<format> packets[kTilesPerWarp];
#pragma unroll
  for (int i = 0; i < kTilesPerWarp; ++i) load<format>(packets[i], tiles + i * kTileBytes<format>, lane);
  // Matrices of a load: k 0, 8, 16, 24 of 32 for one tile of tokens; else k 0, 8 of 8 tokens, then of the next 8.
  const uint32_t row = specpilot::cuda::shared_address(x) + lane % 8 * kRowBytes;
  const uint32_t at = kTiles == 1 ? row + lane / 8 * 16 : row + lane / 16 * 8 * kRowBytes + lane / 8 % 2 * 16;
  uint32_t b[kAhead][4];
  const auto load_x = [&](int m) {
    const int offset = kTiles == 1 ? m * 64 : m / (kTiles / 2) * 32 + m % (kTiles / 2) * 16 * kRowBytes;
    specpilot::cuda::load_matrices(b[m % kAhead], at + offset);
  };
#pragma unroll
  for (int m = 0; m < kAhead; ++m) load_x(m);
  Fragments a[kTilesPerWarp];
  uint32_t any = 0;
#pragma unroll
  for (int i = 0; i < kTilesPerWarp; ++i) decode(a[i], packets[i]), any |= exceptions(packets[i]);
  if (any)
#pragma unroll
    for (int i = 0; i < kTilesPerWarp; ++i)
      patch(a[i], tiles + i * kTileBytes<format>, exceptions(packets[i]), overflow, lane);
#pragma unroll
  for (int m = 0; m < kLoads; ++m) {
    const auto& now = b[m % kAhead];
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // the next 16 k, or the next 8 tokens
      const int kt = kTiles == 1 ? 2 * m + half : m / (kTiles / 2), j = kTiles == 1 ? 0 : m % (kTiles / 2) * 2 + half;
#pragma unroll
      for (int i = 0; i < kTilesPerWarp; ++i) specpilot::cuda::mma(acc.c[i][j], a[i][kt], now[2 * half], now[2 * half + 1]);
    }
    if (m + kAhead < kLoads) load_x(m + kAhead);
  }
}

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

template <int kTiles>
__device__ void finish(const Accumulators<kTiles>& acc, const Params& p, int64_t first_out, int64_t first_row, int lane) {
#pragma unroll
  for (int i = 0; i < kTilesPerWarp; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j) finish(acc.c[i][j], p, first_out + i * w12_cuda::kTileRows, first_row + j * 8, lane);
}
}  // namespace
}  // namespace specpilot::linear
