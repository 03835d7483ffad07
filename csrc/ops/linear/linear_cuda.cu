// CUDA twin of linear: y = x W^T for bf16 and w12 weights in the run layouts of formats/w12_cuda.h, order "cuda-mma16" (linear.h).
//
// Weights are the M operand of the MMAs, tokens the N operand (8 a tile), so that one token costs what 64 do. A warp has a row group,
// 2 or 3 tiles of 16 weight rows, whose weights it stages itself (linear_stage.cuh). Which rows and which part of k are a warp's is the
// plan's choice (w12_cuda::plan): so that a block has whole rows and nothing of a sum leaves its SM.
//
//   few outputs, 1 x 8 warps            more, 4 x 2 warps                most, 8 x 1 warps, several rounds
//      k ->                                k ->
//   |- 0 -|- 1 -|- 2 -| … |- 7 -|       |-- 0 --|-- 4 --|                |------ 0 ------|
//                                       |-- 1 --|-- 5 --|                |------ 1 ------|
//        sums 0 + 1 + … meet in         |-- 2 --|-- 6 --|                        …
//        shared memory                  |-- 3 --|-- 7 --|                |------ 7 ------|
//
// Every block reads all of its k of x, which for 64 tokens is as much as its weights are. There, where a block has one row group, two
// neighbouring ones take the row groups of both for half of the segments each, and read each other's sums in the end. For prompts a
// block takes 8 row groups for 64 tokens, and a warp all segments of k, one after the other: the same sums.
//
// On sm_90 the next kernel's weights stream in while this one ends (dependent launch).
// Roofline: weight bytes (12.125 or 16 bits a weight); x from the L2 once a block and round.
#include <algorithm>
#include <climits>

#include "core/cuda_cluster.cuh"
#include "core/cuda_launch.cuh"
#include "ops/linear/linear_finish.cuh"

namespace specpilot::linear {
namespace {
using w12_cuda::kMaxWarps;
constexpr int kPassTokens = 64, kFewTokens = 256;  // of a block at most; for which the plan's warps are
constexpr int kPairTiles = 8;                      // tiles of tokens from which on two blocks share segments
constexpr int64_t kSmallWeights = int64_t{1} << 21;

struct Barriers {
  specpilot::cuda::Barrier weights[kMaxWarps][kMaxStages];
  TokenBarriers tokens[kMaxWarps];  // of parts
};

// What a block has in shared memory: x of all parts | weights of warp 0, 1, … | sums of a prompt's segments | barriers. Where a warp
// has one segment of several, sums take the place of x and weights in the end.
template <Format format, int kHeight, int kTiles>
struct Memory {
  static constexpr int kSlice = kSliceBytes<format, kHeight>, kSums = kSumBytes<kHeight, kTiles>;
  static constexpr int kTokenBytes = TokenRing<8 * kTiles>::kBytes;

