// argmax:   ids[r] = the lowest id of the largest logits[r, 0 … valid_vocab)
//           margin[r] = that logit minus the largest of the others: how sure the choice is
//
//   logits  bf16 [R, V], unit column stride, any row stride;   ids  int32 [R];   margin  fp32 [R], optional
//   1 <= valid_vocab <= V
//
// NaN counts as smaller than every number (a row of NaN gives id 0); -0 equals +0. A tie has margin 0, also one of infinities;
// where there is no second number the margin is infinite. Subnormals differ in order, but as 0 in the margin.
// Determinism: bit_exact.   Roofline: 2 R V bytes.
#pragma once
#include <limits>

#include "core/bf16.h"
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::argmax {
struct Params {
  const bf16* logits;
  int64_t rows, valid_vocab, ld;
  int32_t* ids;
  float* margin;  // or nullptr
  void* stream;
};

void run(const TensorView& logits, int64_t valid_vocab, const TensorView& ids, const OptionalTensor& margin,
         std::string_view variant = {});
std::span<const Variant<Params>> variants();

// Keys sort as the numbers do: both zeros are 0, NaN is below all.
constexpr int32_t kNanKey = -0x8000;
SP_HD inline int32_t key(bf16 bits) {
  const int magnitude = bits & 0x7fff;
  if (magnitude > 0x7f80) return kNanKey;
  return bits & 0x8000 ? -magnitude : magnitude;
}
// The margin of the two largest keys. Subnormals are flushed by hand: callers differ in their modes.
SP_HD inline float margin(int32_t first, int32_t second) {
  if (second == kNanKey) return std::numeric_limits<float>::infinity();
  if (first == second) return 0.0f;
  const auto value = [](int32_t k) {
    if (k > -0x80 && k < 0x80) return 0.0f;
    return to_f32(static_cast<bf16>(k < 0 ? 0x8000 - k : k));
  };
  const float difference = value(first) - value(second);
  return difference < std::numeric_limits<float>::min() ? 0.0f : difference;
}

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::argmax
