// swiglu:   y[r, i] = bf16( bf16( silu(g[r, i]) ) * u[r, i] ),   silu(g) = g / (1 + exp(-g)) in fp32
//
//   gate_up  bf16 [R, 2 I], unit column stride: g in columns [0, I), u in [I, 2 I)
//   y        bf16 [R, I], unit column stride
//
// exp is exp_f32 of core/bf16.h in every variant. Determinism: order_fixed (elementwise).   Roofline: 6 R I bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::swiglu {
struct Params {
  const bf16* gate_up;
  bf16* y;
  int64_t rows, width, ld_in, ld_out;
  void* stream;
};

void run(const TensorView& gate_up, const TensorView& y, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::swiglu