  const Launch& launch;
  __host__ __device__ int tokens(int part) const { return part * launch.token_stages * kTokenBytes; }
  __host__ __device__ int weights(int warp) const {
    return tokens(launch.block_parts()) + warp * launch.weight_stages * kSlice;
  }
  __host__ __device__ bool keeps() const { return launch.parts == 1 && launch.plan.segments > 1; }
  __host__ __device__ int sums() const { return keeps() ? weights(launch.warps()) : 0; }
  __host__ __device__ int barriers() const {
    const int rings = weights(launch.warps()), own = launch.warps() * kSums;
    return keeps() ? rings + own : launch.parts > 1 && own > rings ? own : rings;
  }
  __host__ __device__ int bytes() const { return barriers() + static_cast<int>(sizeof(Barriers)); }
};

// kTogether: all warps of a block have the same k.
template <Format format, int kHeight, int kTiles, bool kTogether>
__global__ void __launch_bounds__(32 * kMaxWarps, 1)
    linear_kernel(const __grid_constant__ Params p, const __grid_constant__ Launch launch,
                  const __grid_constant__ CUtensorMap x_map) {
  constexpr bool kByFour = kTogether && specpilot::cuda::kWgmma;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Memory<format, kHeight, kTiles> layout{launch};
  const Plan& plan = launch.plan;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // known to be a whole warp's
  const int rank = blockIdx.x % launch.cluster, place = blockIdx.x / launch.cluster;
  const int first = place / launch.token_blocks, count = gridDim.x / (launch.cluster * launch.token_blocks);
  const int rounds = (launch.clusters() - first + count - 1) / count;
  const int64_t first_row = int64_t{place % launch.token_blocks} * 8 * kTiles;
  auto& barriers = *reinterpret_cast<Barriers*>(memory + layout.barriers());
  const int parts = launch.parts, block_parts = launch.block_parts();
  const int of_block = kTogether ? 0 : warp / launch.row_warps, part = rank * block_parts + of_block,
            row_warp = warp - of_block * launch.row_warps;
  const int begin = parts == 1 ? 0 : plan.first_step(part), end = parts == 1 ? plan.steps : plan.first_step(part + 1);
  const int total = rounds * (end - begin);  // steps
  const auto group_of = [&](int round) { return (first + round * count) * launch.row_warps + row_warp; };
  WeightRing<format, kHeight> weights(memory + layout.weights(warp), barriers.weights[warp], p, plan, group_of(0),
                                      group_of(1), begin, end - begin);
  TokenRing<8 * kTiles> tokens(memory + layout.tokens(of_block), barriers.tokens[of_block], p,
                               launch.tensor ? &x_map : nullptr, first_row, begin, end - begin);
  if (lane == 0) {
    weights.init(launch.weight_stages);
    if (row_warp == 0) tokens.init(launch.token_stages, launch.row_warps);
    specpilot::cuda::fence_bulk();
  }
  __syncwarp();
  for (int s = 0; s < min(launch.weight_stages, total); ++s) weights.fill(s, lane);
  if (launch.tensor && threadIdx.x == 0) specpilot::cuda::prefetch(x_map);
  __syncthreads();
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  // The first warp of a part fills its x, a stage when all have left it; which it awaits so late that it has others to read.
  const int behind = min(launch.row_warps == 1 ? 0 : kByFour ? 2 : 1, launch.token_stages - 1);
  Place refill_at(launch.token_stages);
  if (row_warp == 0)
    for (int s = 0; s < min(launch.token_stages, total); ++s) tokens.fill(s, lane);

  uint8_t* const sums = memory + layout.sums();
  float4* const mine = sums_of<kHeight, kTiles>(sums, warp);
  Accumulators<kHeight, kTiles> acc;
  [[maybe_unused]] Fragments a[2];
  [[maybe_unused]] int before = -1;  // the stage of x of the step before
  Place weights_at(launch.weight_stages), tokens_at(launch.token_stages);
  int i = 0;  // steps done
  for (int round = 0; round < rounds; ++round) {
    int segment = 0, cut = layout.keeps() ? plan.first_step(1) : end;  // where the segment ends
    acc.clear();
    for (int step = begin;; ++step, ++i, weights_at.advance(), tokens_at.advance()) {
      weights.wait(weights_at), tokens.wait(tokens_at);
      const uint8_t* const tiles = weights.at(weights_at.stage());
      const uint8_t* const x = tokens.at(tokens_at.stage());
      if constexpr (kByFour) {
        if (!launch.tensor) specpilot::cuda::fence_bulk();  // x came by ordinary copies
        multiply_together<format>(acc, a, tiles, x, p.w.exc_pos, lane,
                                  [&] { tokens.leave(max(before, 0), lane == 0 && before >= 0); });
        before = tokens_at.stage();
      } else {
        multiply<format>(acc, tiles, x, p.w.exc_pos, lane);
        tokens.leave(tokens_at.stage(), lane == 0);
      }
      __syncwarp();
      if (i + launch.weight_stages < total) weights.fill(weights_at.stage(), lane);
      if (row_warp == 0 && i >= behind && i - behind + launch.token_stages < total) {
        tokens.wait_left(refill_at);
        tokens.fill(refill_at.stage(), lane);
        refill_at.advance();
      }
      if (step + 1 < cut) continue;
      if constexpr (kByFour) specpilot::cuda::wgmma_wait<0>();
      if (segment > 0) add_before(acc, mine, lane);
      if (cut == end) break;
      leave(acc, mine, lane);
      acc.clear();
      cut = plan.first_step(++segment + 1);
    }
    ++i, weights_at.advance(), tokens_at.advance();
    if (parts == 1) finish(acc, p, int64_t{group_of(round)} * plan.rows(), first_row, lane);
  }
  if (parts == 1) return;
  const bool alone = launch.cluster == 1;
  __syncthreads();
  leave(acc, mine, lane);
  alone ? __syncthreads() : specpilot::cuda::sync_cluster();
  constexpr int kOfGroup = kHeight * kTiles;
  for (int t = rank * launch.warps() + warp; t < launch.row_warps * kOfGroup; t += launch.cluster * launch.warps()) {
    const int row_warp = t / kOfGroup, tile = t % kOfGroup;
    float sum[4];
    add_up(sum, parts, [&](int g) {
      const int there = g >= block_parts;
      const float4* at = sums_of<kHeight, kTiles>(sums, (g - there * block_parts) * launch.row_warps + row_warp);
      return alone ? at[tile * 32 + lane] : specpilot::cuda::read_of_block(at + tile * 32 + lane, there);
    });
    finish(sum, p, (int64_t{first} * launch.row_warps + row_warp) * plan.rows() + tile / kTiles * w12_cuda::kTileRows,
           first_row + tile % kTiles * 8, lane);
  }
  if (!alone) specpilot::cuda::sync_cluster();  // until then the other reads
}

// How a product is started: warps as Launch has them, fewer blocks than row groups want or not, and stages that must fit.
struct Way {
  int row_warps, parts, cluster, most_clusters, least_stages;
};

// False where its stages do not fit a block.
template <Format format, int kHeight, int kTiles, bool kTogether>
bool start(const Params& p, const Plan& plan, const Way& way) {
  using Layout = Memory<format, kHeight, kTiles>;
  constexpr int kTokens = 8 * kTiles;
  const int most = static_cast<int>(specpilot::cuda::most_shared("linear"));
  Launch launch{plan, way.row_warps, way.parts, way.cluster, static_cast<int>((p.rows + kTokens - 1) / kTokens), 0,
                0,    false};
  const Layout layout{launch};
  const int clusters = std::min(launch.clusters(), way.most_clusters);
  const int longest = (plan.steps + way.parts - 1) / way.parts * ((launch.clusters() + clusters - 1) / clusters);
  const int weights = launch.warps() * Layout::kSlice, x = launch.block_parts() * Layout::kTokenBytes;
  const int room = most - layout.bytes(), stages = std::min(room / (weights + x), kMaxStages);
  if (room < 0 || stages < way.least_stages) return false;
  launch.token_stages = std::min(stages, longest);
  launch.weight_stages = std::min({(room - launch.token_stages * x) / weights, kMaxStages, longest});
  // Two blocks of one launch on an SM would leave another SM without any, as the first of them find some still busy.
  const int bytes = std::max(layout.bytes(), p.w.n * p.w.k > kSmallWeights ? most / 2 : 0);

  const auto kernel = linear_kernel<format, kHeight, kTiles, kTogether>;
  CUtensorMap x_map{};
  launch.tensor = specpilot::cuda::compiled_since_90("linear", kernel) &&
                  specpilot::cuda::describe("linear", x_map, p.x, p.rows, p.w.k, p.ldx, kTokens);
  specpilot::cuda::allow_shared("linear", kernel, bytes);
  specpilot::cuda::launch_clusters("linear", kernel, way.cluster,
                                   static_cast<unsigned>(way.cluster * clusters * launch.token_blocks), 32 * launch.warps(),
                                   bytes, p.stream, p, launch, x_map);
  return true;
}

// Tokens of a block: as many as its shared memory has room for.
template <Format format, int kHeight, int kTiles>
bool start_few(const Params& p, const Plan& plan) {
  Way way{plan.row_warps, plan.segments, 1, w12_cuda::kBlocks, kTiles > 1 ? 2 : 1};
  if constexpr (kTiles > 1)
    if (p.rows <= 4 * kTiles) return start_few<format, kHeight, kTiles / 2>(p, plan);
  if constexpr (kTiles >= kPairTiles)
    if (plan.row_warps == 1 && plan.segments % 2 == 0 &&
        specpilot::cuda::compiled_since_90("linear", linear_kernel<format, kHeight, kTiles, false>))
      way.cluster = 2, way.row_warps = 2, way.most_clusters /= 2;
  if (start<format, kHeight, kTiles, false>(p, plan, way)) return true;
  if constexpr (kTiles > 1) return start_few<format, kHeight, kTiles / 2>(p, plan);
  return false;
}

template <Format format, int kHeight>
bool start(const Params& p, const Plan& plan) {
  constexpr int kTiles = kPassTokens / 8;
  if (p.rows <= kFewTokens) return start_few<format, kHeight, kTiles>(p, plan);
  const auto way = [](int least_stages) { return Way{kMaxWarps, 1, 1, INT_MAX, least_stages}; };
  // By four warps where weights need no decoding; which takes longer than it saves otherwise, as measured.
  return start<format, kHeight, kTiles, format == Format::kBf16>(p, plan, way(2)) ||
         start<format, kHeight, kTiles / 2, false>(p, plan, way(2)) || start<format, kHeight, 1, false>(p, plan, way(1));
}

template <Format format>
bool start(const Params& p, const Plan& plan) {
  return plan.tiles == 2 ? start<format, 2>(p, plan) : start<format, 3>(p, plan);
}
}  // namespace

void cuda::run(const Params& p) {
  if (p.rows == 0) return;
  const Plan plan = w12_cuda::plan(p.w.n, p.w.k);
  SP_CHECK(p.w.format == Format::kW12 ? start<Format::kW12>(p, plan) : start<Format::kBf16>(p, plan),
           "linear: this device lets a block have too little shared memory; GPUs since sm_80 have enough");
}
}  // namespace specpilot::linear
