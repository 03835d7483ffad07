// The tensor cores' asynchronous instruction of sm_90a: the bits of core/cuda_mma.cuh's, which tests hold them to, without the loads
// of b into registers and at twice the speed.
#pragma once
#include "core/cuda_async.cuh"

namespace specpilot::cuda {
// Compiled for a chip that has it (sm_90a alone).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kWgmma = true;
#else
inline constexpr bool kWgmma = false;
#endif

// Four neighbouring warps, all of whose lanes call each of these together.
// Registers written so far may be read by the instructions that follow.
__device__ inline void wgmma_begin() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Those since the last end are a group.
__device__ inline void wgmma_end() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// All but the `left` newest groups are done: their registers and shared memory may change.
template <int left>
__device__ inline void wgmma_wait() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
#endif
}

// Shared memory at a multiple of 1024 as operand b: rows of 128 bytes (64 k), a token each, whose 16-byte chunk c lies at c ^ row % 8.
__device__ inline uint64_t wgmma_rows(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32, kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | (shared_address & 0x3ffff) >> 4;
}
// The same rows from their k = 16 kt on.
__device__ inline uint64_t wgmma_from_k(uint64_t rows, int kt) { return rows + 2 * kt; }

// c[16 a warp x 8 n] += a[16 x 16] b[16 x 8 n], n = 1, 2, 4 or 8; c and a as mma's, c by 8 tokens.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SP_WGMMA(shape, c_list, a_list, b_place)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" c_list "}, {" a_list "}, " b_place \
               ", 1, 1, 1, 0;"
#define SP_C(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define SP_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
__device__ inline void wgmma(float (&c)[1][4], const uint32_t (&a)[4], uint64_t b) {
  SP_WGMMA("m64n8k16", "%0, %1, %2, %3", "%4, %5, %6, %7", "%8") : SP_C(0) : SP_A);
}
__device__ inline void wgmma(float (&c)[2][4], const uint32_t (&a)[4], uint64_t b) {
  SP_WGMMA("m64n16k16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12") : SP_C(0), SP_C(1) : SP_A);
}
__device__ inline void wgmma(float (&c)[4][4], const uint32_t (&a)[4], uint64_t b) {
  SP_WGMMA("m64n32k16", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16, %17, %18, %19", "%20")
      : SP_C(0), SP_C(1), SP_C(2), SP_C(3)
      : SP_A);
}
__device__ inline void wgmma(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  SP_WGMMA("m64n64k16",
           "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
           "%24, %25, %26, %27, %28, %29, %30, %31",
           "%32, %33, %34, %35", "%36")
      : SP_C(0), SP_C(1), SP_C(2), SP_C(3), SP_C(4), SP_C(5), SP_C(6), SP_C(7)
      : SP_A);
}
#undef SP_WGMMA
#undef SP_C
#undef SP_A
#else
template <int n>
__device__ void wgmma(float (&)[n][4], const uint32_t (&)[4], uint64_t) {}
#endif
}  // namespace specpilot::cuda
