// Reference: plain sums.
#include <algorithm>
#include <vector>

#include "core/thread_pool.h"
#include "ops/linear_q8/linear_q8.h"

namespace specpilot::linear_q8 {
void ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<int8_t> q(p.k);
    for (int64_t r = begin; r < end; ++r) {
      const bf16* x = p.x + r * p.ldx;
      uint16_t largest = 0;  // magnitudes sort as their bits do
      for (int64_t k = 0; k < p.k; ++k) largest = std::max<uint16_t>(largest, x[k] & 0x7fff);
      const RowScale s = row_scale(largest);
      for (int64_t k = 0; k < p.k; ++k) q[k] = quantized(x[k], s.factor);
      for (int64_t n = 0; n < p.n; ++n) {
        const uint8_t* w = p.data + (n / kBand * p.padded_k() * kBand) + n % kBand * kGroup;
        int32_t sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += q[k] * (w[k / kGroup * kBand * kGroup + k % kGroup] - 128);
        finish(p, r, n, sum, s.scale);
      }
    }
  });
}
}  // namespace specpilot::linear_q8
