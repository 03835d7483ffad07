// The tensors of a run-layout weight, checked against each other (linear and embed).
#include <algorithm>

#include "core/mma.h"
#include "formats/w12.h"
#include "formats/w12_cuda.h"
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
Weight check_cuda_weight(const char* op, const TensorView& data, const OptionalTensor& overflow, bool others, int64_t n,
                         int64_t k) {
  SP_CHECK(n <= INT32_MAX && k <= INT32_MAX && n * k <= w12_cuda::kMaxWeights, op, ": weight shape [", n, ", ", k,
           "]; at most 2^36 weights on CUDA");
  const w12_cuda::Plan plan = w12_cuda::plan(n, k);
  SP_CHECK(data.contiguous() && !others, op, ": on CUDA a weight is contiguous data and, for w12, the list exc_pos");
  SP_CHECK(reinterpret_cast<uintptr_t>(data.data<const uint8_t>()) % 16 == 0, op,
           ": data must begin at a multiple of 16 bytes on CUDA");
  const bool bf16_data = data.is_bf16();
  SP_CHECK(bf16_data || data.is_u8(), op, ": data must be bf16 or uint8 (w12)");
  const auto fits = [&](int dims) {
    return data.ndim() == dims && data.size(0) == plan.groups && data.size(1) == plan.steps && data.size(2) == plan.tiles;
  };
  if (bf16_data)
    SP_CHECK(fits(6) && data.size(3) == 4 && data.size(4) == 32 && data.size(5) == 8 && !overflow, op, ": bf16 data of a [",
             n, ", ", k, "] weight must be [", plan.groups, ", ", plan.steps, ", ", plan.tiles,
             ", 4, 32, 8] on CUDA, alone");
  else
    SP_CHECK(fits(4) && data.size(3) == w12_cuda::kTileBytes && overflow && overflow->on_cuda() && overflow->is_i32() &&
                 overflow->ndim() == 1 && overflow->contiguous(),
             op, ": w12 data of a [", n, ", ", k, "] weight must be [", plan.groups, ", ", plan.steps, ", ", plan.tiles,
             ", ", w12_cuda::kTileBytes, "] on CUDA, with exc_pos int32 [E]");
  Weight w{};
  w.format = bf16_data ? Format::kBf16 : Format::kW12;
  w.n = n, w.k = k, w.bands = plan.groups, w.tiles = plan.steps, w.data = data.data<const uint8_t>();
  if (!bf16_data) w.exc_pos = overflow->data<const uint32_t>();
  return w;
}
}  // namespace

Weight check_weight(const char* op, const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
                    const OptionalTensor& exc_pos, const OptionalTensor& exc_val, int64_t n, int64_t k) {
  SP_CHECK(n >= 0 && k >= 1, op, ": weight shape [", n, ", ", k, "], expected n >= 0 and k >= 1");
  if (data.on_cuda()) return check_cuda_weight(op, data, exc_pos, base || exc_begin || exc_val, n, k);
  const int64_t bands = round_up(n, w12::kBand) / w12::kBand, tiles = round_up(k, w12::kTileK) / w12::kTileK;
  SP_CHECK(data.on_cpu() && data.contiguous(), op, ": data must be a contiguous CPU tensor");
  Weight w{Format::kBf16, n, k, bands, tiles, data.data<const uint8_t>(), nullptr, nullptr, nullptr, nullptr};
  if (data.is_bf16()) {
    SP_CHECK(data.ndim() == 4 && data.size(0) == bands && data.size(1) == tiles && data.size(2) == 16 && data.size(3) == 32,
             op, ": bf16 data of a [", n, ", ", k, "] weight must be [", bands, ", ", tiles, ", 16, 32]");
    SP_CHECK(!base && !exc_begin && !exc_pos && !exc_val, op, ": bf16 data takes no base and no exceptions");
    return w;
  }
  SP_CHECK(data.is_u8(), op, ": data must be bf16 or uint8 (w12)");
  SP_CHECK(data.ndim() == 3 && data.size(0) == bands && data.size(1) == tiles && data.size(2) == w12::kTileBytes, op,
           ": w12 data of a [", n, ", ", k, "] weight must be [", bands, ", ", tiles, ", ", w12::kTileBytes, "]");
  SP_CHECK(base && exc_begin && exc_pos && exc_val, op, ": w12 data needs base, exc_begin, exc_pos and exc_val");
  SP_CHECK(base->is_u8() && base->contiguous() && base->numel() == bands, op, ": base must be uint8 [", bands, "]");
  SP_CHECK(exc_begin->is_i32() && exc_begin->contiguous() && exc_begin->numel() == bands + 1, op,
           ": exc_begin must be int32 [", bands + 1, "]");
  SP_CHECK(exc_pos->is_i32() && exc_pos->contiguous() && exc_val->is_bf16() && exc_val->contiguous() &&
               exc_pos->numel() == exc_val->numel(),
           op, ": exc_pos int32 and exc_val bf16 must have one length");
  w.format = Format::kW12;
  w.base = base->data<const uint8_t>();
  w.exc_begin = exc_begin->data<const uint32_t>();
  w.exc_pos = exc_pos->data<const uint32_t>();
  w.exc_val = exc_val->data<const bf16>();
  const auto count = static_cast<uint32_t>(exc_pos->numel());
  SP_CHECK(w.exc_begin[0] == 0 && w.exc_begin[bands] == count && std::is_sorted(w.exc_begin, w.exc_begin + bands + 1), op,
           ": exc_begin must rise from 0 to ", count);
  SP_CHECK(std::all_of(w.exc_pos, w.exc_pos + count, [&](uint32_t p) { return p < tiles * w12::kTileWeights; }), op,
           ": exc_pos out of its band of ", tiles * w12::kTileWeights, " weights");
  SP_CHECK(std::all_of(w.base, w.base + bands, [](uint8_t b) { return b <= w12::kMaxBase; }), op, ": base above ",
           w12::kMaxBase);
  return w;
}
}  // namespace specpilot::linear
