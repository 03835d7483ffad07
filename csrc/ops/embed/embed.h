// embed:   out[r] = table[ids[r]]
//
//   ids     int32 [R], 0 <= id < N (checked on the CPU; on CUDA another gives a row of NaN);   out  bf16 [R, K], any row stride
//   table   a weight [N, K] in a run layout of linear.h (a tied head and the embedding are one copy), or w12 / bf16 alike
//
// Determinism: bit_exact.   Roofline: 2 R K bytes written, R K x 2 (or 1.5, gathered) read.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"
#include "ops/linear/linear.h"

namespace specpilot::embed {
struct Params {
  const int32_t* ids;
  int64_t rows;
  linear::Weight table;
  bf16* out;
  int64_t ld_out;
  void* stream;
};

void run(const TensorView& ids, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
         const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, const TensorView& out,
         std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
void run(const Params&);
}  // namespace cuda
}  // namespace specpilot::embed
