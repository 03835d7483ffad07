// CUDA twin of linear_q8: the rows become integers (linear_q8_rows.cuh), then the bytes of the weight are streamed past them.
//
// A warp takes two bands (32 columns of y) and a share of K, in steps of 64 k. Lane (g, t) copies, of band g / 4, columns
// 4 (g % 4) … + 3 of groups t, 4 + t, 8 + t, 12 + t: 16 bytes each, and reads them back itself, so that its ring in shared memory
// needs no barrier. The words are fragments of mma.m16n8k32 as they lie, with the weight as A:
//
//   word 0, 1 of a copy   rows g, g + 8 of the first mma    → columns 4g, 4g + 1 of the warp's 32
//   word 2, 3             rows g, g + 8 of the second mma   → columns 4g + 2, 4g + 3
//   copies 0 1 | 2 3      k slots t, 4 + t of both, for the first | second half of the step
//
// x comes from L1, which the weights pass by: all warps of a processor go through the same x at about the same time. Sums of the
// shares of a block meet in shared memory; those of blocks that share K are added up in `sums` (integers: any order gives the same
// bits) by whoever comes, and the last one to come finishes.
//
// Roofline: K N bytes up to 64 rows, which are one token block; token blocks of a tile of columns run side by side and share L2.
#include <algorithm>

#include "ops/linear_q8/linear_q8_rows.cuh"

namespace specpilot::linear_q8 {
namespace {
constexpr int kWarps = 8, kThreads = 32 * kWarps, kWarpColumns = 32, kCopies = 4, kCopyBytes = 16;
constexpr int kAhead = 3;       // steps of a warp under way: 6 KB
constexpr int kLeastSteps = 4;  // a warp's share of K is not cut below
constexpr int64_t kBandStep = kBand * kStep;
static_assert(kWarpColumns == 2 * kBand && kBandStep == kCopies * 16 * kCopyBytes);

// What a block of threads takes: 8-row tiles of x, and pairs of bands x shares of K, one a warp. The more rows, the more their
// way from L2 costs; bands of a block share it.
template <int kTiles>
struct Block {
  static constexpr int kTokens = 8 * kTiles, kPairs = kTiles < 4 ? 2 : 4, kShares = kWarps / kPairs;
  static constexpr int kColumns = kPairs * kWarpColumns, kSums = kTokens * kColumns;
  static constexpr int kPerProcessor = kTiles < 8 ? 3 : 2;  // blocks
  static constexpr int kFold = kTiles < 4 ? kTiles : 4;     // tiles whose sums meet in shared memory at a time
  using Slab = int32_t[kFold * 8][kWarpColumns];            // sums of a warp
  static_assert(sizeof(Slab) <= kAhead * kCopies * 32 * kCopyBytes && kThreads % kColumns == 0);
};

// Sums of blocks that share K, and how many of them have come. Zero between launches.
constexpr int64_t kMostSums = 2 << 20, kMostSplit = 1024;
__device__ int32_t sums[kMostSums];
__device__ unsigned arrived[kMostSplit];

__device__ void mma(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Grid: (tile of columns, token block), the latter faster; shares of K.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, Block<kTiles>::kPerProcessor)
    product_kernel(const Params p, const Plan plan, const int token_blocks) {
  using B = Block<kTiles>;
  constexpr int kTokens = B::kTokens, kColumns = B::kColumns, kPairs = B::kPairs, kShares = B::kShares;
  __shared__ uint4 ring[kWarps][kAhead][kCopies][32];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int tile = blockIdx.x / token_blocks, token_block = blockIdx.x % token_blocks;
  const int64_t column = int64_t{tile} * kColumns + thread % kColumns;  // that this thread finishes
  if (column < p.n) specpilot::cuda::prefetch(p.scale + column);
  specpilot::cuda::let_next_start();

  const int shares = static_cast<int>(gridDim.y) * kShares, share = static_cast<int>(blockIdx.y) * kShares + warp / kPairs;
  const int begin = plan.steps * share / shares, count = plan.steps * (share + 1) / shares - begin;
  const int64_t bands = p.bands(), own = (int64_t{tile} * kPairs + warp % kPairs) * 2 + lane / 16;
  const int64_t band = own < bands ? own : bands - 1;  // what is read twice is not stored twice
  const uint8_t* from = p.data + (band * plan.steps + begin) * kBandStep + (lane % 4 * 4 + lane / 4 % 4) * kCopyBytes;
  const uint2* x = x_words + (int64_t{token_block} * plan.steps + begin) * kTokens * (kStepWords / 2) + lane;
  int to_fetch = count;
  const auto fetch = [&](uint4(*to)[32]) {
    if (to_fetch > 0)
#pragma unroll
      for (int i = 0; i < kCopies; ++i) specpilot::cuda::copy16(&to[i][lane], from + i * (kBandStep / kCopies));
    specpilot::cuda::commit_copies();  // empty behind the end, so that counting them stays simple
    --to_fetch, from += kBandStep;
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) fetch(ring[warp][i]);
  specpilot::cuda::wait_for_previous();  // x and the sums, not the weights

  int acc[2][kTiles][4] = {};
#pragma unroll 1
  for (int step = 0, slot = 0; step < count; ++step, x += kTokens * (kStepWords / 2)) {
    specpilot::cuda::wait_copies<kAhead - 1>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 low = ring[warp][slot][2 * half][lane], high = ring[warp][slot][2 * half + 1][lane];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const uint2 b = x[i * 64 + half * 32];
        mma(acc[0][i], low.x, low.y, high.x, high.y, b.x, b.y);
        mma(acc[1][i], low.z, low.w, high.z, high.w, b.x, b.y);
      }
    }
    fetch(ring[warp][slot]);
    slot = slot + 1 == kAhead ? 0 : slot + 1;
  }

