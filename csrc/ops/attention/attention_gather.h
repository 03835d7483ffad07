// Where 32 consecutive positions lie in the paged cache, and their copy into one block when they lie apart.
#pragma once
#include <cstdint>

#include "ops/attention/attention.h"

namespace specpilot::attention {
inline constexpr int64_t kBlock = 32;  // positions; also the slots of a cache block (rope_kv.h)

// Position i of the block, i < count, lies in slots[i].
struct BlockSlots {
  const int32_t* slots;
  int64_t count;

  // The block is a cache block, or its beginning, in order.
  bool straight() const;
};

// Pair rows of one kv head of the cache block that holds `slot`: 32 Dp elements.
inline const bf16* cache_block(const bf16* cache, const Params& p, int64_t kv_head, int64_t slot) {
  return cache + (slot / kBlock * p.kv_heads + kv_head) * kBlock * p.dim_padded;
}

// The pair rows of the block, in place where it is straight, else copied to `copy` (32 Dp elements). Keys past `count` hold
// anything; values past it hold anything where the block is straight, zero in a copy.
const bf16* key_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy);
const bf16* value_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy);
// Always a copy: values past `count` are zero.
const bf16* own_value_block(const Params& p, int64_t kv_head, const BlockSlots& block, bf16* copy);
}  // namespace specpilot::attention
