// linear_q8:   y[r, n] = bf16( (sum_k qx[r, k] qw[n, k]) (sx[r] sw[n])  (+ bias[n]) ),   with a residual:   y = bf16( residual + y )
//
//   For drafters alone: what is lost here costs acceptance, never a token.
//
//   x         bf16 [R, K], unit column stride, any row stride       R = 0 … 1024, K <= 65536
//   qx, sx    made here, row by row: m = max_k |x[r, k]|;  qx = x (127 / m) to nearest even;  sx = m / 127
//             m under 2^-100: the row counts as zeros;  infinite or NaN: the whole row of y is NaN
//   data      uint8 [bands, groups, 16, 4]: 128 + qw, qw = -127 … 127, of a band of 16 rows of the weight and a group of 4 k;
//             bands = ceil(N / 16), groups = 16 ceil(K / 64); rows past N and k past K are 128;
//             on CUDA at a multiple of 16 bytes
//   scale     fp32 [N]: sw;   bias  bf16 [N], optional;   residual  bf16 [R, N], any row stride, may be y itself
//   y         bf16 [R, N], unit column stride, any row stride
//
//       group g:   col 0: k = 4g … 4g+3 | col 1: … | … | col 15     64 bytes: 16 VNNI lanes, or a row of an int8 tile
//
//   The bytes are unsigned because VPDPBUSD multiplies unsigned by signed bytes and broadcasts the signed operand from memory: that
//   is x. What the 128 adds to a sum is 128 sum_k qx[r, k], known before the weights come.
//
// Rounding: the sum is an integer, exact in any order; it becomes fp32, is multiplied by the fp32 product of the scales, bias
// added in fp32, rounded to bf16 once; the residual sum is a second rounding.
// On CUDA, one call at a time on a device.
// Determinism: bit_exact.   Roofline: K N bytes for few rows; 2 R N K operations above.
#pragma once
#include "core/bf16.h"
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::linear_q8 {
inline constexpr int64_t kBand = 16, kGroup = 4, kTileK = 64;

struct Params {
  const bf16* x;
  int64_t rows, k, ldx;
  const uint8_t* data;
  const float* scale;
  int64_t n;
  const bf16* bias;      // nullptr: none
  const bf16* residual;  // nullptr: none
  int64_t ld_residual;
  bf16* y;
  int64_t ldy;
  void* stream;

  SP_HD int64_t bands() const { return (n + kBand - 1) / kBand; }
  SP_HD int64_t padded_k() const { return (k + kTileK - 1) / kTileK * kTileK; }
};

void run(const TensorView& x, const TensorView& data, const TensorView& scale, const OptionalTensor& bias,
         const OptionalTensor& residual, const TensorView& y, std::string_view variant = {});
std::span<const Variant<Params>> variants();

// How the values of a row become integers: qx = x * factor, and back.
struct RowScale {
  float factor, scale;
};
SP_HD inline RowScale row_scale(bf16 largest) {  // of a row's magnitudes
  constexpr float kLeast = 0x1p-100f;
  const float m = to_f32(largest);
  const bool usable = largest < 0x7f80 && m >= kLeast;
  return {usable ? 127.0f / m : 0.0f, m / 127.0f};
}
SP_HD inline int8_t quantized(bf16 x, float factor) {
  return factor ? static_cast<int8_t>(std::nearbyint(to_f32(x) * factor)) : int8_t{0};
}
// What becomes of a sum of row r (scale sx), column n.
SP_HD inline void finish(const Params& p, int64_t r, int64_t n, int32_t sum, float sx) {
  float v = static_cast<float>(sum) * (sx * p.scale[n]);
  if (p.bias) v += to_f32(p.bias[n]);
  bf16 y = to_bf16(v);
  if (p.residual) y = to_bf16(to_f32(p.residual[r * p.ld_residual + n]) + to_f32(y));
  p.y[r * p.ldy + n] = y;
}

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512_vnni(const Params&);
void amx(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}  // namespace cuda
}  // namespace specpilot::linear_q8
