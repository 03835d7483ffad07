// The contract and the table of variants. No arithmetic here.
// no vector twin: a walk of some tens of compares a request.
#include "ops/accept/accept.h"

#include "core/args.h"

namespace specpilot::accept {
namespace {
// Contents are looked at when the op executes: a replayed program reads new ones.
void checked_ref(const Params& p) {
  SP_CHECK(p.cu_rows[0] >= 0, "accept: cu_rows[0] is ", p.cu_rows[0], "; expected >= 0");
  for (int64_t b = 0; b < p.requests; ++b) {
    const int32_t begin = p.cu_rows[b], end = p.cu_rows[b + 1];
    SP_CHECK(end >= begin && end <= p.rows, "accept: cu_rows[", b + 1, "] is ", end, "; expected ", begin, " to ", p.rows);
    for (int32_t r = begin; r < end; ++r) {
      const int32_t parent = p.parents[r], low = r == begin ? -1 : 0, high = r - begin - 1;
      SP_CHECK(parent >= low && parent <= high, "accept: parents[", r, "] is ", parent, "; expected ", low, " to ", high,
               " (row ", r - begin, " of request ", b, ")");
    }
  }
  ref(p);
}

constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderNone, Isa::kRef, true, [](const Params& p) { return p.rows <= cuda::kMaxRows; }, cuda::run},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, checked_ref},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& cu_rows, const TensorView& tokens, const TensorView& parents, const TensorView& choice,
         const TensorView& path, const TensorView& emitted, const TensorView& length, std::string_view variant) {
  const Args args("accept", cu_rows);
  args.packed("length", length, Type::kInt32, {kAnySize});
  const int64_t requests = length.size(0);
  args.packed("cu_rows", cu_rows, Type::kInt32, {requests + 1});
  args.packed("tokens", tokens, Type::kInt32, {kAnySize});
  const int64_t rows = tokens.size(0);
  args.packed("parents", parents, Type::kInt32, {rows});
  args.packed("choice", choice, Type::kInt32, {rows});
  args.packed("path", path, Type::kInt32, {requests, kAnySize});
  const int64_t max_path = path.size(1);
  args.packed("emitted", emitted, Type::kInt32, {requests, max_path});
  dispatch("accept", variants(),
           {cu_rows.data<const int32_t>(), requests, rows, tokens.data<const int32_t>(), parents.data<const int32_t>(),
            choice.data<const int32_t>(), path.data<int32_t>(), emitted.data<int32_t>(), length.data<int32_t>(), max_path,
            cu_rows.stream},
           cu_rows.on_cuda(), variant);
}
}  // namespace specpilot::accept
