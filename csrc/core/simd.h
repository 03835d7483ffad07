// Vector forms of core/bf16.h, one set per tier. Every function carries its own target attribute and a name of its tier, so
// no copy of it can be picked by the linker for another tier. Include before any code; they inline into functions of that
// target.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "core/bf16.h"

#define SP_AVX2 __attribute__((target("avx2,fma"))) static inline
#define SP_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) static inline

namespace specpilot::simd {
// ---- 8 lanes ----
SP_AVX2 __m256 load_bf16_avx2(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
// bf16 rounding in place: fp32 lanes whose low halves are zero.
SP_AVX2 __m256 round_bf16_avx2(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(_mm256_and_si256(u, _mm256_set1_epi32(INT32_MIN)), _mm256_set1_epi32(0x7fc00000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_blendv_epi8(r, quiet, nan), _mm256_set1_epi32(int(0xffff0000))));
}
// Lanes must already be rounded (low halves zero).
SP_AVX2 void store_bf16_avx2(uint16_t* p, __m256 rounded) {
  const __m256i hi = _mm256_srli_epi32(_mm256_castps_si256(rounded), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(hi, hi), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
SP_AVX2 __m256 exp_avx2(__m256 x) {
  const __m256 in = x;
  x = _mm256_min_ps(x, _mm256_set1_ps(kExpHigh));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2e)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExpPoly[0]);
  for (int i = 1; i < 8; ++i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPoly[i]));
  const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23));
  const __m256 low = _mm256_cmp_ps(in, _mm256_set1_ps(kExpLow), _CMP_LT_OQ);
  const __m256 out = _mm256_andnot_ps(low, _mm256_castsi256_ps(scaled));
  return _mm256_blendv_ps(out, in, _mm256_cmp_ps(in, in, _CMP_UNORD_Q));
}
// 16 partials in two registers, folded as fold16 does.
SP_AVX2 float fold16_avx2(__m256 lo, __m256 hi) {
  const __m256 a = _mm256_add_ps(lo, hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

// ---- 16 lanes ----
SP_AVX512 __m512 load_bf16_avx512(const uint16_t* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
SP_AVX512 __m512 maskz_load_bf16_avx512(__mmask16 m, const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}
SP_AVX512 __m512 round_bf16_avx512(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(_mm512_and_si512(u, _mm512_set1_epi32(INT32_MIN)), _mm512_set1_epi32(0x7fc00000));
  r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
  return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(int(0xffff0000))));
}
SP_AVX512 __m256i narrow_bf16_avx512(__m512 rounded) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(rounded), 16));
}
SP_AVX512 void store_bf16_avx512(uint16_t* p, __m512 rounded) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16_avx512(rounded));
}
SP_AVX512 void mask_store_bf16_avx512(uint16_t* p, __mmask16 m, __m512 rounded) {
  _mm256_mask_storeu_epi16(p, m, narrow_bf16_avx512(rounded));
}
SP_AVX512 __m512 exp_avx512(__m512 x) {
  const __m512 in = x;
  x = _mm512_min_ps(x, _mm512_set1_ps(kExpHigh));
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2e)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2High), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpPoly[0]);
  for (int i = 1; i < 8; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpPoly[i]));
  const __m512i scaled = _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23));
  const __mmask16 low = _mm512_cmp_ps_mask(in, _mm512_set1_ps(kExpLow), _CMP_LT_OQ);
  const __m512 out = _mm512_mask_mov_ps(_mm512_castsi512_ps(scaled), low, _mm512_setzero_ps());
  return _mm512_mask_mov_ps(out, _mm512_cmp_ps_mask(in, in, _CMP_UNORD_Q), in);
}
SP_AVX512 float fold16_avx512(__m512 p) {
  const __m256 lo = _mm512_castps512_ps256(p), hi = _mm512_extractf32x8_ps(p, 1);
  const __m256 a = _mm256_add_ps(lo, hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
}  // namespace specpilot::simd
#endif
