// The contract and the table of variants. No arithmetic here.
#include "ops/argmax/argmax.h"

#include "core/args.h"

namespace specpilot::argmax {
namespace {
constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderNone, Isa::kRef, true, nullptr, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_avx512", kOrderNone, Isa::kAvx512, false, nullptr, cpu::avx512},
    {"cpu_avx2", kOrderNone, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

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
