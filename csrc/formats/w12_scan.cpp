#include "formats/w12_scan.h"

#include <algorithm>
#include <cstring>

#include "core/thread_pool.h"
#include "formats/w12.h"

namespace specpilot::w12 {
namespace {
// Weights by exponent field; four tables, so that equal neighbours do not wait for each other.
struct Histogram {
  int64_t count[4][256] = {};

  void add(const bf16* row, int64_t k) {
    int64_t i = 0;
    for (; i + 4 <= k; i += 4) {
      uint64_t four;
      std::memcpy(&four, row + i, sizeof four);
      for (int t = 0; t < 4; ++t) ++count[t][four >> (16 * t + 7) & 255];
    }
    for (; i < k; ++i) ++count[0][row[i] >> 7 & 255];
  }
  int64_t operator[](int field) const { return count[0][field] + count[1][field] + count[2][field] + count[3][field]; }
};

// Base b covers fields b + 1 … b + 15. Zeros and subnormals have field 0, which no base covers.
int best_base(const Histogram& fields, int64_t& covered) {
  int64_t window = 0;
  for (int f = 1; f <= 15; ++f) window += fields[f];
  int best = 0;
  covered = window;
  for (int b = 1; b <= kMaxBase; ++b) {
    window += fields[b + 15] - fields[b];
    if (window > covered) covered = window, best = b;
  }
  return best;
}
}  // namespace

Source check_source(const char* op, const TensorView& weight) {
  const int d = weight.ndim();
  SP_CHECK(weight.on_cpu() && weight.is_bf16() && (d == 2 || d == 3), op,
           ": weight must be a bf16 CPU tensor [N, K] or [groups, N, K]");
  const Source s{weight.data<const bf16>(), d == 3 ? weight.size(0) : 1, weight.size(-2), weight.size(-1),
                 weight.size(-2) > 1 || d == 2 ? weight.stride(-2) : weight.stride(0)};
  SP_CHECK(s.k >= 1, op, ": weight has rows of 0 elements");
  SP_CHECK(weight.numel() == 0 || weight.rows_contiguous(d - 1), op, ": weight must have unit column stride");
  SP_CHECK(d == 2 || s.groups <= 1 || s.rows == 0 || weight.stride(0) == s.rows * s.stride, op,
           ": weight must have evenly strided rows");
  return s;
}

int64_t scan(const TensorView& weight, const TensorView& base, const TensorView& begin) {
  const Source s = check_source("w12 scan", weight);
  const int64_t bands = s.bands();
  SP_CHECK(base.on_cpu() && base.is_u8() && base.contiguous() && base.numel() == bands, "w12 scan: base must be uint8 [",
           bands, "]");
  SP_CHECK(begin.on_cpu() && begin.is(dlpack::kInt, 64) && begin.contiguous() && begin.numel() == bands + 1,
           "w12 scan: begin must be int64 [", bands + 1, "]");
  auto* b = base.data<uint8_t>();
  auto* count = begin.data<int64_t>();
  count[0] = 0;
  ThreadPool::instance().parallel_for(bands, std::max<int64_t>(1, 2048 / s.k), [&](int64_t from, int64_t to, int) {
    for (int64_t band = from; band < to; ++band) {
      Histogram fields;
      const int rows = s.band_rows(band);
      for (int r = 0; r < rows; ++r) fields.add(s.row(s.first_row(band) + r), s.k);
      int64_t zeros = 0, covered = 0;
      for (int r = 0; r < rows && fields[0] != 0; ++r) {  // field 0: zeros, which are words, and subnormals
        const bf16* row = s.row(s.first_row(band) + r);
        zeros += std::count_if(row, row + s.k, [](bf16 w) { return (w & 0x7fff) == 0; });
      }
      b[band] = static_cast<uint8_t>(best_base(fields, covered));
      count[band + 1] = rows * s.k - zeros - covered;
    }
  });
  for (int64_t band = 0; band < bands; ++band) count[band + 1] += count[band];
  return count[bands];
}
}  // namespace specpilot::w12
