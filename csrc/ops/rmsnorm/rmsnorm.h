// rmsnorm:   y[r, i] = bf16( bf16( x[r, i] / sqrt( sum_j x[r, j]^2 / denom + eps ) ) * weight[i] )
//
//   x, y     bf16 [R, H], unit column stride, any row stride; y may be x
//   weight   bf16 [H]
//   denom    usually H; an argument because a model embedded in a larger one divides by its live width
//
// Order: the sum of squares is 16 strided fp32 fma partials (lane i % 16, ascending i) folded by fold16 (core/bf16.h);
// 1/sqrt by IEEE sqrt and divide: mean = sum / denom, inv = 1 / sqrt(mean + eps), x * inv.
// Of a NaN, neither sign nor payload is defined.
// Determinism: order_fixed.   Roofline: 4 R H bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::rmsnorm {
struct Params {
  const bf16* x;
  const bf16* weight;
  bf16* y;
  int64_t rows, width, ldx, ldy;
  float denom, eps;
  void* stream;
};

void run(const TensorView& x, const TensorView& weight, double eps, double denom, const TensorView& y,
         std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::rmsnorm
