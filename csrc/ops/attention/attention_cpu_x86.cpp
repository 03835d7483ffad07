// The vector helpers of each tier (attention_cpu.h); what they stand between is attention_tile.cpp.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/simd.h"
#include "ops/attention/attention_cpu.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace specpilot::attention {
namespace avx2 {
// All ones in the lanes i … i + 7 that lie below count.
static inline __m256 below(int64_t i, int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count - i)), lane));
}

static inline float max8(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static Softmax softmax(float* s, int64_t count, int64_t width, float scale_) {
  const __m256 scale = _mm256_set1_ps(scale_), lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 most = lowest;
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 v = _mm256_mul_ps(scale, _mm256_load_ps(s + i));
    most = _mm256_max_ps(_mm256_blendv_ps(lowest, v, below(i, count)), most);  // passes a NaN over, as std::max does
  }
  const float m = max8(most);
  const __m256 top = _mm256_set1_ps(m);
  __m256 l[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t i = 0; i < count; i += 16)
    for (int h = 0; h < 2; ++h) {
      float* at = s + i + 8 * h;
      __m256 e = simd::exp_avx2(_mm256_sub_ps(_mm256_mul_ps(scale, _mm256_load_ps(at)), top));
      e = _mm256_and_ps(e, below(i + 8 * h, count));
      l[h] = _mm256_add_ps(l[h], e);
      _mm256_store_ps(at, simd::round_bf16_avx2(e));
    }
  for (int64_t i = round_up(count, 16); i < width; i += 8) _mm256_store_ps(s + i, _mm256_setzero_ps());
  return {m, simd::fold16_avx2(l[0], l[1])};
}

static void fold(Softmax& s, float* o, const Softmax& next, const float* next_o, int64_t dim) {
  const float n = s.m < next.m ? next.m : s.m;
  const __m256 ab = simd::exp_avx2(_mm256_setr_ps(s.m - n, next.m - n, 0, 0, 0, 0, 0, 0));
  const __m128 low = _mm256_castps256_ps128(ab);
  const float a_ = _mm_cvtss_f32(low), b_ = _mm_cvtss_f32(_mm_movehdup_ps(low));
  s = {n, __builtin_fmaf(s.l, a_, next.l * b_)};
  const __m256 a = _mm256_set1_ps(a_), b = _mm256_set1_ps(b_);
  for (int64_t d = 0; d < dim; d += 8)
    _mm256_storeu_ps(o + d, _mm256_fmadd_ps(_mm256_loadu_ps(o + d), a, _mm256_mul_ps(_mm256_loadu_ps(next_o + d), b)));
}

static void finish(const float* o, float l_, int64_t dim, bf16* out) {
  const __m256 l = _mm256_set1_ps(l_), zero = _mm256_setzero_ps();
  int64_t d = 0;
  for (; d + 8 <= dim; d += 8)
    simd::store_bf16_avx2(out + d, simd::round_bf16_avx2(_mm256_add_ps(_mm256_div_ps(_mm256_loadu_ps(o + d), l), zero)));
  for (; d < dim; ++d) out[d] = to_bf16(o[d] / l_ + 0.0f);
}

static bool finite(const bf16* v, int64_t n) {
  const __m256i exponent = _mm256_set1_epi16(0x7f80);
  __m256i bad = _mm256_setzero_si256();
  for (int64_t i = 0; i < n; i += 16) {
    const __m256i x = _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + i)), exponent);
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi16(x, exponent));
  }
  return _mm256_testz_si256(bad, bad);
}
}  // namespace avx2

void cpu::avx2(const Params& p) {
  static constexpr Tier kTier{Isa::kAvx2, attention::avx2::softmax, attention::avx2::fold, attention::avx2::finish,
                              attention::avx2::finite};
  drive(p, kTier);
}
}  // namespace specpilot::attention
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace specpilot::attention {
namespace avx512 {
static inline __mmask16 below(int64_t i, int64_t count) {
  const int64_t left = count - i;
  return left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
}

// Probabilities at s + i, as fp32 or bf16 of the row that begins at s.
template <bool Bf16>
static inline void put(float* s, int64_t i, __m512 rounded) {
  if constexpr (Bf16)
    simd::store_bf16_avx512(reinterpret_cast<bf16*>(s) + i, rounded);
  else
    _mm512_store_ps(s + i, rounded);
}

template <bool Bf16>
static Softmax softmax(float* s, int64_t count, int64_t width, float scale_) {
  const __m512 scale = _mm512_set1_ps(scale_);
  __m512 most = _mm512_set1_ps(-__builtin_inff());
  for (int64_t i = 0; i < count; i += 16)
    most = _mm512_mask_max_ps(most, below(i, count), _mm512_mul_ps(scale, _mm512_load_ps(s + i)), most);
  const float m = _mm512_reduce_max_ps(most);
  const __m512 top = _mm512_set1_ps(m);
  __m512 l = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += 16) {  // bf16 is narrower than what it overwrites: it never overtakes the loads
    const __m512 e = _mm512_maskz_mov_ps(below(i, count),
                                         simd::exp_avx512(_mm512_sub_ps(_mm512_mul_ps(scale, _mm512_load_ps(s + i)), top)));
    l = _mm512_add_ps(l, e);
    put<Bf16>(s, i, simd::round_bf16_avx512(e));
  }
  for (int64_t i = round_up(count, 16); i < width; i += 16) put<Bf16>(s, i, _mm512_setzero_ps());
  return {m, simd::fold16_avx512(l)};
}

static void fold(Softmax& s, float* o, const Softmax& next, const float* next_o, int64_t dim) {
  const float n = s.m < next.m ? next.m : s.m;
  const __m512 ab = simd::exp_avx512(_mm512_setr_ps(s.m - n, next.m - n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m128 low = _mm512_castps512_ps128(ab);
  const float a_ = _mm_cvtss_f32(low), b_ = _mm_cvtss_f32(_mm_movehdup_ps(low));
  s = {n, __builtin_fmaf(s.l, a_, next.l * b_)};
  const __m512 a = _mm512_set1_ps(a_), b = _mm512_set1_ps(b_);
  for (int64_t d = 0; d < dim; d += 16)
    _mm512_storeu_ps(o + d, _mm512_fmadd_ps(_mm512_loadu_ps(o + d), a, _mm512_mul_ps(_mm512_loadu_ps(next_o + d), b)));
}

static void finish(const float* o, float l_, int64_t dim, bf16* out) {
  const __m512 l = _mm512_set1_ps(l_), zero = _mm512_setzero_ps();
  for (int64_t d = 0; d < dim; d += 16) {
    const __m512 x = _mm512_add_ps(_mm512_div_ps(_mm512_loadu_ps(o + d), l), zero);
    simd::mask_store_bf16_avx512(out + d, below(d, dim), simd::round_bf16_avx512(x));
  }
}

static bool finite(const bf16* v, int64_t n) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 bad = 0;
  for (int64_t i = 0; i < n; i += 32)
    bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_loadu_si512(v + i), exponent), exponent);
  return bad == 0;
}
}  // namespace avx512

void cpu::avx512(const Params& p) {
  static constexpr Tier kTier{Isa::kAvx512, attention::avx512::softmax<false>, attention::avx512::fold,
                              attention::avx512::finish, attention::avx512::finite};
  drive(p, kTier);
}

void cpu::amx(const Params& p) {
  static constexpr Tier kTier{Isa::kAmx, attention::avx512::softmax<true>, attention::avx512::fold,
                              attention::avx512::finish, attention::avx512::finite};
  drive(p, kTier);
}
}  // namespace specpilot::attention
#pragma GCC pop_options
#endif
