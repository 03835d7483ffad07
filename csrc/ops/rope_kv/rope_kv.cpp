// The contract and the table of variants. No arithmetic here.
#include "ops/rope_kv/rope_kv.h"

#include <algorithm>
#include <functional>

#include "core/args.h"
#include "core/mma.h"
#include "core/thread_pool.h"

namespace specpilot::rope_kv {
namespace {
// Threads write rows in any order, so no slot may be written twice. Slots mostly ascend; only others are sorted.
void check_distinct(const Params& p) {
  if (std::adjacent_find(p.slots, p.slots + p.rows, std::greater_equal<>()) == p.slots + p.rows) return;
  auto* written = static_cast<int32_t*>(worker_scratch(Scratch::kA, p.rows * sizeof(int32_t)));
  int32_t* end = std::remove_copy(p.slots, p.slots + p.rows, written, -1);
  std::sort(written, end);
  const int32_t* twice = std::adjacent_find(written, end);
  SP_CHECK(twice == end, "rope_kv: slots holds slot ", *twice, " twice");
}

// Positions and slots are looked at when the op executes: a replayed program reads new ones.
template <void (*kernel)(const Params&)>
void checked(const Params& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    SP_CHECK(p.positions[r] >= 0 && p.positions[r] < p.max_position, "rope_kv: positions[", r, "] is ", p.positions[r],
             "; expected 0 to ", p.max_position - 1);
    SP_CHECK(p.slots[r] >= -1 && p.slots[r] < p.slot_count, "rope_kv: slots[", r, "] is ", p.slots[r],
             "; expected -1 (none) to ", p.slot_count - 1);
  }
  check_distinct(p);
  kernel(p);
}

constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderX86, Isa::kRef, true, nullptr, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_avx512", kOrderX86, Isa::kAvx512, false, nullptr, checked<cpu::avx512>},
    {"cpu_avx2", kOrderX86, Isa::kAvx2, false, nullptr, checked<cpu::avx2>},
#endif
    {"cpu_ref", kOrderX86, Isa::kRef, false, nullptr, checked<ref>},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& qkv, const TensorView& cos, const TensorView& sin, const TensorView& positions,
         const TensorView& slots, const OptionalTensor& q_norm, const OptionalTensor& k_norm, double eps, double norm_denom,
         int64_t dim, const TensorView& q_out, const TensorView& k_cache, const TensorView& v_cache,
         std::string_view variant) {
  SP_CHECK(dim >= 2 && dim <= kMaxDim && dim % 2 == 0, "rope_kv: dim is ", dim, "; expected an even number from 2 to ",
           kMaxDim);
  const int64_t padded = round_up(dim, 32);
  const Args args("rope_kv", qkv);
  args.rows("qkv", qkv, kAnySize, kAnySize);
  const int64_t rows = qkv.size(0);
  args.packed("q_out", q_out, Type::kBf16, {rows, kAnySize, padded});
  args.packed("k_cache", k_cache, Type::kBf16, {kAnySize, kAnySize, 2, padded / 2, 32});
  const int64_t q_heads = q_out.size(1), kv_heads = k_cache.size(1);
  args.packed("v_cache", v_cache, Type::kBf16, {k_cache.size(0), kv_heads, 16, 2 * padded});
  SP_CHECK(qkv.size(1) == (q_heads + 2 * kv_heads) * dim, "rope_kv: qkv has ", qkv.size(1), " columns; expected ", q_heads,
           " + 2 * ", kv_heads, " heads of ", dim);
  args.packed("cos", cos, Type::kBf16, {kAnySize, dim / 2});
  args.packed("sin", sin, Type::kBf16, {cos.size(0), dim / 2});
  args.packed("positions", positions, Type::kInt32, {rows});
  args.packed("slots", slots, Type::kInt32, {rows});
  SP_CHECK(q_norm.has_value() == k_norm.has_value(),
           "rope_kv: only one of q_norm and k_norm is given; expected both or none");
  if (q_norm) {
    args.packed("q_norm", *q_norm, Type::kBf16, {dim});
    args.packed("k_norm", *k_norm, Type::kBf16, {dim});
    SP_CHECK(norm_denom > 0, "rope_kv: norm_denom is ", norm_denom, "; expected > 0");
    SP_CHECK(eps >= 0, "rope_kv: eps is ", eps, "; expected >= 0");
  }
  dispatch("rope_kv", variants(),
           {.qkv = qkv.data<const bf16>(),
            .rows = rows,
            .ld_qkv = qkv.stride(0),
            .q_heads = q_heads,
            .kv_heads = kv_heads,
            .dim = dim,
            .dim_padded = padded,
            .cos = cos.data<const bf16>(),
            .sin = sin.data<const bf16>(),
            .max_position = cos.size(0),
            .positions = positions.data<const int32_t>(),
            .slots = slots.data<const int32_t>(),
            .slot_count = k_cache.size(0) * kBlockSlots,
            .q_norm = q_norm ? q_norm->data<const bf16>() : nullptr,
            .k_norm = k_norm ? k_norm->data<const bf16>() : nullptr,
            .eps = static_cast<float>(eps),
            .norm_denom = static_cast<float>(norm_denom),
            .q_out = q_out.data<bf16>(),
            .k_cache = k_cache.data<bf16>(),
            .v_cache = v_cache.data<bf16>(),
            .stream = qkv.stream},
           qkv.on_cuda(), variant);
}
}  // namespace specpilot::rope_kv
