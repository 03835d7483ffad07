// The contract and the table of variants. No arithmetic here.
#include "ops/rmsnorm/rmsnorm.h"

#include "core/args.h"

namespace specpilot::rmsnorm {
namespace {
constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderX86, Isa::kRef, true, nullptr, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_avx512", kOrderX86, Isa::kAvx512, false, nullptr, cpu::avx512},
    {"cpu_avx2", kOrderX86, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderX86, Isa::kRef, false, nullptr, ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& x, const TensorView& weight, double eps, double denom, const TensorView& y,
         std::string_view variant) {
  const Args args("rmsnorm", x);
  args.rows("x", x, kAnySize, kAnySize);
  const int64_t rows = x.size(0), width = x.size(1);
  args.packed("weight", weight, Type::kBf16, {width});
  args.output_rows("y", y, rows, width);
  SP_CHECK(denom > 0, "rmsnorm: denom is ", denom, "; expected > 0");
  SP_CHECK(eps >= 0, "rmsnorm: eps is ", eps, "; expected >= 0");
  dispatch("rmsnorm", variants(),
           {x.data<const bf16>(), weight.data<const bf16>(), y.data<bf16>(), rows, width, x.stride(0), y.stride(0),
            static_cast<float>(denom), static_cast<float>(eps), x.stream},
           x.on_cuda(), variant);
}
}  // namespace specpilot::rmsnorm
