// The contract and the table of variants. No arithmetic here.
#include "ops/linear_q8/linear_q8.h"

#include "core/args.h"

namespace specpilot::linear_q8 {
namespace {
constexpr int64_t kMostRows = 1024, kMostK = 65536;
constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderNone, Isa::kRef, true, nullptr, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_amx", kOrderNone, Isa::kAmx, false, nullptr, cpu::amx},
    {"cpu_avx512_vnni", kOrderNone, Isa::kAvx512Vnni, false, nullptr, cpu::avx512_vnni},
    {"cpu_avx2", kOrderNone, Isa::kAvx2, false, nullptr, cpu::avx2},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& x, const TensorView& data, const TensorView& scale, const OptionalTensor& bias,
         const OptionalTensor& residual, const TensorView& y, std::string_view variant) {
  const Args args("linear_q8", x);
  args.rows("x", x, kAnySize, kAnySize);
  const int64_t rows = x.size(0), k = x.size(1);
  args.output_rows("y", y, rows, kAnySize);
  const int64_t n = y.size(1), bands = (n + kBand - 1) / kBand, groups = (k + kTileK - 1) / kTileK * (kTileK / kGroup);
  SP_CHECK(rows <= kMostRows, "linear_q8: ", rows, " rows, at most ", kMostRows, " in one call");
  SP_CHECK(k <= kMostK, "linear_q8: K is ", k, "; at most ", kMostK, " sum up without overflow");
  args.packed("data", data, Type::kUint8, {bands, groups, kBand, kGroup});
  args.packed("scale", scale, Type::kFloat32, {n});
  if (bias) args.packed("bias", *bias, Type::kBf16, {n});
  if (residual) args.rows("residual", *residual, rows, n);
  if (rows == 0 || n == 0) return;
  dispatch("linear_q8", variants(),
           {x.data<const bf16>(), rows, k, x.stride(0), data.data<const uint8_t>(), scale.data<const float>(), n,
            bias ? bias->data<const bf16>() : nullptr, residual ? residual->data<const bf16>() : nullptr,
            residual ? residual->stride(0) : 0, y.data<bf16>(), y.stride(0), x.stream},
           x.on_cuda(), variant);
}
}  // namespace specpilot::linear_q8
