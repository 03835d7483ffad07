// CPU twins: a row is read twice, for its sum of squares and to be scaled; the second time it comes from L1. The last
// width % 16 elements go through a zero-padded copy: fma(0, 0, sum) changes no partial.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/simd.h"
#include "core/thread_pool.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace specpilot::rmsnorm {
namespace {
constexpr int64_t kLanes = 16;

// `grain`: elements worth some 10 us; less work stays on the caller.
void drive(const Params& p, int64_t grain, void (*norm_row)(const Params&, const bf16* x, bf16* y)) {
  ThreadPool::instance().parallel_for(p.rows, grain / std::max<int64_t>(p.width, 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) norm_row(p, p.x + r * p.ldx, p.y + r * p.ldy);
  });
}

float inverse_rms(const Params& p, float sum) { return 1.0f / std::sqrt(sum / p.denom + p.eps); }
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace cpu {
static void scale16_avx2(const bf16* x, const bf16* weight, __m256 inv, bf16* y) {
  for (int j = 0; j < kLanes; j += 8) {
    const __m256 normed = simd::round_bf16_avx2(_mm256_mul_ps(simd::load_bf16_avx2(x + j), inv));
    simd::store_bf16_avx2(y + j, simd::round_bf16_avx2(_mm256_mul_ps(normed, simd::load_bf16_avx2(weight + j))));
  }
}

static void norm_row_avx2(const Params& p, const bf16* x, bf16* y) {
  const int64_t whole = p.width / kLanes * kLanes, rest = p.width - whole;
  bf16 last[kLanes] = {}, last_weight[kLanes] = {};
  if (rest) {
    std::memcpy(last, x + whole, rest * sizeof(bf16));
    std::memcpy(last_weight, p.weight + whole, rest * sizeof(bf16));
  }
  __m256 lo = _mm256_setzero_ps(), hi = _mm256_setzero_ps();
  for (int64_t i = 0; i < whole + rest; i += kLanes) {
    const bf16* from = i < whole ? x + i : last;
    const __m256 a = simd::load_bf16_avx2(from), b = simd::load_bf16_avx2(from + 8);
    lo = _mm256_fmadd_ps(a, a, lo);
    hi = _mm256_fmadd_ps(b, b, hi);
  }
  const __m256 inv = _mm256_set1_ps(inverse_rms(p, simd::fold16_avx2(lo, hi)));
  for (int64_t i = 0; i < whole; i += kLanes) scale16_avx2(x + i, p.weight + i, inv, y + i);
  if (rest) {
    scale16_avx2(last, last_weight, inv, last);
    std::memcpy(y + whole, last, rest * sizeof(bf16));
  }
}

void avx2(const Params& p) { drive(p, 16384, norm_row_avx2); }
}  // namespace cpu
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace cpu {
static void norm_row_avx512(const Params& p, const bf16* x, bf16* y) {
  const int64_t whole = p.width / kLanes * kLanes;
  const __mmask16 rest = static_cast<__mmask16>((1u << (p.width - whole)) - 1);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < whole; i += kLanes) {
    const __m512 v = simd::load_bf16_avx512(x + i);
    sum = _mm512_fmadd_ps(v, v, sum);
  }
  if (rest) {
    const __m512 v = simd::maskz_load_bf16_avx512(rest, x + whole);
    sum = _mm512_fmadd_ps(v, v, sum);
  }
  const __m512 inv = _mm512_set1_ps(inverse_rms(p, simd::fold16_avx512(sum)));
  for (int64_t i = 0; i < whole; i += kLanes) {
    const __m512 normed = simd::round_bf16_avx512(_mm512_mul_ps(simd::load_bf16_avx512(x + i), inv));
    simd::store_bf16_avx512(y + i, simd::round_bf16_avx512(_mm512_mul_ps(normed, simd::load_bf16_avx512(p.weight + i))));
  }
  if (rest) {
    const __m512 normed = simd::round_bf16_avx512(_mm512_mul_ps(simd::maskz_load_bf16_avx512(rest, x + whole), inv));
    const __m512 weight = simd::maskz_load_bf16_avx512(rest, p.weight + whole);
    simd::mask_store_bf16_avx512(y + whole, rest, simd::round_bf16_avx512(_mm512_mul_ps(normed, weight)));
  }
}

void avx512(const Params& p) { drive(p, 32768, norm_row_avx512); }
}  // namespace cpu
#pragma GCC pop_options
}  // namespace specpilot::rmsnorm
#endif
