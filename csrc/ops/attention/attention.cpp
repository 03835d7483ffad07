// The contract and the table of variants. No arithmetic here.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "core/args.h"
#include "core/mma.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::attention {
namespace {
constexpr int64_t kMaxDim = 512;

void check_slots(const int32_t* slots, int64_t begin, int64_t end, int64_t slot_count, const char* name, int64_t row) {
  bool good = true;  // no early exit: the loop vectorises
  for (int64_t i = begin; i < end; ++i) good &= slots[i] >= 0 && slots[i] < slot_count;
  if (good) return;
  while (slots[begin] >= 0 && slots[begin] < slot_count) ++begin;
  SP_CHECK(false, "attention: ", name, " ", row, ", entry ", begin, ", is ", slots[begin], "; expected 0 to ",
           slot_count - 1);
}

// Index tensors are looked at when the op executes: a replayed program reads new ones.
void check_indices(const Params& p) {
  int64_t request = -1, seen = 0;  // entries of this request already looked at; rows of a request mostly stand together
  for (int64_t r = 0; r < p.rows; ++r) {
    SP_CHECK(p.request[r] >= 0 && p.request[r] < p.requests, "attention: request[", r, "] is ", p.request[r],
             "; expected 0 to ", p.requests - 1);
    SP_CHECK(p.prefix[r] >= 0 && p.prefix[r] <= p.ld_table, "attention: prefix[", r, "] is ", p.prefix[r],
             "; expected 0 to ", p.ld_table);
    if (p.request[r] != request) request = p.request[r], seen = 0;
    if (p.prefix[r] > seen) {
      check_slots(p.slot_table + request * p.ld_table, seen, p.prefix[r], p.slot_count, "slot_table row", request);
      seen = p.prefix[r];
    }
    if (!p.tail_begin) continue;
    const int64_t begin = p.tail_begin[r], end = p.tail_begin[r + 1];
    SP_CHECK(begin >= 0 && begin <= end && end <= p.tail_count, "attention: tail_begin of row ", r, " and the next is ",
             begin, ", ", end, "; expected ascending, 0 to ", p.tail_count);
    check_slots(p.tail_slots, begin, end, p.slot_count, "tail_slots of row", r);
  }
}

template <void (*kernel)(const Params&)>
void checked(const Params& p) {
  check_indices(p);
  kernel(p);
}

#ifdef SPECPILOT_HAVE_CUDA
bool fits_cuda(const Params& p) { return p.dim_padded <= 256; }
#endif

constexpr Variant<Params> kVariants[] = {
#ifdef SPECPILOT_HAVE_CUDA
    {"cuda", kOrderCuda, Isa::kRef, true, fits_cuda, cuda::run},
#endif
#if defined(__x86_64__)
    {"cpu_amx", kOrderX86, Isa::kAmx, false, nullptr, checked<cpu::amx>},
    {"cpu_avx512", kOrderX86, Isa::kAvx512, false, nullptr, checked<cpu::avx512>},
    {"cpu_avx2", kOrderX86, Isa::kAvx2, false, nullptr, checked<cpu::avx2>},
#endif
    {"cpu_ref", kOrderX86, Isa::kRef, false, nullptr, checked<ref>},
};
}  // namespace

std::span<const Variant<Params>> variants() { return kVariants; }

void run(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache, const TensorView& slot_table,
         const TensorView& request, const TensorView& prefix, const OptionalTensor& tail_begin,
         const OptionalTensor& tail_slots, double scale, int64_t dim, const TensorView& out, std::string_view variant) {
  SP_CHECK(dim >= 1 && dim <= kMaxDim, "attention: dim is ", dim, "; expected 1 to ", kMaxDim);
  SP_CHECK(std::isfinite(scale), "attention: scale is ", scale, "; expected a finite number");
  const int64_t padded = round_up(dim, 32);
  const Args args("attention", q);
  args.packed("q", q, Type::kBf16, {kAnySize, kAnySize, padded});
  args.packed("k_cache", k_cache, Type::kBf16, {kAnySize, kAnySize, 2, padded / 2, 32});
  const int64_t rows = q.size(0), q_heads = q.size(1), blocks = k_cache.size(0), kv_heads = k_cache.size(1);
  args.packed("v_cache", v_cache, Type::kBf16, {blocks, kv_heads, 16, 2 * padded});
  SP_CHECK(kv_heads >= 1 && q_heads >= 1 && q_heads % kv_heads == 0, "attention: q has ", q_heads, " heads, k_cache ",
           kv_heads, "; expected a multiple");
  args.packed("slot_table", slot_table, Type::kInt32, {kAnySize, kAnySize});
  args.packed("request", request, Type::kInt32, {rows});
  args.packed("prefix", prefix, Type::kInt32, {rows});
  SP_CHECK(tail_begin.has_value() == tail_slots.has_value(),
           "attention: only one of tail_begin and tail_slots is given; expected both or none");
  if (tail_begin) {
    args.packed("tail_begin", *tail_begin, Type::kInt32, {rows + 1});
    args.packed("tail_slots", *tail_slots, Type::kInt32, {kAnySize});
  }
  args.output_rows("out", out, rows, q_heads * dim);
  dispatch("attention", variants(),
           {.q = q.data<const bf16>(),
            .rows = rows,
            .q_heads = q_heads,
            .kv_heads = kv_heads,
            .dim = dim,
            .dim_padded = padded,
            .k_cache = k_cache.data<const bf16>(),
            .v_cache = v_cache.data<const bf16>(),
            .slot_count = blocks * rope_kv::kBlockSlots,
            .slot_table = slot_table.data<const int32_t>(),
            .requests = slot_table.size(0),
            .ld_table = slot_table.size(1),
            .request = request.data<const int32_t>(),
            .prefix = prefix.data<const int32_t>(),
            .tail_begin = tail_begin ? tail_begin->data<const int32_t>() : nullptr,
            .tail_slots = tail_slots ? tail_slots->data<const int32_t>() : nullptr,
            .tail_count = tail_slots ? tail_slots->size(0) : 0,
            .scale = static_cast<float>(scale),
            .out = out.data<bf16>(),
            .ld_out = out.stride(0),
            .stream = q.stream},
           q.on_cuda(), variant);
}
}  // namespace specpilot::attention
