// CPU twins. Heads are normed by rmsnorm's twins and rotated by the tier's kernel; the writes to the cache take two rows at a
// time where those go to a pair of neighbouring slots, as prompts and drafts mostly do.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/simd.h"
#include "core/thread_pool.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::rope_kv {
namespace {
struct Tier {
  void (*norm)(const rmsnorm::Params&);
  // One head; cos and sin of its position.
  void (*rotate)(const bf16* in, const bf16* cos, const bf16* sin, int64_t half, bf16* out);
  int64_t grain;  // elements worth some 10 us; less work stays on the caller
};

// One worker's view of a call.
class Writer {
 public:
  Writer(const Params& p, const Tier& tier) : p_(p), tier_(tier) {
    const int64_t normed = std::max(p.q_heads, p.kv_heads) * p.dim, keys = p.kv_heads * p.dim_padded;
    normed_ = static_cast<bf16*>(worker_scratch(Scratch::kA, (normed + 2 * keys) * sizeof(bf16)));
    keys_[0] = normed_ + normed, keys_[1] = keys_[0] + keys;
  }

  void queries(int64_t r) const { heads(row(r), p_.q_heads, p_.q_norm, r, p_.q_out + r * p_.q_heads * p_.dim_padded); }

  void one(int64_t r) const {
    if (p_.slots[r] < 0) return;
    rotate_keys(r, keys_[0]);
    const int64_t t = p_.slots[r] % kBlockSlots;
    for (int64_t h = 0; h < p_.kv_heads; ++h) {
      const bf16* key = keys_[0] + h * p_.dim_padded;
      const bf16* value = values(r, h);
      bf16* k = key_lane(r, h);
      bf16* v = p_.v_cache + block(r, h) + t / 2 * 2 * p_.dim_padded + t % 2;
      for (int64_t d = 0; d < p_.dim_padded; d += 2) std::memcpy(k + d * 16, key + d, 2 * sizeof(bf16));
      for (int64_t d = 0; d < p_.dim; ++d) v[2 * d] = value[d];
      for (int64_t d = p_.dim; d < p_.dim_padded; ++d) v[2 * d] = 0;
    }
  }

  // Rows r and r + 1 go to slots 2 n and 2 n + 1.
  bool pair(int64_t r) const { return p_.slots[r] >= 0 && p_.slots[r] % 2 == 0 && p_.slots[r + 1] == p_.slots[r] + 1; }
  void two(int64_t r) const {
    for (int i = 0; i < 2; ++i) rotate_keys(r + i, keys_[i]);
    for (int64_t h = 0; h < p_.kv_heads; ++h) {
      interleave_keys(keys_[0] + h * p_.dim_padded, keys_[1] + h * p_.dim_padded, key_lane(r, h));
      bf16* v = p_.v_cache + block(r, h) + p_.slots[r] % kBlockSlots * p_.dim_padded;
      interleave_values(values(r, h), values(r + 1, h), v);
    }
  }

 private:
  const bf16* row(int64_t r) const { return p_.qkv + r * p_.ld_qkv; }
  const bf16* values(int64_t r, int64_t h) const { return row(r) + (p_.q_heads + p_.kv_heads + h) * p_.dim; }
  int64_t block(int64_t r, int64_t h) const {
    return (p_.slots[r] / kBlockSlots * p_.kv_heads + h) * kBlockSlots * p_.dim_padded;
  }
  // Where dims 0 and 1 of the row's key go; those after them follow at steps of 32.
  bf16* key_lane(int64_t r, int64_t h) const {
    const int64_t t = p_.slots[r] % kBlockSlots;
    return p_.k_cache + block(r, h) + t / 16 * 16 * p_.dim_padded + t % 16 * 2;
  }

  void rotate_keys(int64_t r, bf16* out) const { heads(row(r) + p_.q_heads * p_.dim, p_.kv_heads, p_.k_norm, r, out); }

  // in [count, D] → out [count, Dp]
  void heads(const bf16* in, int64_t count, const bf16* weight, int64_t r, bf16* out) const {
    if (weight) {
      tier_.norm({in, weight, normed_, count, p_.dim, p_.dim, p_.dim, p_.norm_denom, p_.eps, nullptr});
      in = normed_;
    }
    const int64_t half = p_.dim / 2, at = p_.positions[r] * half;
    for (int64_t h = 0; h < count; ++h, in += p_.dim, out += p_.dim_padded) {
      tier_.rotate(in, p_.cos + at, p_.sin + at, half, out);
      std::fill(out + p_.dim, out + p_.dim_padded, bf16{0});
    }
  }

