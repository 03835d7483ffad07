// CUDA twin: y[r, i] = bf16(bf16(x[r, i] inv) weight[i]), inv = 1 / sqrt(sum_j x[r, j]^2 / denom + eps).
//
// A block takes a row. All threads bring it to shared memory (which is what lets y be x), one warp runs the 16 chains of the
// order (inverse_rms.cuh), all threads write. The weight comes from memory before the previous kernel has ended, and to the threads
// while the chains run.
//
// Roofline: 4 R H bytes; below some hundred rows the chain of H / 16 dependent fmas (0.6 us for H = 4096) decides.
#include "core/bf16.h"
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/rmsnorm/inverse_rms.cuh"
#include "ops/rmsnorm/rmsnorm.h"

namespace specpilot::rmsnorm {
namespace {
constexpr int kMaxThreads = 512, kWide = 8;  // kWide bf16 are 16 bytes

__device__ bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

__device__ bf16 scaled(bf16 x, bf16 weight, float inv) { return to_bf16(round_bf16(to_f32(x) * inv) * to_f32(weight)); }

__device__ uint32_t scaled2(uint32_t x, uint32_t weight, float inv) {
  const uint32_t low = scaled(static_cast<bf16>(x), static_cast<bf16>(weight), inv);
  return low | uint32_t{scaled(static_cast<bf16>(x >> 16), static_cast<bf16>(weight >> 16), inv)} << 16;
}

__global__ void rmsnorm_kernel(const Params p) {
  extern __shared__ uint4 staged[];
  __shared__ float shared_inv;
  bf16* row = reinterpret_cast<bf16*>(staged);
  const bf16* x = p.x + blockIdx.x * p.ldx;
  bf16* y = p.y + blockIdx.x * p.ldy;
  const int width = static_cast<int>(p.width), thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);

  // 64 bf16 a line of 128 bytes.
  for (int i = thread * 64; i < width; i += threads * 64) specpilot::cuda::prefetch(p.weight + i);
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int loads = aligned16(x) ? width / kWide : 0;
  for (int i = thread; i < loads; i += threads) staged[i] = reinterpret_cast<const uint4*>(x)[i];
  for (int i = loads * kWide + thread; i < width; i += threads) row[i] = x[i];
  const int stores = aligned16(y) && aligned16(p.weight) ? width / kWide : 0;
  const auto* weights = reinterpret_cast<const uint4*>(p.weight);
  const uint4 first = thread < stores ? weights[thread] : make_uint4(0, 0, 0, 0);
  __syncthreads();

  if (thread < 32) {
    const float inv = inverse_rms<32>(row, width, thread, p.denom, p.eps);
    if (thread == 0) shared_inv = inv;
  }
  __syncthreads();

  const float inv = shared_inv;
  for (int i = thread; i < stores; i += threads) {
    const uint4 a = staged[i], w = i == thread ? first : weights[i];
    reinterpret_cast<uint4*>(y)[i] =
        make_uint4(scaled2(a.x, w.x, inv), scaled2(a.y, w.y, inv), scaled2(a.z, w.z, inv), scaled2(a.w, w.w, inv));
  }
  for (int i = stores * kWide + thread; i < width; i += threads) y[i] = scaled(row[i], p.weight[i], inv);
}
}  // namespace

void cuda::run(const Params& p) {
  const int64_t vectors = (p.width + kWide - 1) / kWide;
  const size_t bytes = vectors * sizeof(uint4);
  if (bytes + sizeof(float) > 48 << 10) specpilot::cuda::allow_shared("rmsnorm", rmsnorm_kernel, bytes);
  const int threads = vectors < 32 ? 32 : vectors < kMaxThreads ? static_cast<int>((vectors + 31) / 32 * 32) : kMaxThreads;
  specpilot::cuda::launch_early("rmsnorm", rmsnorm_kernel, static_cast<unsigned>(p.rows), threads, bytes, p.stream, p);
}
}  // namespace specpilot::rmsnorm
