// The contract and the table of variants. No arithmetic here.
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
constexpr Variant<Params> kVariants[] = {
#if defined(__x86_64__)
    {"cpu_amx", kOrderX86, Isa::kAmx, false, nullptr, cpu::amx},
    {"cpu_avx512", kOrderX86, Isa::kAvx512, false, nullptr, cpu::avx512},
    {"cpu_avx2", kOrderX86, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderX86, Isa::kRef, false, nullptr, ref},
};

void check_rows(const char* name, const TensorView& t, int64_t rows, int64_t cols) {
  SP_CHECK(t.on_cpu() && t.is_bf16() && t.ndim() == 2, "linear: ", name, " must be a 2-D bf16 CPU tensor");
  SP_CHECK(t.size(0) == rows && t.size(1) == cols, "linear: ", name, " is [", t.size(0), ", ", t.size(1), "], expected [",
           rows, ", ", cols, "]");
  SP_CHECK(t.rows_contiguous(1), "linear: ", name, " must have unit column stride");
}
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& x, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
         const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, const OptionalTensor& bias,
         const OptionalTensor& residual, const TensorView& y, std::string_view variant) {
  SP_CHECK(x.ndim() == 2, "linear: x must be a 2-D bf16 CPU tensor");
  const int64_t rows = x.size(0), k = x.size(1);
  SP_CHECK(rows <= 1024, "linear: ", rows, " rows, at most 1024 in one call");
  check_rows("x", x, rows, k);
  check_rows("y", y, rows, n);
  if (residual) check_rows("residual", *residual, rows, n);
  if (bias)
    SP_CHECK(bias->on_cpu() && bias->is_bf16() && bias->ndim() == 1 && bias->size(0) == n && bias->contiguous(),
             "linear: bias must be bf16 [", n, "]");
  const Weight w = check_weight("linear", data, base, exc_begin, exc_pos, exc_val, n, k);
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
  dispatch("linear", variants(), p, false, variant);
}
}  // namespace specpilot::linear
