// The sum of squares of rmsnorm and of rope_kv's head norms, in the CPU's order (fold16 in core/bf16.h), by one warp:
//
//   values   0 1 2 … 15 | 16 17 … 31 | 32 …      lane c: fma over c, 16 + c, 32 + c, …; the warp's upper half repeats the lower
//   fold     lane c += lane c ^ 8, then ^ 4, ^ 2, ^ 1; every lane ends with the sum
#pragma once
#include <cmath>

#include "core/bf16.h"

namespace specpilot::rmsnorm {
// 1 / sqrt(sum of squares / denom + eps), in all lanes; `x` lies in shared memory.
template <int kUnroll>
__device__ float inverse_rms(const uint16_t* x, int width, int lane, const float& denom, const float& eps) {
  float sum = 0.0f;
#pragma unroll kUnroll
  for (int i = lane % 16; i < width; i += 16) {
    const float v = to_f32(x[i]);
    sum = std::fma(v, v, sum);
  }
  for (int half = 8; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  return 1.0f / std::sqrt(sum / denom + eps);
}
}  // namespace specpilot::rmsnorm
