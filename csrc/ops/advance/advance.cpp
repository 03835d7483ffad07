// The contract and the table of variants. No arithmetic here.
// no vector twin: some tens of integers a request.
#include "ops/advance/advance.h"

#include "core/args.h"

namespace specpilot::advance {
namespace {
// Contents are looked at when the op executes: a replayed program reads new ones.
void checked_ref(const Params& p) {
  for (int64_t b = 0; b < p.requests; ++b) {
    const int32_t* state = p.state + b * kStateSize;
    SP_CHECK(state[kStart] >= 0 && state[kStart] < p.ld_table, "advance: start of request ", b, " is ", state[kStart],
             "; expected 0 to ", p.ld_table - 1);
    SP_CHECK(state[kLeft] >= 0, "advance: left of request ", b, " is ", state[kLeft], "; expected >= 0");
    SP_CHECK(state[kStep] >= 0, "advance: step of request ", b, " is ", state[kStep], "; expected >= 0");
    SP_CHECK(p.length[b] >= 0 && p.length[b] <= p.max_path, "advance: length[", b, "] is ", p.length[b], "; expected 0 to ",
             p.max_path);
  }
  ref(p);
}

constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderNone, Isa::kRef, true, nullptr, cuda::run},
#endif
    {"cpu_ref", kOrderNone, Isa::kRef, false, nullptr, checked_ref},
};

RowSet row_set(const char* name, const TensorView& t, const TensorView& state) {
  const bool placed =
      t.t.device.device_type == state.t.device.device_type && t.t.device.device_id == state.t.device.device_id;
  SP_CHECK(placed, "advance: ", name, " is on another device than the first argument");
  SP_CHECK(t.is_i32() && t.ndim() == 3 && t.size(0) == kPlanes && t.size(1) == state.size(0) && t.rows_contiguous(1) &&
               t.stride(0) >= t.size(1) * t.size(2),
           "advance: ", name, " is ", describe(t), "; expected int32 [5, ", state.size(0),
           ", any], planes apart and rows together");
  return {t.data<int32_t>(), t.stride(0), t.size(2)};
}

RowSet row_set(const char* name, const OptionalTensor& t, const TensorView& state) {
  return t ? row_set(name, *t, state) : RowSet{};
}
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& state, const TensorView& emitted, const TensorView& length, const OptionalTensor& margins,
         const TensorView& stop_ids, const TensorView& slot_table, const TensorView& chain, const OptionalTensor& block,
         const OptionalTensor& causal, const OptionalTensor& context, const TensorView& ring, std::string_view variant) {
  const Args args("advance", state);
  args.packed("state", state, Type::kInt32, {kAnySize, kStateSize});
  const int64_t requests = state.size(0);
  args.packed("emitted", emitted, Type::kInt32, {requests, kAnySize});
  const int64_t max_path = emitted.size(1);
  SP_CHECK(max_path >= 1, "advance: emitted is ", describe(emitted), "; expected room for a token");
  args.packed("length", length, Type::kInt32, {requests});
  if (margins) args.packed("margins", *margins, Type::kFloat32, {requests, max_path - 1});
  args.packed("stop_ids", stop_ids, Type::kInt32, {kAnySize});
  args.packed("slot_table", slot_table, Type::kInt32, {requests, kAnySize});
  args.packed("ring", ring, Type::kInt32, {kAnySize, requests, 2 * max_path + 1});
  SP_CHECK(ring.size(0) >= 1, "advance: ring is ", describe(ring), "; expected an entry or more");
  dispatch("advance", variants(),
           {.state = state.data<int32_t>(),
            .requests = requests,
            .emitted = emitted.data<const int32_t>(),
            .length = length.data<const int32_t>(),
            .max_path = max_path,
            .margins = margins ? margins->data<const float>() : nullptr,
            .stop_ids = stop_ids.data<const int32_t>(),
            .stops = stop_ids.size(0),
            .slot_table = slot_table.data<const int32_t>(),
            .ld_table = slot_table.size(1),
            .chain = row_set("chain", chain, state),
            .block = row_set("block", block, state),
            .causal = row_set("causal", causal, state),
            .context = row_set("context", context, state),
            .ring = ring.data<int32_t>(),
            .entries = ring.size(0),
            .stream = state.stream},
           state.on_cuda(), variant);
}
}  // namespace specpilot::advance
