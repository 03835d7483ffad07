// Reference: one pass a row over integer keys, which a thread's flush-to-zero mode cannot touch: subnormals stay apart.
#include <algorithm>

#include "core/thread_pool.h"
#include "ops/argmax/argmax.h"

namespace specpilot::argmax {
void ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const bf16* row = p.logits + r * p.ld;
      int64_t best = 0;
      for (int64_t i = 1; i < p.valid_vocab; ++i)
        if (key(row[i]) > key(row[best])) best = i;
      p.ids[r] = static_cast<int32_t>(best);
      if (!p.margin) continue;
      int32_t second = kNanKey;
      for (int64_t i = 0; i < p.valid_vocab; ++i)
        if (i != best) second = std::max(second, key(row[i]));
      p.margin[r] = margin(key(row[best]), second);
    }
  });
}
}  // namespace specpilot::argmax
