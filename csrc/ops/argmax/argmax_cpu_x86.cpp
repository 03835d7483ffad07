// CPU twins. A part of a row is scanned for its maximum, block by block; only the block that holds it is looked at again for
// the place. Keys are those of the reference: 16-bit integers that sort as the numbers do, NaN lowest.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/thread_pool.h"
#include "ops/argmax/argmax.h"

namespace specpilot::argmax {
namespace {
constexpr int64_t kPart = 16384;    // logits: a row's parts are scanned by different threads
constexpr int64_t kGrainParts = 4;  // some 10 us of work: less stays on the caller
constexpr int64_t kBlock = 512;
constexpr bf16 kNan = 0x7fff;

struct Best {
  int32_t key, at;
};
using Scan = Best (*)(const bf16* x, int64_t n);  // the first of the largest of x[0 … n)

void drive(const Params& p, Scan scan) {
  const int64_t parts = (p.valid_vocab + kPart - 1) / kPart;
  auto* best = static_cast<Best*>(worker_scratch(Scratch::kA, p.rows * parts * sizeof(Best)));
  ThreadPool::instance().parallel_for(p.rows * parts, kGrainParts, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at / parts, first = at % parts * kPart;
      best[at] = scan(p.logits + row * p.ld + first, std::min(kPart, p.valid_vocab - first));
    }
  });
  for (int64_t row = 0; row < p.rows; ++row) {
    const Best* part = best + row * parts;
    int64_t top = 0;
    for (int64_t i = 1; i < parts; ++i)
      if (part[i].key > part[top].key) top = i;
    p.ids[row] = static_cast<int32_t>(top * kPart) + part[top].at;
    if (!p.margin) continue;
    int32_t second = kNanKey;
    for (int64_t i = 0; i < parts; ++i)
      if (i != top) second = std::max(second, part[i].key);
    // What the winner beat in its own part: the part is in a cache still.
    const bf16* x = p.logits + row * p.ld + top * kPart;
    const int64_t n = std::min(kPart, p.valid_vocab - top * kPart), at = part[top].at;
    if (at > 0) second = std::max(second, scan(x, at).key);
    if (at + 1 < n) second = std::max(second, scan(x + at + 1, n - at - 1).key);
    p.margin[row] = margin(part[top].key, second);
  }
}
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace cpu {
// Keys of x[0 … 16), NaN's from n on.
static __m256i keys_avx2(const bf16* x, int64_t n) {
  __m256i v;
  if (n >= 16) {
    v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  } else {
    bf16 padded[16];
    std::fill(padded, padded + 16, kNan);
    std::memcpy(padded, x, n * sizeof(bf16));
    v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(padded));
  }
  const __m256i magnitude = _mm256_and_si256(v, _mm256_set1_epi16(0x7fff));
  const __m256i nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7f80));
  return _mm256_blendv_epi8(_mm256_sign_epi16(magnitude, v), _mm256_set1_epi16(INT16_MIN), nan);
}

static int16_t max_avx2(__m256i v) {
  const __m128i half = _mm_max_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i falling = _mm_xor_si128(half, _mm_set1_epi16(0x7fff));  // unsigned order is the reverse of the keys'
  return static_cast<int16_t>(_mm_extract_epi16(_mm_minpos_epu16(falling), 0) ^ 0x7fff);
}

static Best scan_avx2(const bf16* x, int64_t n) {
  int16_t key = INT16_MIN;
  int64_t block = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t end = std::min(i + kBlock, n);
    __m256i m = _mm256_set1_epi16(INT16_MIN), other = m;  // two chains of max
    int64_t j = i;
    for (; j + 32 <= end; j += 32) {
      m = _mm256_max_epi16(m, keys_avx2(x + j, 16));
      other = _mm256_max_epi16(other, keys_avx2(x + j + 16, 16));
    }
    for (; j < end; j += 16) m = _mm256_max_epi16(m, keys_avx2(x + j, end - j));
    m = _mm256_max_epi16(m, other);
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi16(m, _mm256_set1_epi16(key)))) key = max_avx2(m), block = i;
  }
  for (int64_t j = block;; j += 16) {
    const __m256i same = _mm256_cmpeq_epi16(keys_avx2(x + j, n - j), _mm256_set1_epi16(key));
    if (const auto bits = static_cast<uint32_t>(_mm256_movemask_epi8(same)); bits)
      return {key, static_cast<int32_t>(j + std::countr_zero(bits) / 2)};
  }
}

void avx2(const Params& p) { drive(p, scan_avx2); }
}  // namespace cpu
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace cpu {
// Keys of x[0 … 32), NaN's from n on.
static __m512i keys_avx512(const bf16* x, int64_t n) {
  const __mmask32 have = n >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint32_t{1} << n) - 1);
  const __m512i v = _mm512_mask_loadu_epi16(_mm512_set1_epi16(kNan), have, x);
  const __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi16(0x7fff));
  const __mmask32 nan = _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  const __m512i key = _mm512_mask_sub_epi16(magnitude, _mm512_movepi16_mask(v), _mm512_setzero_si512(), magnitude);
  return _mm512_mask_mov_epi16(key, nan, _mm512_set1_epi16(INT16_MIN));
}

static int16_t max_avx512(__m512i v) {
  const __m256i quarter = _mm256_max_epi16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  const __m128i half = _mm_max_epi16(_mm256_castsi256_si128(quarter), _mm256_extracti128_si256(quarter, 1));
  const __m128i falling = _mm_xor_si128(half, _mm_set1_epi16(0x7fff));
  return static_cast<int16_t>(_mm_extract_epi16(_mm_minpos_epu16(falling), 0) ^ 0x7fff);
}

static Best scan_avx512(const bf16* x, int64_t n) {
  int16_t key = INT16_MIN;
  int64_t block = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t end = std::min(i + kBlock, n);
    __m512i m = _mm512_set1_epi16(INT16_MIN), other = m;  // two chains of max
    int64_t j = i;
    for (; j + 64 <= end; j += 64) {
      m = _mm512_max_epi16(m, keys_avx512(x + j, 32));
      other = _mm512_max_epi16(other, keys_avx512(x + j + 32, 32));
    }
    for (; j < end; j += 32) m = _mm512_max_epi16(m, keys_avx512(x + j, end - j));
    m = _mm512_max_epi16(m, other);
    if (_mm512_cmpgt_epi16_mask(m, _mm512_set1_epi16(key))) key = max_avx512(m), block = i;
  }
  for (int64_t j = block;; j += 32) {
    const __mmask32 same = _mm512_cmpeq_epi16_mask(keys_avx512(x + j, n - j), _mm512_set1_epi16(key));
    if (same) return {key, static_cast<int32_t>(j + std::countr_zero(static_cast<uint32_t>(same)))};
  }
}

void avx512(const Params& p) { drive(p, scan_avx512); }
}  // namespace cpu
#pragma GCC pop_options
}  // namespace specpilot::argmax
#endif