  static __m128i load(const bf16* x) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)); }
  static void store(bf16* x, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(x), v); }

  void interleave_keys(const bf16* a, const bf16* b, bf16* k) const {
    for (int64_t d = 0; d < p_.dim_padded; d += 8, k += 128) {
      const __m128i low = _mm_unpacklo_epi32(load(a + d), load(b + d)), high = _mm_unpackhi_epi32(load(a + d), load(b + d));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(k), low);
      _mm_storeh_pd(reinterpret_cast<double*>(k + 32), _mm_castsi128_pd(low));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(k + 64), high);
      _mm_storeh_pd(reinterpret_cast<double*>(k + 96), _mm_castsi128_pd(high));
    }
  }

  void interleave_values(const bf16* a, const bf16* b, bf16* v) const {
    int64_t d = 0;
    for (; d + 8 <= p_.dim; d += 8) {
      store(v + 2 * d, _mm_unpacklo_epi16(load(a + d), load(b + d)));
      store(v + 2 * d + 8, _mm_unpackhi_epi16(load(a + d), load(b + d)));
    }
    for (; d < p_.dim; ++d) v[2 * d] = a[d], v[2 * d + 1] = b[d];
    std::fill(v + 2 * p_.dim, v + 2 * p_.dim_padded, bf16{0});
  }

  const Params& p_;
  const Tier& tier_;
  bf16* normed_;   // [max(Hq, Hkv), D]
  bf16* keys_[2];  // [Hkv, Dp] each: rotated, on their way to the cache
};

// A slot has one writer, and no write reads what lies beside it: rows may go to any thread.
void drive(const Params& p, const Tier& tier) {
  const int64_t elements = std::max<int64_t>(1, (p.q_heads + 2 * p.kv_heads) * p.dim);
  ThreadPool::instance().parallel_for(p.rows, tier.grain / elements, [&](int64_t begin, int64_t end, int) {
    const Writer writer(p, tier);
    for (int64_t r = begin; r < end; ++r) {
      writer.queries(r);
      if (r + 1 < end && writer.pair(r)) {
        writer.two(r);
        writer.queries(++r);
      } else {
        writer.one(r);
      }
    }
  });
}
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace cpu {
static inline __m256 sum_avx2(__m256 a, __m256 b) {
  return simd::round_bf16_avx2(_mm256_add_ps(simd::round_bf16_avx2(a), simd::round_bf16_avx2(b)));
}

static inline void rotate8_avx2(const bf16* low, const bf16* high, const bf16* cos, const bf16* sin, bf16* out_low,
                                bf16* out_high) {
  const __m256 a = simd::load_bf16_avx2(low), b = simd::load_bf16_avx2(high);
  const __m256 c = simd::load_bf16_avx2(cos), s = simd::load_bf16_avx2(sin);
  const __m256 minus_b = _mm256_xor_ps(b, _mm256_set1_ps(-0.0f));
  simd::store_bf16_avx2(out_low, sum_avx2(_mm256_mul_ps(a, c), _mm256_mul_ps(minus_b, s)));
  simd::store_bf16_avx2(out_high, sum_avx2(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
}

static void rotate_avx2(const bf16* in, const bf16* cos, const bf16* sin, int64_t half, bf16* out) {
  int64_t i = 0;
  for (; i + 8 <= half; i += 8) rotate8_avx2(in + i, in + half + i, cos + i, sin + i, out + i, out + half + i);
  if (i == half) return;
  const size_t rest = (half - i) * sizeof(bf16);
  bf16 low[8] = {}, high[8] = {}, c[8] = {}, s[8] = {};
  std::memcpy(low, in + i, rest);
  std::memcpy(high, in + half + i, rest);
  std::memcpy(c, cos + i, rest);
  std::memcpy(s, sin + i, rest);
  rotate8_avx2(low, high, c, s, low, high);
  std::memcpy(out + i, low, rest);
  std::memcpy(out + half + i, high, rest);
}

void avx2(const Params& p) { drive(p, {rmsnorm::cpu::avx2, rotate_avx2, 16384}); }
}  // namespace cpu
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace cpu {
static inline __m512 sum_avx512(__m512 a, __m512 b) {
  return simd::round_bf16_avx512(_mm512_add_ps(simd::round_bf16_avx512(a), simd::round_bf16_avx512(b)));
}

static void rotate_avx512(const bf16* in, const bf16* cos, const bf16* sin, int64_t half, bf16* out) {
  for (int64_t i = 0; i < half; i += 16) {
    const __mmask16 m = half - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (half - i)) - 1);
    const __m512 a = simd::maskz_load_bf16_avx512(m, in + i), b = simd::maskz_load_bf16_avx512(m, in + half + i);
    const __m512 c = simd::maskz_load_bf16_avx512(m, cos + i), s = simd::maskz_load_bf16_avx512(m, sin + i);
    const __m512 minus_b = _mm512_xor_ps(b, _mm512_set1_ps(-0.0f));
    simd::mask_store_bf16_avx512(out + i, m, sum_avx512(_mm512_mul_ps(a, c), _mm512_mul_ps(minus_b, s)));
    simd::mask_store_bf16_avx512(out + half + i, m, sum_avx512(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
  }
}

void avx512(const Params& p) { drive(p, {rmsnorm::cpu::avx512, rotate_avx512, 32768}); }
}  // namespace cpu
#pragma GCC pop_options
}  // namespace specpilot::rope_kv
#endif
