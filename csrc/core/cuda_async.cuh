// Copies into shared memory that complete on an mbarrier: bulk copies from sm_90 on, cp.async before; and dependent launch.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace specpilot::cuda {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kBulk = true;
#else
inline constexpr bool kBulk = false;
#endif

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

inline constexpr int kStagers = 33;  // arrivals that Barrier::staged makes

class Barrier {
 public:
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word_)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(shared_address(&word_)) : "memory");
  }
  // Without a branch, which would come between a warp and the products it has under way.
  __device__ void arrive(bool really) {
    asm volatile("{ .reg .b64 s;\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(
                     shared_address(&word_)),
                 "r"(static_cast<uint32_t>(really))
                 : "memory");
  }
  // The phase of this parity is over.
  __device__ void wait(uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again; }" ::"r"(shared_address(&word_)),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred p;\n"
        "again: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again; }" ::"r"(shared_address(&word_)),
        "r"(parity)
        : "memory");
#endif
  }
  // One lane announces the bytes of the bulk copies that it or others of its warp are about to start.
  __device__ void expect(uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word_)), "r"(bytes)
                 : "memory");
#endif
  }
  // A whole warp, after its copies and its own stores: completes the phase when the copies do.
  __device__ void staged(int lane) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&word_)) : "memory");
    __syncwarp();
    if (lane == 0) arrive();
  }
  __device__ void* address() { return &word_; }

 private:
  uint64_t word_;
};

// bytes: a multiple of 16, as the addresses are. One lane's bulk copy (expected on the barrier).
__device__ inline void bulk_copy(void* to, const void* from, uint32_t bytes, Barrier& full) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(full.address()))
      : "memory");
#endif
}
__device__ inline void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// cp.async counted by groups: this thread's copies since the last commit are one.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the `left` newest groups have arrived.
template <int left>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
__device__ inline void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// To the L2, a line of 128 bytes.
__device__ inline void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Ordinary accesses to shared memory before it come before bulk copies after it.
__device__ inline void fence_bulk() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// The kernel that follows in the stream may start; what it may touch before `wait_for_previous` is memory nobody writes.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Everything that earlier kernels of the stream wrote is there.
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
}  // namespace specpilot::cuda
