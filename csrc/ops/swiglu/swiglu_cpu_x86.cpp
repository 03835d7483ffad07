// CPU twins, 16 elements a step. Work is cut into (row, column block) pieces, so that one wide row spreads over threads too.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/simd.h"
#include "core/thread_pool.h"
#include "ops/swiglu/swiglu.h"

namespace specpilot::swiglu {
namespace {
constexpr int64_t kLanes = 16;
constexpr int64_t kPiece = 1024;  // columns

// n elements of one row.
using Piece = void (*)(const bf16* g, const bf16* u, bf16* y, int64_t n);

// `grain`: pieces worth some 10 us; less work stays on the caller.
void drive(const Params& p, int64_t grain, Piece piece) {
  const int64_t pieces = (p.width + kPiece - 1) / kPiece;
  ThreadPool::instance().parallel_for(p.rows * pieces, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at / pieces, first = at % pieces * kPiece;
      const bf16* g = p.gate_up + row * p.ld_in + first;
      piece(g, g + p.width, p.y + row * p.ld_out + first, std::min(kPiece, p.width - first));
    }
  });
}
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace cpu {
static void gate8_avx2(const bf16* gate, const bf16* up, bf16* y) {
  const __m256 g = simd::load_bf16_avx2(gate);
  const __m256 e = simd::exp_avx2(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
  const __m256 silu = simd::round_bf16_avx2(_mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e)));
  simd::store_bf16_avx2(y, simd::round_bf16_avx2(_mm256_mul_ps(silu, simd::load_bf16_avx2(up))));
}

static void piece_avx2(const bf16* g, const bf16* u, bf16* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {  // two chains of 8: their latencies overlap
    gate8_avx2(g + i, u + i, y + i);
    gate8_avx2(g + i + 8, u + i + 8, y + i + 8);
  }
  if (i == n) return;
  bf16 last_g[kLanes] = {}, last_u[kLanes] = {};
  std::memcpy(last_g, g + i, (n - i) * sizeof(bf16));
  std::memcpy(last_u, u + i, (n - i) * sizeof(bf16));
  for (int j = 0; j < kLanes; j += 8) gate8_avx2(last_g + j, last_u + j, last_g + j);
  std::memcpy(y + i, last_g, (n - i) * sizeof(bf16));
}

void avx2(const Params& p) { drive(p, 4, piece_avx2); }
}  // namespace cpu
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace cpu {
static __m512 gate_avx512(__m512 g, __m512 u) {
  const __m512 e = simd::exp_avx512(_mm512_xor_ps(g, _mm512_set1_ps(-0.0f)));
  const __m512 silu = simd::round_bf16_avx512(_mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e)));
  return simd::round_bf16_avx512(_mm512_mul_ps(silu, u));
}

static void piece_avx512(const bf16* g, const bf16* u, bf16* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    simd::store_bf16_avx512(y + i, gate_avx512(simd::load_bf16_avx512(g + i), simd::load_bf16_avx512(u + i)));
  const __mmask16 rest = static_cast<__mmask16>((1u << (n - i)) - 1);
  if (!rest) return;
  const __m512 out = gate_avx512(simd::maskz_load_bf16_avx512(rest, g + i), simd::maskz_load_bf16_avx512(rest, u + i));
  simd::mask_store_bf16_avx512(y + i, rest, out);
}

void avx512(const Params& p) { drive(p, 12, piece_avx512); }
}  // namespace cpu
#pragma GCC pop_options
}  // namespace specpilot::swiglu
#endif