  // A thread finishes one column, of every kThreads / kColumns-th token.
  const bool split = gridDim.y > 1, inside = column < p.n;
  int32_t* shared_sums = sums + (split ? int64_t{blockIdx.x} * B::kSums : 0) + thread % kColumns;
  const int first_row = token_block * kTokens, tokens = inside ? min(kTokens, plan.rows - first_row) : 0;
  const auto store = [&](int token, int32_t sum) {
    const Row row = x_rows[first_row + token];
    finish(p, plan.first + first_row + token, column, sum - row.offset, row.scale);
  };

  auto* slabs = reinterpret_cast<typename B::Slab*>(ring);
#pragma unroll
  for (int first = 0; first < kTiles; first += B::kFold) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < B::kFold; ++i)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const auto &low = acc[0][first + i], &high = acc[1][first + i];
        *reinterpret_cast<int4*>(&slabs[warp][i * 8 + lane % 4 * 2 + odd][lane / 4 * 4]) =
            make_int4(low[odd], low[2 + odd], high[odd], high[2 + odd]);
      }
    __syncthreads();
    const auto* slab = slabs + thread % kColumns / kWarpColumns;
    for (int i = thread / kColumns; i < min(B::kFold * 8, tokens - first * 8); i += kThreads / kColumns) {
      int32_t sum = 0;
#pragma unroll
      for (int s = 0; s < kShares; ++s) sum += slab[s * kPairs][i][thread % kWarpColumns];
      if (split)
        atomicAdd(shared_sums + (first * 8 + i) * kColumns, sum);
      else
        store(first * 8 + i, sum);
    }
  }
  if (!split) return;

  bool& last = *reinterpret_cast<bool*>(ring);
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(arrived + blockIdx.x, 1u) == gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int i = thread / kColumns; i < tokens; i += kThreads / kColumns) {
    const int32_t sum = __ldcg(shared_sums + i * kColumns);
    shared_sums[i * kColumns] = 0;
    store(i, sum);
  }
  if (thread == 0) arrived[blockIdx.x] = 0;
}

template <int kTiles>
void product(const Params& p, const Plan& plan, int processors) {
  using B = Block<kTiles>;
  const int64_t token_blocks = (plan.rows + B::kTokens - 1) / B::kTokens;
  const int64_t blocks = (p.n + B::kColumns - 1) / B::kColumns * token_blocks;
  const bool may_split = blocks <= std::min(kMostSplit, kMostSums / B::kSums);
  const int64_t fill = may_split ? processors * B::kPerProcessor / blocks : 1;
  const int64_t splits = std::max<int64_t>(1, std::min<int64_t>(fill, plan.steps / (B::kShares * kLeastSteps)));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(splits));
  specpilot::cuda::launch_early("linear_q8", product_kernel<kTiles>, grid, kThreads, 0, p.stream, p, plan,
                                static_cast<int>(token_blocks));
}
}  // namespace

void cuda::run(const Params& p) {
  const uintptr_t odd = reinterpret_cast<uintptr_t>(p.data) % kCopyBytes;
  SP_CHECK(odd == 0, "linear_q8: data begins ", odd, " bytes past a multiple of ", kCopyBytes,
           "; copy it to a tensor of its own");
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t room = kXWords * kGroup / std::max<int64_t>(p.padded_k(), kStep) / kMostTokens * kMostTokens;
  const int64_t pass = std::min({room, kXRows, p.rows});
  const auto steps = static_cast<int>(p.padded_k() / kStep);
  for (int64_t first = 0; first < p.rows; first += pass) {
    const auto rows = static_cast<int>(std::min(pass, p.rows - first));
    const int tokens = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : kMostTokens;
    const Plan plan{first, rows, steps, tokens};
    quantize(p, plan);
    const auto run = tokens == 8 ? product<1> : tokens == 16 ? product<2> : tokens == 32 ? product<4> : product<8>;
    run(p, plan, processors);
  }
}
}  // namespace specpilot::linear_q8
