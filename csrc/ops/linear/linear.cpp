// The contract and the table of variants. No arithmetic here.
#include "ops/linear/linear.h"

#include "core/args.h"

namespace specpilot::linear {
namespace {
constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderCuda, Isa::kRef, true, nullptr, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_amx", kOrderX86, Isa::kAmx, false, nullptr, cpu::amx},
    {"cpu_avx512", kOrderX86, Isa::kAvx512, false, nullptr, cpu::avx512},
    {"cpu_avx2", kOrderX86, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderX86, Isa::kRef, false, nullptr, ref},
};

}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& x, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
         const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, const OptionalTensor& bias,
         const OptionalTensor& residual, const TensorView& y, std::string_view variant) {
  const Args args("linear", x);
  SP_CHECK(x.ndim() == 2, "linear: x is ", describe(x), "; expected bf16 [rows, columns]");
  const int64_t rows = x.size(0), k = x.size(1);
  SP_CHECK(rows <= 1024, "linear: ", rows, " rows, at most 1024 in one call");
  args.rows("x", x, rows, k);
  args.output_rows("y", y, rows, n);
  if (residual) args.rows("residual", *residual, rows, n);
  if (bias) args.packed("bias", *bias, Type::kBf16, {n});
  const Weight w = check_weight("linear", data, base, exc_begin, exc_pos, exc_val, n, k);
  args.same_device("data", data);
  if (rows == 0 || n == 0) return;
  const Params p{x.data<const bf16>(),
                 rows,
                 x.stride(0),
                 w,
                 bias ? bias->data<const bf16>() : nullptr,
                 residual ? residual->data<const bf16>() : nullptr,
                 residual ? residual->stride(0) : 0,
                 y.data<bf16>(),
                 y.stride(0),
                 x.stream};
  dispatch("linear", variants(), p, x.on_cuda(), variant);
}
}  // namespace specpilot::linear
