// linear:   y[r, n] = bf16( sum_k x[r, k] w[n, k]  (+ bias[n]) ),   with a residual:   y[r, n] = bf16( residual[r, n] + y[r,
// n] )
//
//   x         bf16 [R, K], unit column stride, any row stride        R = 0 … 1024
//   weight    bf16 or w12; on CUDA in the run layouts of formats/w12_cuda.h (data, and the list exc_pos), on the CPU in these:
//             bf16: data bf16 [bands, tiles, 16, 32]  (band of 16 rows, tile of 32 k, pair row, 16 columns x {even, odd})
//             w12:  data uint8 [bands, tiles, 768], base uint8 [bands], exc_begin int32 [bands + 1], exc_pos int32 [E],
//                   exc_val bf16 [E]
//             bands = ceil(N / 16), tiles = ceil(K / 32); rows past N and k past K are zero
//   bias      bf16 [N], optional;   residual  bf16 [R, N], any row stride, may be y itself
//   y         bf16 [R, N], unit column stride, any row stride
//
// Rounding: fp32 accumulation, bias added in fp32, rounded to bf16 once; the residual sum is a second rounding.
// Order: CPU "x86-pairs32" (core/mma.h); CUDA "cuda-mma16": one MMA chain from zero over ascending k a segment of w12_cuda::plan(N, K)
// (k steps [first_step(i), first_step(i + 1)) of 64), segments added in ascending order, in fp32. For every R, tier and thread count.
// w12 and bf16 give the same bits.
// Determinism: order_fixed.   Roofline: weight bytes (2 or 1.5 per weight) for R <= 16; 2 R N K flops above.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::linear {
enum class Format { kBf16, kW12 };

struct Weight {
  Format format;
  int64_t n, k, bands, tiles;  // on CUDA row groups and k steps
  const uint8_t* data;         // one of the run layouts
  const uint8_t* base;         // w12 only, as are the exceptions
  const uint32_t* exc_begin;
  const uint32_t* exc_pos;  // on CUDA the overflow list
  const bf16* exc_val;
};

struct Params {
  const bf16* x;
  int64_t rows, ldx;
  Weight w;
  const bf16* bias;      // nullptr: none
  const bf16* residual;  // nullptr: none
  int64_t ld_residual;
  bf16* y;
  int64_t ldy;
  void* stream;
};

// Checks the tensors of a weight against each other and against [n, k]; shared with embed.
Weight check_weight(const char* op, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
                    const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, int64_t k);

void run(const TensorView& x, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
         const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, const OptionalTensor& bias,
         const OptionalTensor& residual, const TensorView& y, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
void run(const Params&);
}  // namespace cuda
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
void amx(const Params&);
}  // namespace cpu
}  // namespace specpilot::linear
