// gather_rows:   out[i] = x[index[i]]    (without an index: out[i] = x[i])
//
//   x  bf16 [R, C], out  bf16 [n, C]: unit column stride, any row stride (a slice of a wider buffer is a fine target)
//   index  int32 [n], optional; -1 writes zeros. On CUDA, which checks no values, one out of range writes NaN
//
// Carries tap hidden states to the drafter and picks the rows whose logits are wanted. Determinism: bit_exact.
// Roofline: 4 n C bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::gather_rows {
struct Params {
  const bf16* x;
  int64_t rows, cols, ldx;
  const int32_t* index;  // nullptr: identity
  int64_t count;
  bf16* out;
  int64_t ld_out;
  void* stream;
};

void run(const TensorView& x, const OptionalTensor& index, const TensorView& out, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::gather_rows
