// argmax:   ids[r] = the lowest id of the largest logits[r, 0 … valid_vocab)
//
//   logits  bf16 [R, V], unit column stride, any row stride;   ids  int32 [R];   1 <= valid_vocab <= V
//
// NaN counts as smaller than every number (a row of NaN gives 0); -0 equals +0.
// Determinism: bit_exact.   Roofline: 2 R V bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::argmax {
struct Params {
  const bf16* logits;
  int64_t rows, valid_vocab, ld;
  int32_t* ids;
  void* stream;
};

void run(const TensorView& logits, int64_t valid_vocab, const TensorView& ids, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
}  // namespace cpu
}  // namespace specpilot::argmax
