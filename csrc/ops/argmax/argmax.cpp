// The contract, the table of variants, and the margin of two keys, which all variants share.
#include "ops/argmax/argmax.h"

#include <limits>

#include "core/args.h"
#include "core/bf16.h"

namespace specpilot::argmax {
namespace {
constexpr Variant<Params> kVariants[] = {
#if defined(__x86_64__)
    {"cpu_avx512", kOrderNone, Isa::kAvx512, false, nullptr, cpu::avx512},
    {"cpu_avx2", kOrderNone, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

float margin(int32_t first, int32_t second) {
  const FlushToZero everywhere;  // some callers run outside the pool
  if (second == kNanKey) return std::numeric_limits<float>::infinity();
  const auto value = [](int32_t k) { return to_f32(static_cast<bf16>(k < 0 ? 0x8000 - k : k)); };
  return first == second ? 0.0f : value(first) - value(second);
}

void run(const TensorView& logits, int64_t valid_vocab, const TensorView& ids, const OptionalTensor& margin,
         std::string_view variant) {
  const Args args("argmax", logits);
  args.rows("logits", logits, kAnySize, kAnySize);
  args.packed("ids", ids, Type::kInt32, {logits.size(0)});
  if (margin) args.packed("margin", *margin, Type::kFloat32, {logits.size(0)});
  SP_CHECK(valid_vocab >= 1 && valid_vocab <= logits.size(1), "argmax: valid_vocab is ", valid_vocab, "; expected 1 to ",
           logits.size(1));
  dispatch("argmax", variants(),
           {logits.data<const bf16>(), logits.size(0), valid_vocab, logits.stride(0), ids.data<int32_t>(),
            margin ? margin->data<float>() : nullptr, logits.stream},
           logits.on_cuda(), variant);
}
}  // namespace specpilot::argmax
