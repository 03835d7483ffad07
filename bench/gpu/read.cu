// The fastest read of a buffer that we know how to write, for bench/gpu/read_ceiling.py: nothing is done with the bytes.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace {
constexpr int kThreads = 512, kUnroll = 4;
constexpr uint32_t kStageBytes = 8192, kStages = 12;

__device__ uint4 load(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// 16-byte loads; a block takes kThreads * kUnroll of them at a time.
__global__ void __launch_bounds__(kThreads) direct(const uint4* p, size_t count, uint32_t* sink) {
  constexpr size_t kChunk = kThreads * kUnroll;
  uint32_t seen = 0;
  for (size_t at = blockIdx.x * kChunk; at < count; at += gridDim.x * kChunk) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const size_t i = at + u * kThreads + threadIdx.x;
      v[u] = i < count ? load(p + i) : uint4{};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) seen |= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (seen == 0xdeadbeef) *sink = seen;  // the compiler cannot tell that this is rare
}

#if __CUDA_ARCH__ >= 900
__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
#endif

// Bulk copies into a ring in shared memory that nobody looks at: one thread a block keeps kStages of them in flight.
__global__ void bulk(const char* p, size_t bytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kStages];
  if (threadIdx.x != 0) return;
  for (uint32_t s = 0; s < kStages; ++s)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  uint32_t issued = 0;
  for (size_t at = size_t{blockIdx.x} * kStageBytes; at < bytes; at += size_t{gridDim.x} * kStageBytes, ++issued) {
    const uint32_t stage = issued % kStages, barrier = shared_address(&full[stage]);
    if (issued >= kStages) wait(barrier, (issued / kStages - 1) & 1);
    const uint32_t size = static_cast<uint32_t>(bytes - at < kStageBytes ? bytes - at : kStageBytes);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(ring + stage * kStageBytes)),
                 "l"(p + at), "r"(size), "r"(barrier)
                 : "memory");
  }
  for (uint32_t i = issued > kStages ? issued - kStages : 0; i < issued; ++i)
    wait(shared_address(&full[i % kStages]), (i / kStages) & 1);
#endif
}
}  // namespace

// Enqueues a read of `bytes` (a multiple of 16) from `data` (16-byte aligned) and gives a cudaError_t. kind 0: direct; 1: bulk,
// sm_90 or later. `sink`: 4 bytes that direct may write.
extern "C" int sp_read(const void* data, size_t bytes, void* sink, int kind, int blocks, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (kind == 0) {
    direct<<<blocks, kThreads, 0, s>>>(static_cast<const uint4*>(data), bytes / 16, static_cast<uint32_t*>(sink));
    return cudaGetLastError();
  }
  constexpr int kShared = kStageBytes * kStages;
  const cudaError_t error = cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  bulk<<<blocks, 32, kShared, s>>>(static_cast<const char*>(data), bytes);
  return cudaGetLastError();
}
