// CUDA twin of linear: y = x W^T for bf16 and w12 weights in the run layouts of formats/w12_cuda.h, order "cuda-mma16" (linear.h).
//
// Weights are the M operand of the MMAs, tokens the N operand (8 a tile), so that one token costs what 64 do. A block has W warps
// that multiply, a warp 2 tiles of 16 weight rows; the block walks the units (row block, k step of 64) of its piece of the plan
// (w12_cuda::plan) through a ring of stages (linear_stage.cuh) that one more warp fills. Where a piece ends inside of a row block
// its accumulators go to a workspace, and whoever comes last to a row block adds them up in the order of the pieces:
//
//   row block   |      0       |      1       |      2       |
//   units       |. . . . . . . |. . . . . . . |. . . . . . . |
//   pieces      |--- 0 ---|--- 1 ---|--- 2 ---|--- 3 ---|- 4 |          sums: 0 + 1,  1 + 2,  2 + 3 + 4
//
// Small weights have a kernel of their own (linear_small.cuh). With more rows than the workspace is for (prompts), a block takes a
// whole row block for 64 tokens and adds up its pieces in registers: the same sums.
//
// On sm_90 the next kernel's weights stream in while this one ends (dependent launch).
// Roofline: weight bytes (12.125 or 16 bits a weight); x from the L2 once a row block.
#include <algorithm>

#include "core/cuda_launch.cuh"
#include "ops/linear/linear_small.cuh"

namespace specpilot::linear {
namespace {
using w12_cuda::kMaxPieceWarps;
constexpr int kPassTokens = 64, kTokenBlocks = 4;  // of 64 tokens, in one launch that cuts k
constexpr int64_t kSlots = 2 * kMaxPieceWarps * kTilesPerWarp * (kPassTokens / 8) * 32;  // float4 of a token block

// Accumulators of pieces, and how many are there; one for the process and device: calls on several streams must not overlap.
__device__ float4 partials[kTokenBlocks * kSlots];
constexpr int64_t kMaxCounters = 1 << 17;
__device__ int arrived[kMaxCounters];  // zero between launches

// A piece leaves its accumulators; true for the last of the row block's, which then has the sum of all.
template <int kTiles>
__device__ bool add_pieces(Accumulators<kTiles>& acc, const Plan& plan, int token_block, int row_block, int piece, int begin,
                           int warp, int lane) {
  const int first = row_block * plan.steps;
  const int head = piece_of(plan, first), count = piece_of(plan, first + plan.steps - 1) - head + 1;
  const auto records = [&](int of, bool from_start) {  // a piece has two: the part it begins with, and the part it ends with
    return partials + token_block * kSlots +
           ((int64_t{of} * 2 + from_start) * plan.warps + warp) * (kTilesPerWarp * kTiles * 32) + lane;
  };
  float4* mine = records(piece, begin == first && first_unit(plan, piece) != begin);
#pragma unroll
  for (int i = 0; i < kTilesPerWarp; ++i)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      __stcg(mine + (i * kTiles + j) * 32, make_float4(acc.c[i][j][0], acc.c[i][j][1], acc.c[i][j][2], acc.c[i][j][3]));
  __threadfence();
  __syncwarp();
  int* counter = arrived + (token_block * plan.blocks + row_block) * plan.warps + warp;
  int before = 0;
  if (lane == 0) before = atomicAdd(counter, 1);
  if (__shfl_sync(~0u, before, 0) != count - 1) return false;
  if (lane == 0) *counter = 0;
  __threadfence();
  constexpr int kBatch = 4;  // pieces whose loads are under way together
  for (int done = 0; done < count; done += kBatch) {
    const float4* theirs[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int g = head + min(done + b, count - 1);
      theirs[b] = records(g, g == head && first_unit(plan, g) != first);
    }
#pragma unroll
    for (int i = 0; i < kTilesPerWarp; ++i)
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float4 v[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) v[b] = __ldcg(theirs[b] + (i * kTiles + j) * 32);
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const float add[4] = {v[b].x, v[b].y, v[b].z, v[b].w};
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (done + b < count) acc.c[i][j][e] = done + b == 0 ? add[e] : acc.c[i][j][e] + add[e];
        }
      }
  }
  return true;
}

