// Reference: one row after the other, the order of the header written out.
#include <cmath>

#include "core/bf16.h"
#include "core/thread_pool.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace specpilot::rmsnorm {
namespace {
void norm_row(const Params& p, const bf16* x, bf16* y) {
  float partial[16] = {};
  for (int64_t i = 0; i < p.width; ++i) partial[i % 16] = std::fma(to_f32(x[i]), to_f32(x[i]), partial[i % 16]);
  const float mean = fold16(partial) / p.denom;
  const float inv = 1.0f / std::sqrt(mean + p.eps);
  for (int64_t i = 0; i < p.width; ++i) y[i] = to_bf16(round_bf16(to_f32(x[i]) * inv) * to_f32(p.weight[i]));
}
}  // namespace

void ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) norm_row(p, p.x + r * p.ldx, p.y + r * p.ldy);
  });
}
}  // namespace specpilot::rmsnorm
