// CUDA twin: y[r, i] = bf16(bf16(silu(g)) u); the scalar functions of core/bf16.h, so the bits are the CPU's.
// Roofline: 6 R width bytes.
#include "core/bf16.h"
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/swiglu/swiglu.h"

namespace specpilot::swiglu {
namespace {
constexpr int kThreads = 256;

__global__ void swiglu_kernel(const Params p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, r = blockIdx.y;
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  if (i >= p.width) return;
  const bf16* g = p.gate_up + r * p.ld_in;
  p.y[r * p.ld_out + i] = to_bf16(round_bf16(silu_f32(to_f32(g[i]))) * to_f32(g[p.width + i]));
}
}  // namespace

void cuda::run(const Params& p) {
  const dim3 grid(static_cast<unsigned>((p.width + kThreads - 1) / kThreads), static_cast<unsigned>(p.rows));
  specpilot::cuda::launch_early("swiglu", swiglu_kernel, grid, kThreads, 0, p.stream, p);
}
}  // namespace specpilot::swiglu