// kWhole: a block takes a row block, else a piece.
template <Format format, int kTiles, bool kWhole, int kStages>
__global__ void __launch_bounds__(32 * (kMaxWarps + 1), kTiles == 8 ? 1 : 2)
    linear_kernel(const __grid_constant__ Params p, const __grid_constant__ Launch launch) {
  constexpr int kTokens = 8 * kTiles;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Barriers barriers;
  const Plan& plan = launch.plan;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int token_block = blockIdx.x % launch.token_blocks, part = blockIdx.x / launch.token_blocks;
  const int first_row = token_block * kTokens;
  const int begin = kWhole ? part * plan.steps : first_unit(plan, part);
  const int end = kWhole ? begin + plan.steps : first_unit(plan, part + 1);
  const int count = end - begin;

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) barriers.full[s].init(specpilot::cuda::kStagers), barriers.empty[s].init(plan.warps);
    specpilot::cuda::fence_bulk();
  }
  __syncthreads();
  specpilot::cuda::let_next_start();
  const Ring<format, kTokens, kStages> ring(memory, barriers, p, launch, begin, first_row);
  if (warp == plan.warps) {
    for (int i = 0; i < min(kStages, count); ++i) ring.stage_weights(i, lane);
    specpilot::cuda::wait_for_previous();
    for (int i = 0, k_step = begin % plan.steps; i < count; ++i) {
      if (i >= kStages) ring.wait_empty(i - kStages), ring.stage_weights(i, lane);
      ring.stage_x(i, k_step, lane);
      k_step = k_step + 1 < plan.steps ? k_step + 1 : 0;
    }
    specpilot::cuda::wait_all_copies();  // none may outlive its warp
    return;
  }
  specpilot::cuda::wait_for_previous();

  const auto* overflow = p.w.exc_pos;
  Accumulators<kTiles> acc, sum;
  acc.clear();
  int row_block = begin / plan.steps, row_end = (row_block + 1) * plan.steps, segment = begin, piece = piece_of(plan, begin);
  int cut = kWhole ? min(first_unit(plan, piece + 1), row_end) : min(end, row_end);  // where the segment ends
  bool fresh = true;                                                                 // kWhole: nothing in `sum` yet
  for (int i = 0; i < count; ++i) {
    ring.wait_full(i);
    multiply<format, kTiles>(acc, ring.stage(i) + warp * kTilesPerWarp * kTileBytes<format>, ring.x(i), overflow, lane);
    __syncwarp();
    if (lane == 0) ring.leave(i);
    if (begin + i + 1 < cut) continue;
    const int64_t first_out = int64_t{row_block} * plan.rows() + warp * kTilesPerWarp * w12_cuda::kTileRows;
    if constexpr (kWhole) {
      sum.each([&](float& x, int t, int j, int e) { x = fresh ? acc.c[t][j][e] : x + acc.c[t][j][e]; });
      fresh = false;
      if (cut == end) finish(sum, p, first_out, first_row, lane);
      cut = min(first_unit(plan, ++piece + 1), row_end);
    } else {
      const bool whole = segment == row_end - plan.steps && cut == row_end;
      if (whole || add_pieces(acc, plan, token_block, row_block, piece, segment, warp, lane))
        finish(acc, p, first_out, first_row, lane);
      segment = cut, ++row_block, row_end += plan.steps, cut = min(end, row_end);
    }
    acc.clear();
  }
}

template <Format format, int kTiles, bool kWhole, int kStages>
void start(const Params& p, const Launch& launch, size_t bytes) {
  const int64_t parts = kWhole ? launch.plan.blocks : launch.plan.pieces;
  const auto kernel = linear_kernel<format, kTiles, kWhole, kStages>;
  specpilot::cuda::allow_shared("linear", kernel, bytes);
  specpilot::cuda::launch_early("linear", kernel, static_cast<unsigned>(parts * launch.token_blocks),
                                32 * (launch.plan.warps + 1), bytes, p.stream, p, launch);
}

template <Format format, int kTiles, bool kWhole>
void start(const Params& p, const Plan& plan) {
  constexpr int kTokens = 8 * kTiles, kMost = stages(kTokens);
  const int64_t token_blocks = (p.rows + kTokens - 1) / kTokens;
  const Launch launch{plan, static_cast<int>(token_blocks), plan.tiles() * kTileBytes<format>};
  const size_t stage = launch.weight_bytes + kTokens * kRowBytes;
  if (kMost * stage + sizeof(Barriers) <= specpilot::cuda::most_shared("linear"))
    start<format, kTiles, kWhole, kMost>(p, launch, kMost * stage);
  else  // fits every GPU since sm_80
    start<format, kTiles, kWhole, 2>(p, launch, 2 * stage);
}

template <Format format>
void run_format(const Params& p) {
  const Plan plan = w12_cuda::plan(p.w.n, p.w.k);
  if (plan.small && p.rows <= kPassTokens && start_small<format>(p, plan)) return;
  SP_CHECK(int64_t{plan.blocks} * plan.warps * kTokenBlocks <= kMaxCounters, "linear: ", p.w.n, " outputs, at most ",
           kMaxCounters / kTokenBlocks * plan.rows() / plan.warps);
  if (p.rows > kTokenBlocks * kPassTokens) return start<format, kPassTokens / 8, true>(p, plan);
  if (p.rows <= 8) return start<format, 1, false>(p, plan);
  if (p.rows <= 16) return start<format, 2, false>(p, plan);
  if (p.rows <= 32) return start<format, 4, false>(p, plan);
  start<format, 8, false>(p, plan);
}
}  // namespace

void cuda::run(const Params& p) { p.w.format == Format::kW12 ? run_format<Format::kW12>(p) : run_format<Format::kBf16>(p); }
}  // namespace specpilot::linear
