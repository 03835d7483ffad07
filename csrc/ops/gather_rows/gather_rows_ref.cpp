// Reference and only variant: one copy a row.
#include <algorithm>
#include <cstring>

#include "core/thread_pool.h"
#include "ops/gather_rows/gather_rows.h"

namespace specpilot::gather_rows {
namespace {
constexpr int64_t kGrainBytes = 64 << 10;  // some 10 us of copying: less stays on the caller
}

void ref(const Params& p) {
  const size_t bytes = p.cols * sizeof(bf16);
  const int64_t grain = kGrainBytes / std::max<int64_t>(bytes, 1);
  ThreadPool::instance().parallel_for(p.count, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = p.index ? p.index[i] : i;
      bf16* out = p.out + i * p.ld_out;
      if (from < 0)
        std::memset(out, 0, bytes);
      else
        std::memcpy(out, p.x + from * p.ldx, bytes);
    }
  });
}
}  // namespace specpilot::gather_rows
