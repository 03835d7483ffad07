// AVX2 tier of the tile product. 8 columns a register; a tile of 3 rows x 16 columns keeps its 12 chains and the operands in
// 16 registers. Loads and fma bind; see docs/numerics.md for the order.
#include "core/mma.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/simd.h"
#include "formats/w12.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace specpilot::mma_tiers {
namespace avx2 {
static void pack(const uint16_t* x, int64_t ldx, int m, int64_t k, void* packed) {
  const int64_t padded = round_up(k, 32);
  for (int i = 0; i < m; ++i) {
    const uint16_t* from = x + i * ldx;
    float* to = static_cast<float*>(packed) + i * padded;
    int64_t j = 0;
    for (; j + 8 <= k; j += 8) _mm256_store_ps(to + j, simd::load_bf16_avx2(from + j));
    for (; j < padded; ++j) to[j] = j < k ? to_f32(from[j]) : 0.0f;
  }
}

static inline __m256 even_of(__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
static inline __m256 odd_of(__m256i v) {
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000))));
}

template <int M>
static void rows(const float* a, int64_t lda, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c, int64_t ldc,
                 Prefetch& next) {
  for (int64_t block = 0; block < blocks; ++block, a += 32, b += 16 * pair_stride) {
    next.take();
    __m256 even[M][2], odd[M][2];
    for (int i = 0; i < M; ++i)
      for (int h = 0; h < 2; ++h) even[i][h] = odd[i][h] = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int p = 0; p < 16; ++p) {
      const auto* row = reinterpret_cast<const __m256i*>(b + p * pair_stride);
      const __m256i v0 = _mm256_loadu_si256(row), v1 = _mm256_loadu_si256(row + 1);
      const __m256 e0 = even_of(v0), e1 = even_of(v1), o0 = odd_of(v0), o1 = odd_of(v1);
      for (int i = 0; i < M; ++i) {
        const __m256 xe = _mm256_broadcast_ss(a + i * lda + 2 * p), xo = _mm256_broadcast_ss(a + i * lda + 2 * p + 1);
        even[i][0] = _mm256_fmadd_ps(xe, e0, even[i][0]);
        even[i][1] = _mm256_fmadd_ps(xe, e1, even[i][1]);
        odd[i][0] = _mm256_fmadd_ps(xo, o0, odd[i][0]);
        odd[i][1] = _mm256_fmadd_ps(xo, o1, odd[i][1]);
      }
    }
    for (int i = 0; i < M; ++i)
      for (int h = 0; h < 2; ++h) {
        float* to = c + i * ldc + 8 * h;
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_add_ps(even[i][h], odd[i][h])));
      }
  }
}

static void run(const void* a_, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
                int64_t ldc, const char* next, int64_t next_bytes) {
  const float* a = static_cast<const float*>(a_);
  Prefetch ahead(next, next_bytes, (m + 1) / 2 * blocks);
  int i = 0;
  for (; i + 2 <= m; i += 2) rows<2>(a + i * lda, lda, b, pair_stride, blocks, c + i * ldc, ldc, ahead);
  if (i < m) rows<1>(a + i * lda, lda, b, pair_stride, blocks, c + i * ldc, ldc, ahead);
}

// Bytes and nibbles meet inside 128-bit lanes; the base is added to the exponent field of every word that is not a zero.
static inline __m256i words(__m256i u, __m256i base) {
  const __m256i magnitude = _mm256_and_si256(u, _mm256_set1_epi16(0x7fff));
  return _mm256_add_epi16(u, _mm256_sign_epi16(base, magnitude));
}

static void decode_w12(const uint8_t* packed, int64_t tiles, int base_, uint16_t* out, int64_t ahead) {
  const __m256i low4 = _mm256_set1_epi8(15), base = _mm256_set1_epi16(static_cast<int16_t>(base_ << 7));
  // nibble {s, ccc} → high byte s0000ccc
  const __m256i lut =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -128, -127, -126, -125, -124, -123, -122, -121));
  for (int64_t unit = 0; unit < tiles * 4; ++unit, packed += w12::kUnitBytes, out += w12::kUnitWeights) {
    if (ahead > 0)
      for (int line = 0; line < 3; ++line) __builtin_prefetch(packed + ahead + 64 * line);
    for (int half = 0; half < 2; ++half) {  // columns 0…7, 8…15
      const auto* in = reinterpret_cast<const __m256i*>(packed) + half;
      auto* to = reinterpret_cast<__m256i*>(out) + half;
      const __m256i nib = _mm256_loadu_si256(in + 4);
      const __m256i h0 = _mm256_shuffle_epi8(lut, _mm256_and_si256(nib, low4));
      const __m256i h1 = _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(nib, 4), low4));
      const __m256i l0 = _mm256_loadu_si256(in), l1 = _mm256_loadu_si256(in + 2);
      _mm256_store_si256(to, words(_mm256_unpacklo_epi8(l0, h0), base));
      _mm256_store_si256(to + 2, words(_mm256_unpackhi_epi8(l0, h0), base));
      _mm256_store_si256(to + 4, words(_mm256_unpacklo_epi8(l1, h1), base));
      _mm256_store_si256(to + 6, words(_mm256_unpackhi_epi8(l1, h1), base));
    }
  }
}
}  // namespace avx2
extern const Mma kAvx2{Isa::kAvx2, 4, avx2::pack, [](int) {}, [] {}, avx2::run, avx2::decode_w12, 2};
}  // namespace specpilot::mma_tiers
#pragma GCC pop_options
#endif
