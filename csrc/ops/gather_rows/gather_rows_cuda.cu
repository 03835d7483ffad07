// CUDA twin: out[i] = x[index[i]], zeros for -1, NaN for an index without a row. A block copies kThreads * 8 columns of one
// row, 16 bytes a thread where both rows are aligned to that.   Roofline: 4 n C bytes.
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "ops/gather_rows/gather_rows.h"

namespace specpilot::gather_rows {
namespace {
constexpr int kThreads = 256, kWide = 8;
constexpr uint32_t kNaN = 0x7fc07fc0u;  // two bf16

__global__ void gather_rows_kernel(const Params p) {
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int64_t i = blockIdx.x, from = p.index ? p.index[i] : i;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kThreads * kWide;
  const bf16* x = from >= 0 && from < p.rows ? p.x + from * p.ldx : nullptr;
  bf16* out = p.out + i * p.ld_out;
  const uint32_t fill = from == -1 ? 0 : kNaN;

  const bool aligned = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(out)) % sizeof(uint4) == 0;
  const int64_t mine = begin + threadIdx.x * kWide;
  if (aligned && mine + kWide <= p.cols) {
    *reinterpret_cast<uint4*>(out + mine) =
        x ? *reinterpret_cast<const uint4*>(x + mine) : make_uint4(fill, fill, fill, fill);
    return;
  }
  // Of an aligned row only the thread at its end comes here; of another all do, side by side.
  const int64_t first = aligned ? mine : begin + threadIdx.x;
  const int step = aligned ? 1 : kThreads;
  for (int j = 0; j < kWide; ++j)
    if (const int64_t c = first + j * step; c < p.cols) out[c] = x ? x[c] : static_cast<bf16>(fill);
}
}  // namespace

void cuda::run(const Params& p) {
  constexpr int64_t kBlock = kThreads * kWide;
  const dim3 grid(static_cast<unsigned>(p.count), static_cast<unsigned>((p.cols + kBlock - 1) / kBlock));
  specpilot::cuda::launch_early("gather_rows", gather_rows_kernel, grid, kThreads, 0, p.stream, p);
}
}  // namespace specpilot::gather_rows
