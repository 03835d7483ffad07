// The contract and the table of variants. No arithmetic here.
// no vector twin: strided copies of 4 and 2 bytes, bound by the cache lines they touch.
#include "ops/kv_move/kv_move.h"

#include <algorithm>

#include "core/args.h"
#include "core/thread_pool.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::kv_move {
namespace {
void check_slots(const char* name, const int32_t* slots, const Params& p) {
  const int64_t count = p.blocks * rope_kv::kBlockSlots;
  for (int64_t i = 0; i < p.count; ++i)
    SP_CHECK(slots[i] >= -1 && slots[i] < count, "kv_move: ", name, "[", i, "] is ", slots[i], "; expected -1 to ",
             count - 1);
}

// Slots are looked at when the op executes: a replayed program reads new ones.
void checked_ref(const Params& p) {
  check_slots("from", p.from, p);
  check_slots("to", p.to, p);
  auto* written = static_cast<int32_t*>(worker_scratch(Scratch::kA, p.count * sizeof(int32_t)));
  int64_t n = 0;
  for (int64_t i = 0; i < p.count; ++i)
    if (p.from[i] >= 0 && p.to[i] >= 0) written[n++] = p.to[i];
  std::sort(written, written + n);
  const int32_t* twice = std::adjacent_find(written, written + n);
  SP_CHECK(twice == written + n, "kv_move: to holds slot ", *twice, " twice");
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

void run(const TensorView& from, const TensorView& to, const TensorView& k_cache, const TensorView& v_cache,
         std::string_view variant) {
  const Args args("kv_move", from);
  args.packed("from", from, Type::kInt32, {kAnySize});
  args.packed("to", to, Type::kInt32, {from.size(0)});
  args.packed("k_cache", k_cache, Type::kBf16, {kAnySize, kAnySize, kAnySize, 2, kAnySize, 32});
  const int64_t layers = k_cache.size(0), blocks = k_cache.size(1), heads = k_cache.size(2), dim = 2 * k_cache.size(4);
  SP_CHECK(dim % 32 == 0, "kv_move: k_cache is ", describe(k_cache), "; expected a multiple of 16 pairs of dims");
  args.packed("v_cache", v_cache, Type::kBf16, {layers, blocks, heads, 16, 2 * dim});
  dispatch("kv_move", variants(),
           {from.data<const int32_t>(), to.data<const int32_t>(), from.size(0), layers, blocks, heads, dim,
            k_cache.data<bf16>(), v_cache.data<bf16>(), from.stream},
           from.on_cuda(), variant);
}
}  // namespace specpilot::kv_move
