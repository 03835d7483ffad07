// Inside of the CPU twins: one driver for all tiers, over the tier's tile product and a few vector helpers.
//
//   attention_driver.cpp   rows → tiles → units of work for threads
//   attention_tile.cpp     one tile in one split: scores, softmax, P V
//   attention_gather.cpp   keys and values by position
#pragma once
#include "core/mma.h"
#include "ops/attention/attention.h"

namespace specpilot::attention {
// m and l of one query vector (attention.h); its o stands beside it as fp32 [round_up(D, 16)].
struct Softmax {
  float m, l;
};

struct Tier {
  Isa isa;
  // s: q . k of a split's keys, the first `count` >= 1 visible. Overwrites s by bf16(e) as the tier's mma reads it (fp32 or
  // bf16), zero from `count` to `width`, a multiple of 32.
  Softmax (*softmax)(float* s, int64_t count, int64_t width, float scale);
  // Folds the next split into s, o; dim is a multiple of 16.
  void (*fold)(Softmax& s, float* o, const Softmax& next, const float* next_o, int64_t dim);
  void (*finish)(const float* o, float l, int64_t dim, bf16* out);
  // No infinity and no NaN among n (a multiple of 32) values.
  bool (*finite)(const bf16* v, int64_t n);
};

void drive(const Params& p, const Tier& tier);
}  // namespace specpilot::attention
