// The contract and the table of variants. No arithmetic here.
// no vector twin: a row is K loads of 4 (bf16) or 2 + 2 (w12) bytes a cache line apart; the misses cost, not the decoding.
#include "ops/embed/embed.h"

#include "core/args.h"

namespace specpilot::embed {
namespace {
// Ids are looked at when the op executes: a replayed program reads new ones.
void checked_ref(const Params& p) {
  for (int64_t r = 0; r < p.rows; ++r)
    SP_CHECK(p.ids[r] >= 0 && p.ids[r] < p.table.n, "embed: ids[", r, "] is ", p.ids[r], "; expected 0 to ", p.table.n - 1);
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

void run(const TensorView& ids, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
         const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, const TensorView& out,
         std::string_view variant) {
  const Args args("embed", ids);
  args.packed("ids", ids, Type::kInt32, {kAnySize});
  args.output_rows("out", out, ids.size(0), kAnySize);
  const linear::Weight table = linear::check_weight("embed", data, base, exc_begin, exc_pos, exc_val, n, out.size(-1));
  args.same_device("data", data);
  dispatch("embed", variants(), {ids.data<const int32_t>(), ids.size(0), table, out.data<bf16>(), out.stride(0), ids.stream},
           ids.on_cuda(), variant);
}
}  // namespace specpilot::embed
