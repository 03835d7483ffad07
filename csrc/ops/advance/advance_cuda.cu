// CUDA twin: a block a request.
//
//   cut     first stop token among the emitted ones     a thread a token, atomic minimum
//   write   row sets and the entry of the ring          a thread a row, a thread a word
//   state   when everybody has read it                  one thread
//
// Values are made good where the contract says so: no index leaves its tensor.
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/advance/advance.h"

namespace specpilot::advance {
namespace {
constexpr int kThreads = 128;

__device__ int32_t slot_at(const Params& p, int64_t request, int64_t position) {
  return position >= 0 && position < p.ld_table ? p.slot_table[request * p.ld_table + position] : -1;
}

// `whole`: every row sees all of them.
__device__ void place(const Params& p, const RowSet& set, int64_t request, int64_t start, bool done, bool whole) {
  if (!set.data) return;
  for (int64_t i = threadIdx.x; i < set.width; i += kThreads) {
    int32_t* row = set.data + request * set.width + i;
    row[kPositions * set.plane] = static_cast<int32_t>(start + i);
    row[kSlots * set.plane] = done ? -1 : slot_at(p, request, start + i);
    row[kRequest * set.plane] = static_cast<int32_t>(request);
    row[kPrefix * set.plane] = static_cast<int32_t>(min(start + (whole ? set.width : i + 1), p.ld_table));
  }
}

__device__ void place_context(const Params& p, int64_t request, int64_t start, int64_t count) {
  if (!p.context.data) return;
  for (int64_t i = threadIdx.x; i < p.context.width; i += kThreads) {
    int32_t* row = p.context.data + request * p.context.width + i;
    row[kPositions * p.context.plane] = static_cast<int32_t>(start + i);
    row[kSlots * p.context.plane] = i < count ? slot_at(p, request, start + i) : -1;
    row[kRequest * p.context.plane] = static_cast<int32_t>(request);
  }
}

__device__ void put_anchor(const RowSet& set, int64_t request, int32_t token) {
  if (set.data && set.width > 0) set.data[kIds * set.plane + request * set.width] = token;
}

__global__ void __launch_bounds__(kThreads) advance_kernel(const Params p) {
  __shared__ int32_t first_stop;
  const int64_t b = blockIdx.x;
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  int32_t* state = p.state + b * kStateSize;
  const int32_t* emitted = p.emitted + b * p.max_path;
  const int32_t start = state[kStart], left = max(state[kLeft], 0), step = max(state[kStep], 0);
  const bool was_done = state[kDone] != 0;
  const int32_t length = min(max(p.length[b], 0), static_cast<int32_t>(p.max_path));
  const int32_t most = was_done ? 0 : min(length, left);
  if (threadIdx.x == 0) first_stop = most;
  __syncthreads();  // also: everybody has read the state
  for (int32_t i = threadIdx.x; i < most; i += kThreads)
    for (int64_t s = 0; s < p.stops; ++s)
      if (emitted[i] == p.stop_ids[s]) atomicMin(&first_stop, i);
  __syncthreads();
  const bool stopped = first_stop < most;
  const int32_t n = first_stop + (stopped ? 1 : 0);
  const bool done = was_done || stopped || n == left;

  if (threadIdx.x == 0) {
    state[kStart] = start + n;
    state[kLeft] = left - n;
    state[kDone] = done ? 1 : 0;
    state[kStep] = step + 1;
    if (n > 0) {
      put_anchor(p.chain, b, emitted[n - 1]);
      put_anchor(p.block, b, emitted[n - 1]);
      put_anchor(p.causal, b, emitted[n - 1]);
    }
  }
  place_context(p, b, start, done ? 0 : n);
  place(p, p.chain, b, int64_t{start} + n, done, false);
  place(p, p.block, b, int64_t{start} + n, done, true);
  place(p, p.causal, b, int64_t{start} + n, done, false);

  int32_t* entry = p.ring + (step % p.entries * p.requests + b) * p.entry_size();
  for (int64_t i = threadIdx.x; i < p.entry_size(); i += kThreads) {
    const int64_t token = i - 2, margin = token - p.max_path;
    if (i == 0)
      entry[i] = n;
    else if (i == 1)
      entry[i] = done ? 1 : 0;
    else if (margin < 0)
      entry[i] = token < n ? emitted[token] : -1;
    else
      entry[i] = p.margins ? __float_as_int(p.margins[b * (p.max_path - 1) + margin]) : 0;
  }
}
}  // namespace

void cuda::run(const Params& p) {
  specpilot::cuda::launch_early("advance", advance_kernel, dim3(static_cast<unsigned>(p.requests)), kThreads, 0, p.stream,
                                p);
}
}  // namespace specpilot::advance
