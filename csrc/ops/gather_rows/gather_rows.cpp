// The contract and the table of variants. No arithmetic here.
// no vector twin: memcpy moves whole rows at the speed of memory.
#include "ops/gather_rows/gather_rows.h"

#include "core/args.h"

namespace specpilot::gather_rows {
namespace {
// Indices are looked at when the op executes: a replayed program reads new ones.
void checked_ref(const Params& p) {
  if (p.index)
    for (int64_t i = 0; i < p.count; ++i)
      SP_CHECK(p.index[i] >= -1 && p.index[i] < p.rows, "gather_rows: index[", i, "] is ", p.index[i], "; expected -1 to ",
               p.rows - 1);
  ref(p);
}

constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderNone, Isa::kRef, true, nullptr, cuda::run},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, checked_ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& x, const OptionalTensor& index, const TensorView& out, std::string_view variant) {
  const Args args("gather_rows", x);
  args.rows("x", x, kAnySize, kAnySize);
  const int64_t rows = x.size(0), cols = x.size(1);
  if (index) args.packed("index", *index, Type::kInt32, {kAnySize});
  const int64_t count = index ? index->size(0) : rows;
  args.output_rows("out", out, count, cols);
  dispatch("gather_rows", variants(),
           {x.data<const bf16>(), rows, cols, x.stride(0), index ? index->data<const int32_t>() : nullptr, count,
            out.data<bf16>(), out.stride(0), x.stream},
           x.on_cuda(), variant);
}
}  // namespace specpilot::gather_rows
