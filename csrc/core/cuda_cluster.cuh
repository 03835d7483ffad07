// Blocks that read each other's shared memory (clusters of sm_90 and later; before, a block is alone).
#pragma once
#include "core/cuda_async.cuh"

namespace specpilot::cuda {
// All threads of all blocks are here, and see what was written before.
__device__ inline void sync_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// What block `rank` of the cluster has where this one has *here.
__device__ inline float4 read_of_block(const float4* here, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  float4 x;
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(shared_address(here)), "r"(rank)
      : "memory");
  return x;
#else
  return *here;
#endif
}
}  // namespace specpilot::cuda
