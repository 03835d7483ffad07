#include "ops/attention/attention_gather.h"

#include <algorithm>
#include <cstring>

#include "ops/rope_kv/rope_kv.h"

namespace specpilot::attention {
namespace {
static_assert(kBlock == rope_kv::kBlockSlots && kSplit % kBlock == 0);

void copy_key(const Params& p, const bf16* from, int64_t slot, bf16* to, int64_t lane) {
  const int64_t half = p.dim_padded / 2 * 32;
  from += slot % kBlock / 16 * half + slot % 16 * 2;
  to += lane / 16 * half + lane % 16 * 2;
  for (int64_t pair = 0; pair < p.dim_padded / 2; ++pair) std::memcpy(to + 32 * pair, from + 32 * pair, 2 * sizeof(bf16));
}

void copy_value(const Params& p, const bf16* from, int64_t slot, bf16* to, int64_t lane) {
  from += slot % kBlock / 2 * 2 * p.dim_padded + slot % 2;
  to += lane / 2 * 2 * p.dim_padded + lane % 2;
  for (int64_t d = 0; d < p.dim_padded; ++d) to[2 * d] = from[2 * d];
}

void clear_values(const Params& p, bf16* to, int64_t lane) {
  if (lane % 2 && lane < kBlock) {
    for (int64_t d = 0; d < p.dim_padded; ++d) to[lane / 2 * 2 * p.dim_padded + 2 * d + 1] = 0;
    ++lane;
  }
  std::fill(to + lane * p.dim_padded, to + kBlock * p.dim_padded, bf16{0});
}

// Most blocks that lie apart still begin with a stretch of a cache block: that is copied whole, then the strays.
template <void (*copy_lane)(const Params&, const bf16*, int64_t, bf16*, int64_t)>
void copy_block(const Params& p, const bf16* cache, int64_t kv_head, const BlockSlots& block, bf16* copy) {
  const int64_t first = block.slots[0];
  const bool aligned = first % kBlock == 0;
  if (aligned) std::memcpy(copy, cache_block(cache, p, kv_head, first), kBlock * p.dim_padded * sizeof(bf16));
  for (int64_t i = 0; i < block.count; ++i)
    if (const int64_t slot = block.slots[i]; !aligned || slot != first + i)
      copy_lane(p, cache_block(cache, p, kv_head, slot), slot, copy, i);
}
}  // namespace

bool BlockSlots::straight() const {
  int32_t apart = slots[0] % kBlock;
  for (int64_t i = 1; i < count; ++i) apart |= slots[i] - slots[0] - static_cast<int32_t>(i);
  return apart == 0;
}

const bf16* key_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy) {
  if (block.straight()) return cache_block(p.k_cache, p, kv_head, block.slots[0]);
  copy_block<copy_key>(p, p.k_cache, kv_head, block, copy);
  return copy;
}

const bf16* value_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy) {
  if (block.straight()) return cache_block(p.v_cache, p, kv_head, block.slots[0]);
  return own_value_block(p, kv_head, block, copy);
}

const bf16* own_value_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy) {
  copy_block<copy_value>(p, p.v_cache, kv_head, block, copy);
  clear_values(p, copy, block.count);
  return copy;
}
}  // namespace specpilot::attention
