// CUDA twin. Every row's follower, the lowest child with the chosen token, is found for all rows at once; the walk then only
// follows indices through shared memory.
//
//   block b    next[i] = min { j : parents[j] = i, tokens[j] = choice[i] }     one thread a child j, atomic minimum
//              walk      next[0 … length) = the path                           one thread, in place
//              write     path, emitted                                         one thread an entry
//
// Roofline: 12 R bytes; in truth the latency of a launch and of three reads that wait for each other.
#include <climits>

#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/accept/accept.h"

namespace specpilot::accept {
namespace {
constexpr int kThreads = 128, kNone = INT_MAX;
static_assert(cuda::kMaxRows * sizeof(int32_t) + sizeof(int64_t) <= 48 << 10);  // `next` and what stands beside it

__global__ void __launch_bounds__(kThreads) accept_kernel(const Params p) {
  extern __shared__ int32_t next[];
  __shared__ int64_t shared_length;
  const int64_t b = blockIdx.x;
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int32_t rows = static_cast<int32_t>(p.rows), begin = max(p.cu_rows[b], 0), end = min(p.cu_rows[b + 1], rows);
  const int32_t n = begin < end ? end - begin : 0;
  for (int32_t i = threadIdx.x; i < n; i += kThreads) next[i] = kNone;
  __syncthreads();
  for (int32_t j = 1 + threadIdx.x; j < n; j += kThreads) {
    const int32_t parent = p.parents[begin + j];
    if (parent >= 0 && parent < j && p.tokens[begin + j] == p.choice[begin + parent]) atomicMin(&next[parent], j);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int64_t length = 0;
    for (int32_t cur = n > 0 ? 0 : kNone; cur != kNone && length < p.max_path;) {
      const int32_t follower = next[cur];
      next[length++] = cur;  // rows rise along a path, so this entry is cur's or an earlier one: read already
      cur = follower;
    }
    shared_length = length;
    p.length[b] = static_cast<int32_t>(length);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.max_path; i += kThreads) {
    const int32_t row = i < shared_length ? begin + next[i] : -1;
    p.path[b * p.max_path + i] = row;
    p.emitted[b * p.max_path + i] = row < 0 ? -1 : p.choice[row];
  }
}
}  // namespace

void cuda::run(const Params& p) {
  const dim3 grid(static_cast<unsigned>(p.requests));
  specpilot::cuda::launch_early("accept", accept_kernel, grid, kThreads, p.rows * sizeof(int32_t), p.stream, p);
}
}  // namespace specpilot::accept
