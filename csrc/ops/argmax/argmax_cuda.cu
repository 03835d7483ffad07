// CUDA twin: the keys of argmax.h are integers, so a maximum taken in any order is the CPU's, runner-up included.
//
//   row    | head | 16-byte vectors: thread t of the row's 8 x 512 takes numbers t, t + 4096, …            | tail |
//   block  (rank within the row)  0 1 2 3 4 5 6 7     a cluster: partials meet in block 0 through shared memory, so no
//                                                     workspace outlives a call, and calls on several streams may overlap
//   Partial  {first = key and ~id in 64 bits: the larger key wins, then the lower id;  second = largest of the other keys}
//
// Before sm_90 there are no clusters: block 0 reads the whole row.
// Roofline: 2 R V bytes, often from the L2, where the head has just put them; a lone row is bound by the reach of 8 SMs.
#include <cooperative_groups.h>

#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/argmax/argmax.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SP_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define SP_CLUSTER(blocks)
#endif

namespace specpilot::argmax {
namespace {
constexpr int kThreads = 512, kBlocks = 8, kWarps = kThreads / 32;

struct Partial {
  uint64_t first;  // 0 of nothing: below every element
  int32_t second;
};

__device__ uint64_t pack(int32_t key, uint32_t id) {
  return static_cast<uint64_t>(key - kNanKey) << 32 | (0xffffffffu - id);
}
__device__ int32_t key_of(uint64_t first) { return static_cast<int32_t>(first >> 32) + kNanKey; }

__device__ Partial merge(const Partial& a, const Partial& b) {
  return {max(a.first, b.first), max(max(a.second, b.second), key_of(min(a.first, b.first)))};
}

template <int kLanes>
__device__ Partial merge_lanes(Partial p) {  // of a warp's first kLanes, in every one of them
  for (int lane = kLanes / 2; lane > 0; lane /= 2)
    p = merge(p, {__shfl_xor_sync(0xffffffffu, p.first, lane), __shfl_xor_sync(0xffffffffu, p.second, lane)});
  return p;
}

// One thread's elements, in rising order: an equal one further on loses.
class Scan {
 public:
  __device__ void add(uint32_t bits, int id) {
    const int32_t k = key(static_cast<bf16>(bits));
    second_ = max(second_, min(first_, k));
    if (k > first_) first_ = k, id_ = id;
  }
  __device__ Partial partial() const { return {first_ == kNothing ? 0 : pack(first_, static_cast<uint32_t>(id_)), second_}; }

 private:
  static constexpr int32_t kNothing = kNanKey - 1;
  int32_t first_ = kNothing, second_ = kNanKey;
  int id_ = 0;
};

__device__ Partial scan(const bf16* row, int n, int thread, int threads) {
  const int to_aligned = (16 - static_cast<int>(reinterpret_cast<uintptr_t>(row) & 15)) % 16 / 2;
  const int head = min(to_aligned, n), vectors = (n - head) / 8, tail = head + vectors * 8;
  Scan s;
  if (thread < head) s.add(row[thread], thread);
  const auto* data = reinterpret_cast<const uint4*>(row + head);
#pragma unroll 4
  for (int v = thread; v < vectors; v += threads) {
    const uint4 x = data[v];
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int id = head + v * 8 + w * 2;
      s.add(words[w] & 0xffff, id);
      s.add(words[w] >> 16, id + 1);
    }
  }
  if (thread < n - tail) s.add(row[tail + thread], tail + thread);
  return s.partial();
}

__global__ void SP_CLUSTER(kBlocks) __launch_bounds__(kThreads) argmax_kernel(const Params p) {
  __shared__ Partial warps[kWarps];
  const int64_t r = blockIdx.x / kBlocks;
  const int thread = threadIdx.x, rank = blockIdx.x % kBlocks, warp = thread / 32, lane = thread % 32;
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int parts = kBlocks;
#else
  constexpr int parts = 1;
  if (rank > 0) return;
#endif
  const int n = static_cast<int>(p.valid_vocab);  // ids are int32
  const Partial mine = merge_lanes<32>(scan(p.logits + r * p.ld, n, rank * kThreads + thread, parts * kThreads));
  if (lane == 0) warps[warp] = mine;
  __syncthreads();
  Partial all = mine;
  if (warp == 0) all = merge_lanes<kWarps>(warps[lane % kWarps]);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  __shared__ Partial block;
  if (thread == 0) block = all;
  cluster.sync();
  if (rank == 0 && warp == 0) all = merge_lanes<kBlocks>(*cluster.map_shared_rank(&block, lane % kBlocks));
  cluster.sync();  // nobody's shared memory goes before it is read
#endif
  if (rank > 0 || thread > 0) return;
  p.ids[r] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(all.first));
  if (p.margin) p.margin[r] = margin(key_of(all.first), all.second);
}
}  // namespace

void cuda::run(const Params& p) {
  const dim3 grid(static_cast<unsigned>(p.rows * kBlocks));
  specpilot::cuda::launch_early("argmax", argmax_kernel, grid, kThreads, 0, p.stream, p);
}
}  // namespace specpilot::argmax
