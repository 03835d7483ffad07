// linear of a small weight (Plan::small), for which a workspace in memory and its counters would take longer than the products: a
// block takes a row block of 32 outputs, a warp one of its pieces, with stages of its own; sums meet in shared memory.
//
//   warp        0         1         2
//   k steps  |. . .|   |. . .|   |. . .|       then every warp adds up, in the order of the pieces, its share of the tiles
#pragma once
#include "core/cuda_launch.cuh"
#include "ops/linear/linear_product.cuh"

namespace specpilot::linear {
namespace {
using w12_cuda::kMaxSmallPieces;

constexpr int small_stages(int tokens) { return tokens <= 16 ? 4 : tokens <= 32 ? 3 : 2; }

template <Format format, int kTiles>
__global__ void __launch_bounds__(32 * kMaxSmallPieces, 1)
    small_kernel(const __grid_constant__ Params p, const __grid_constant__ Launch launch) {
  constexpr int kTokens = 8 * kTiles, kStages = small_stages(kTokens);
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Barriers barriers[kMaxSmallPieces];
  const Plan& plan = launch.plan;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pieces = plan.pieces / plan.blocks;
  const int piece = blockIdx.x * pieces + warp, begin = first_unit(plan, piece), count = first_unit(plan, piece + 1) - begin;
  const int stage_bytes = launch.weight_bytes + kTokens * kRowBytes;
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) barriers[warp].full[s].init(specpilot::cuda::kStagers);
    specpilot::cuda::fence_bulk();
  }
  __syncwarp();
  specpilot::cuda::let_next_start();
  const Ring<format, kTokens, kStages> ring(memory + warp * kStages * stage_bytes, barriers[warp], p, launch, begin, 0);
  for (int i = 0; i < min(kStages, count); ++i) ring.stage_weights(i, lane);
  specpilot::cuda::wait_for_previous();
  const int k_step = begin - blockIdx.x * plan.steps;
  for (int i = 0; i < min(kStages, count); ++i) ring.stage_x(i, k_step + i, lane);

  Accumulators<kTiles> acc;
  acc.clear();
  for (int i = 0; i < count; ++i) {
    ring.wait_full(i);
    multiply<format, kTiles>(acc, ring.stage(i), ring.x(i), p.w.exc_pos, lane);
    __syncwarp();
    if (i + kStages < count) {
      specpilot::cuda::fence_bulk();
      ring.stage_weights(i + kStages, lane);
      ring.stage_x(i + kStages, k_step + i + kStages, lane);
    }
  }

  // The stages have been read: [piece][tile of outputs][tile of tokens][lane] of four sums take their place.
  float4* sums = reinterpret_cast<float4*>(memory);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTilesPerWarp; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      sums[((warp * kTilesPerWarp + i) * kTiles + j) * 32 + lane] =
          make_float4(acc.c[i][j][0], acc.c[i][j][1], acc.c[i][j][2], acc.c[i][j][3]);
  __syncthreads();
  for (int t = warp; t < kTilesPerWarp * kTiles; t += pieces) {
    float4 piece[kMaxSmallPieces];
#pragma unroll
    for (int g = 0; g < kMaxSmallPieces; ++g)
      if (g < pieces) piece[g] = sums[(g * kTilesPerWarp * kTiles + t) * 32 + lane];
    float sum[4] = {piece[0].x, piece[0].y, piece[0].z, piece[0].w};
#pragma unroll
    for (int g = 1; g < kMaxSmallPieces; ++g)
      if (g < pieces) sum[0] += piece[g].x, sum[1] += piece[g].y, sum[2] += piece[g].z, sum[3] += piece[g].w;
    finish(sum, p, int64_t{blockIdx.x} * plan.rows() + t / kTiles * w12_cuda::kTileRows, t % kTiles * 8, lane);
  }
}

// False where the block's stages are too much for the device: then the kernel of large weights gives the same bits.
template <Format format, int kTiles>
bool start_small(const Params& p, const Plan& plan) {
  const Launch launch{plan, 1, plan.tiles() * kTileBytes<format>};
  const int pieces = plan.pieces / plan.blocks;
  const size_t bytes = pieces * small_stages(8 * kTiles) * (launch.weight_bytes + 8 * kTiles * kRowBytes);
  if (bytes + kMaxSmallPieces * sizeof(Barriers) > specpilot::cuda::most_shared("linear")) return false;
  const auto kernel = small_kernel<format, kTiles>;
  specpilot::cuda::allow_shared("linear", kernel, bytes);
  specpilot::cuda::launch_early("linear", kernel, plan.blocks, 32 * pieces, bytes, p.stream, p, launch);
  return true;
}

template <Format format>
bool start_small(const Params& p, const Plan& plan) {
  if (p.rows <= 8) return start_small<format, 1>(p, plan);
  if (p.rows <= 16) return start_small<format, 2>(p, plan);
  if (p.rows <= 32) return start_small<format, 4>(p, plan);
  return start_small<format, 8>(p, plan);
}
}  // namespace
}  // namespace specpilot::linear
