// Reference: one pass a row over integer keys, which a thread's flush-to-zero mode cannot touch: subnormals stay apart.
#include "core/thread_pool.h"
#include "ops/argmax/argmax.h"

namespace specpilot::argmax {
namespace {
// Sorts as the numbers do; both zeros are 0, NaN is below all.
int key(bf16 bits) {
  const int magnitude = bits & 0x7fff;
  if (magnitude > 0x7f80) return -0x8000;
  return bits & 0x8000 ? -magnitude : magnitude;
}
}  // namespace

void ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const bf16* row = p.logits + r * p.ld;
      int64_t best = 0;
      for (int64_t i = 1; i < p.valid_vocab; ++i)
        if (key(row[i]) > key(row[best])) best = i;
      p.ids[r] = static_cast<int32_t>(best);
    }
  });
}
}  // namespace specpilot::argmax
