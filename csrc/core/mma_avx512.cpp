// AVX-512 tier of the tile product: 16 columns a register, up to 12 rows (24 chains) at once, so that 24 fma share one load,
// one shift and one mask of weights.
#include "core/mma.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/mma_avx512.h"
#include "core/simd.h"
#include "formats/w12.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace specpilot::mma_tiers {
namespace avx512 {
static void pack(const uint16_t* x, int64_t ldx, int m, int64_t k, void* packed) {
  const int64_t padded = round_up(k, 32);
  for (int i = 0; i < m; ++i) {
    float* to = static_cast<float*>(packed) + i * padded;
    for (int64_t j = 0; j < padded; j += 16) {
      const int64_t left = k - j;
      const __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? static_cast<__mmask16>((1u << left) - 1) : 0;
      _mm512_store_ps(to + j, simd::maskz_load_bf16_avx512(mask, x + i * ldx + j));
    }
  }
}

template <int M>
static void rows(const float* a, int64_t lda, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c, int64_t ldc,
                 Prefetch& next) {
  const __m512i high = _mm512_set1_epi32(int(0xffff0000));
  for (int64_t block = 0; block < blocks; ++block, a += 32, b += 16 * pair_stride) {
    next.take();
    __m512 even[M], odd[M];
    for (int i = 0; i < M; ++i) even[i] = odd[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int p = 0; p < 16; ++p) {
      const __m512i v = _mm512_loadu_si512(b + p * pair_stride);
      const __m512 e = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), o = _mm512_castsi512_ps(_mm512_and_si512(v, high));
      for (int i = 0; i < M; ++i) {
        even[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * lda + 2 * p]), e, even[i]);
        odd[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * lda + 2 * p + 1]), o, odd[i]);
      }
    }
    for (int i = 0; i < M; ++i) {
      float* to = c + i * ldc;
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_add_ps(even[i], odd[i])));
    }
  }
}

static void run(const void* a_, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
                int64_t ldc, const char* next, int64_t next_bytes) {
  using Rows = void (*)(const float*, int64_t, const uint16_t*, int64_t, int64_t, float*, int64_t, Prefetch&);
  static constexpr Rows kRows[] = {nullptr, rows<1>, rows<2>, rows<3>,  rows<4>,  rows<5>, rows<6>,
                                   rows<7>, rows<8>, rows<9>, rows<10>, rows<11>, rows<12>};
  const float* a = static_cast<const float*>(a_);
  const int groups = (m + 11) / 12;  // even groups: 16 rows run as 8 + 8, not 12 + 4
  Prefetch ahead(next, next_bytes, groups * blocks);
  for (int g = 0, i = 0; g < groups; ++g) {
    const int n = (m - i + groups - g - 1) / (groups - g);
    kRows[n](a + i * lda, lda, b, pair_stride, blocks, c + i * ldc, ldc, ahead);
    i += n;
  }
}
}  // namespace avx512

// Bytes and nibbles meet inside 128-bit lanes; the base is added to the exponent field of every word that is not a zero.
void avx512_decode_w12(const uint8_t* packed, int64_t tiles, int base_, uint16_t* out, int64_t ahead) {
  const __m512i low4 = _mm512_set1_epi8(15), magnitude = _mm512_set1_epi16(0x7fff);
  const __m512i base = _mm512_set1_epi16(static_cast<int16_t>(base_ << 7));
  // nibble {s, ccc} → high byte s0000ccc
  const __m512i lut =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -128, -127, -126, -125, -124, -123, -122, -121));
  for (int64_t unit = 0; unit < tiles * 4; ++unit, packed += w12::kUnitBytes, out += w12::kUnitWeights) {
    if (ahead > 0)
      for (int line = 0; line < 3; ++line) __builtin_prefetch(packed + ahead + 64 * line, 0, 2);
    const __m512i nib = _mm512_loadu_si512(packed + 128);
    const __m512i h0 = _mm512_shuffle_epi8(lut, _mm512_and_si512(nib, low4));
    const __m512i h1 = _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(nib, 4), low4));
    const __m512i l0 = _mm512_loadu_si512(packed), l1 = _mm512_loadu_si512(packed + 64);
    const __m512i u[4] = {_mm512_unpacklo_epi8(l0, h0), _mm512_unpackhi_epi8(l0, h0), _mm512_unpacklo_epi8(l1, h1),
                          _mm512_unpackhi_epi8(l1, h1)};
    for (int i = 0; i < 4; ++i)
      _mm512_store_si512(out + 32 * i, _mm512_mask_add_epi16(u[i], _mm512_test_epi16_mask(u[i], magnitude), u[i], base));
  }
}

extern const Mma kAvx512{Isa::kAvx512, 4, avx512::pack, [](int) {}, [] {}, avx512::run, avx512_decode_w12, 4};
}  // namespace specpilot::mma_tiers
#pragma GCC pop_options
#endif
