#include "core/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/thread_pool.h"

namespace specpilot {
double measure_read_bandwidth(int mebibytes, int repeats) {
  SP_CHECK(mebibytes >= 1 && mebibytes <= 65536, "mebibytes = ", mebibytes, ": expected 1 to 65536");
  SP_CHECK(repeats >= 1, "repeats = ", repeats, ": expected 1 or more");
  const int64_t words = int64_t{mebibytes} << 17;
  std::vector<uint64_t> buffer(words, 1);  // written, so that every page is there
  ThreadPool& pool = ThreadPool::instance();
  std::vector<uint64_t> sink(static_cast<size_t>(pool.threads()) * 8);
  double best = 0;
  for (int r = 0; r < repeats; ++r) {
    const auto t0 = std::chrono::steady_clock::now();
    pool.parallel_for(words, 1 << 17, [&](int64_t b, int64_t e, int worker) {
      uint64_t s[16] = {};  // independent sums: the loop vectorises and the loads, not the adds, set the pace
      for (int64_t i = b; i + 16 <= e; i += 16)
        for (int j = 0; j < 16; ++j) s[j] += buffer[i + j];
      for (uint64_t v : s) sink[static_cast<size_t>(worker) * 8] += v;
    });
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    best = std::max(best, static_cast<double>(words) * 8 / s);
  }
  asm volatile("" : : "r"(sink.data()) : "memory");
  return best;
}
}  // namespace specpilot
