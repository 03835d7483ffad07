// Reference: element by element.
#include "core/bf16.h"
#include "core/thread_pool.h"
#include "ops/swiglu/swiglu.h"

void specpilot::swiglu::ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const bf16* g = p.gate_up + r * p.ld_in;
      const bf16* u = g + p.width;
      bf16* y = p.y + r * p.ld_out;
      for (int64_t i = 0; i < p.width; ++i) y[i] = to_bf16(round_bf16(silu_f32(to_f32(g[i]))) * to_f32(u[i]));
    }
  });
}
