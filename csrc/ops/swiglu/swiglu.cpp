// The contract and the table of variants. No arithmetic here.
#include "ops/swiglu/swiglu.h"

#include "core/args.h"

namespace specpilot::swiglu {
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

void run(const TensorView& gate_up, const TensorView& y, std::string_view variant) {
  const Args args("swiglu", gate_up);
  args.output_rows("y", y, kAnySize, kAnySize);
  const int64_t rows = y.size(0), width = y.size(1);
  args.rows("gate_up", gate_up, rows, 2 * width);
  dispatch("swiglu", variants(),
           {gate_up.data<const bf16>(), y.data<bf16>(), rows, width, gate_up.stride(0), y.stride(0), gate_up.stream},
           gate_up.on_cuda(), variant);
}
}  // namespace specpilot::swiglu
