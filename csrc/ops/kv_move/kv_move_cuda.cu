// CUDA twin. A block owns `dims` dims of one (layer, head) of K or of V, for all slots: it reads what moves into shared
// memory, waits for its last thread, and writes. No element belongs to two blocks, so overlap in any direction is harmless.
//
//   grid: (layer, head) x slices of dims x {K, V}; a slice is as wide (16 to 2 dims) as `count` entries of it fit into 48 KB
//   K: neighbouring threads take the two dims of a pair, then the next entry (16 neighbouring slots lie side by side)
//   V: neighbouring threads take the dims of a slice, then the next entry
//
// Roofline: 8 n layers Hkv Dp bytes.
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/kv_move/kv_move.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::kv_move {
namespace {
constexpr int kThreads = 256, kMaxDims = 16;
constexpr int64_t kBlock = rope_kv::kBlockSlots;

// Calls act(e, d, from, to) for each of the block's elements e that this thread owns and whose entry moves; d is its dim.
template <class Act>
__device__ void each_moved(const Params& p, int dims, Act act) {
  const int count = static_cast<int>(p.count);
  const int64_t slots = p.blocks * kBlock;
  for (int e = static_cast<int>(threadIdx.x); e < count * dims; e += kThreads) {
    const bool k = blockIdx.z == 0;
    const int i = k ? e / 2 % count : e / dims, d = k ? e / 2 / count * 2 + e % 2 : e % dims;
    const int64_t from = p.from[i], to = p.to[i];
    if (from >= 0 && to >= 0 && from < slots && to < slots && from != to) act(e, blockIdx.y * dims + d, from, to);
  }
}

// Dim d of a slot in the block's plane: the layout of rope_kv.h.
__device__ bf16* element(const Params& p, int64_t slot, int64_t d) {
  const int64_t layer = blockIdx.x / p.kv_heads, head = blockIdx.x % p.kv_heads, t = slot % kBlock;
  const int64_t base = ((layer * p.blocks + slot / kBlock) * p.kv_heads + head) * kBlock * p.dim_padded;
  if (blockIdx.z == 0) return p.k_cache + base + (t / 16 * (p.dim_padded / 2) + d / 2) * 32 + t % 16 * 2 + d % 2;
  return p.v_cache + base + (t / 2 * p.dim_padded + d) * 2 + t % 2;
}

__global__ void kv_move_kernel(const Params p, int dims) {
  extern __shared__ bf16 held[];
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  each_moved(p, dims, [&](int e, int64_t d, int64_t from, int64_t) { held[e] = *element(p, from, d); });
  __syncthreads();
  each_moved(p, dims, [&](int e, int64_t d, int64_t, int64_t to) { *element(p, to, d) = held[e]; });
}
}  // namespace

void cuda::run(const Params& p) {
  if (p.count == 0) return;
  const auto bytes = [&](int dims) { return static_cast<size_t>(p.count * dims) * sizeof(bf16); };
  int dims = kMaxDims;
  while (dims > 2 && bytes(dims) > 48 << 10) dims /= 2;
  if (bytes(dims) > 48 << 10) specpilot::cuda::allow_shared("kv_move", kv_move_kernel, bytes(dims));
  const dim3 grid(static_cast<unsigned>(p.layers * p.kv_heads), static_cast<unsigned>(p.dim_padded / dims), 2);
  specpilot::cuda::launch_early("kv_move", kv_move_kernel, grid, kThreads, bytes(dims), p.stream, p, dims);
}
}  // namespace specpilot::kv_move
