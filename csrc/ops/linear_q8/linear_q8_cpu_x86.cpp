// CPU twins. One driver for all tiers: the rows become integers once, then a thread takes bands of 16 columns and streams their
// bytes through L1, multiplying them with all rows of the block while they are there.
//
//   for row block ─ for band (parallel) ─ for 64 rows:   sums[rows][16] = qx[rows][K] · bytes[K / 4][16][4];   then: scales, bias,
//                                                        rounding, residual
//
//   AVX2      bytes and rows widened to 16 bits, so that VPMADDWD multiplies 16 pairs and sums two neighbours exactly
//   VNNI      VPDPBUSD: 16 columns x 4 k a register, a row's 4 values broadcast from memory
//   AMX       TDPBSUD: 16 rows x 16 columns x 64 k
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/simd.h"
#include "core/thread_pool.h"
#include "ops/linear_q8/linear_q8.h"

namespace specpilot::linear_q8 {
namespace {
constexpr int64_t kRowBlock = 256;  // its integers stay in L2 while all bands pass
constexpr int64_t kRowTile = 64;    // rows whose sums are held at once
constexpr int64_t kRowPad = 16;     // the block's integers are padded to whole row tiles of AMX
constexpr int64_t kAhead = 4096;    // bytes of weights prefetched before their use
constexpr int64_t kSmallBlock = 32768;
constexpr int64_t kGroupBytes = kBand * kGroup;

struct Row {
  float scale;
  int32_t offset;  // 128 sum_k qx
};

struct Tier {
  int64_t x_bytes;  // of an integer of x
  // k values to `padded` integers, zeros behind.
  Row (*quantize)(const bf16* x, int64_t k, int64_t padded, void* q);
  void (*begin)();
  void (*end)();
  // sums[i][16] of `rows` rows and one band; may write up to the next multiple of kRowPad rows. The bytes are read in order.
  void (*product)(const void* x, int64_t ldx, int64_t rows, const uint8_t* w, int64_t groups, int32_t* sums);
  void (*epilogue)(const Params&, const int32_t* sums, const Row* rows, int64_t row, int64_t count, int64_t band);
};

void drive(const Params& p, const Tier& tier) {
  ThreadPool& pool = ThreadPool::instance();
  const int64_t padded = p.padded_k(), groups = padded / kGroup, bytes = padded * tier.x_bytes;
  for (int64_t first = 0; first < p.rows; first += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, p.rows - first), whole = (rows + kRowPad - 1) / kRowPad * kRowPad;
    auto* x = static_cast<char*>(worker_scratch(Scratch::kA, static_cast<size_t>(whole * bytes)));
    auto* row = static_cast<Row*>(worker_scratch(Scratch::kC, static_cast<size_t>(rows) * sizeof(Row)));
    std::memset(x + rows * bytes, 0, static_cast<size_t>((whole - rows) * bytes));
    pool.parallel_for(rows, rows * padded <= kSmallBlock ? rows : 4, [&](int64_t b, int64_t e, int) {
      for (int64_t r = b; r < e; ++r) row[r] = tier.quantize(p.x + (first + r) * p.ldx, p.k, padded, x + r * bytes);
    });
    const int64_t grain = std::max<int64_t>(1, p.bands() / (pool.threads() * 4));
    pool.parallel_for(p.bands(), grain, [&](int64_t b0, int64_t b1, int) {
      alignas(64) int32_t sums[kRowTile * kBand];
      tier.begin();
      for (int64_t band = b0; band < b1; ++band)
        for (int64_t r = 0; r < rows; r += kRowTile) {
          const int64_t count = std::min(kRowTile, rows - r);
          tier.product(x + r * bytes, padded, count, p.data + band * groups * kGroupBytes, groups, sums);
          tier.epilogue(p, sums, row + r, first + r, count, band);
        }
      tier.end();
    });
  }
}
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
static Row quantize(const bf16* x, int64_t k, int64_t padded, void* out) {
  auto* q = static_cast<int16_t*>(out);
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  __m256i most = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    most = _mm256_max_epu16(most, _mm256_and_si256(v, magnitude));
  }
  alignas(32) uint16_t lanes[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  uint16_t largest = *std::max_element(lanes, lanes + 16);
  for (; i < k; ++i) largest = std::max<uint16_t>(largest, x[i] & 0x7fff);

  const RowScale s = row_scale(largest);
  std::memset(q, 0, static_cast<size_t>(padded) * sizeof *q);
  if (!s.factor) return {s.scale, 0};
  const __m256 factor = _mm256_set1_ps(s.factor);
  __m256i sum = _mm256_setzero_si256();
  for (i = 0; i + 8 <= k; i += 8) {
    const __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(simd::load_bf16_avx2(x + i), factor));
    sum = _mm256_add_epi32(sum, v);
    const __m256i narrow = _mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), _mm256_castsi256_si128(narrow));
  }
  alignas(32) int32_t sums[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), sum);
  int32_t total = 0;
  for (const int32_t part : sums) total += part;
  for (; i < k; ++i) total += q[i] = quantized(x[i], s.factor);
  return {s.scale, 128 * total};
}

template <int M>
static void some_rows(const int16_t* x, int64_t ldx, const uint8_t* w, int64_t groups, int32_t* sums) {
  __m256i acc[M][4];  // 4 columns x 2 partial sums each
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < 4; ++j) acc[i][j] = _mm256_setzero_si256();
  for (int64_t g = 0; g < groups; ++g, w += kGroupBytes, x += kGroup) {
    __builtin_prefetch(w + kAhead);
    __m256i a[M];
    for (int i = 0; i < M; ++i) {
      int64_t four;
      std::memcpy(&four, x + i * ldx, sizeof four);
      a[i] = _mm256_set1_epi64x(four);
    }
    for (int j = 0; j < 4; ++j) {
      const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w) + j));
      for (int i = 0; i < M; ++i) acc[i][j] = _mm256_add_epi32(acc[i][j], _mm256_madd_epi16(a[i], b));
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < 4; j += 2) {  // hadd works within halves: columns 0 1, 4 5, 2 3, 6 7
      const __m256i eight = _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[i][j], acc[i][j + 1]), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + i * kBand + 4 * j), eight);
    }
}

static void product(const void* x_, int64_t ldx, int64_t rows, const uint8_t* w, int64_t groups, int32_t* sums) {
  const auto* x = static_cast<const int16_t*>(x_);
  for (; rows >= 3; rows -= 3, x += 3 * ldx, sums += 3 * kBand) some_rows<3>(x, ldx, w, groups, sums);
  if (rows == 2) some_rows<2>(x, ldx, w, groups, sums);
  if (rows == 1) some_rows<1>(x, ldx, w, groups, sums);
}

static void epilogue(const Params& p, const int32_t* sums, const Row* rows, int64_t row, int64_t count, int64_t band) {
  const int64_t n0 = band * kBand, columns = std::min(kBand, p.n - n0);
  for (int64_t i = 0; i < count; ++i, sums += kBand) {
    bf16* y = p.y + (row + i) * p.ldy + n0;
    const bf16* residual = p.residual ? p.residual + (row + i) * p.ld_residual + n0 : nullptr;
    const __m256i offset = _mm256_set1_epi32(rows[i].offset);
    const __m256 sx = _mm256_set1_ps(rows[i].scale);
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) {
      const __m256i sum = _mm256_sub_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums + j)), offset);
      __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(sx, _mm256_loadu_ps(p.scale + n0 + j)));
      if (p.bias) v = _mm256_add_ps(v, simd::load_bf16_avx2(p.bias + n0 + j));
      v = simd::round_bf16_avx2(v);
      if (residual) v = simd::round_bf16_avx2(_mm256_add_ps(simd::load_bf16_avx2(residual + j), v));
      simd::store_bf16_avx2(y + j, v);
    }
    for (; j < columns; ++j) finish(p, row + i, n0 + j, sums[j] - rows[i].offset, rows[i].scale);
  }
}
}  // namespace avx2

void cpu::avx2(const Params& p) {
  static constexpr Tier kTier{2, avx2::quantize, [] {}, [] {}, avx2::product, avx2::epilogue};
  drive(p, kTier);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace vnni {
static Row quantize(const bf16* x, int64_t k, int64_t padded, void* out) {
  auto* q = static_cast<int8_t*>(out);
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 32) {
    const __mmask32 mask = k - i >= 32 ? ~0u : (1u << (k - i)) - 1;
    most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, x + i), magnitude));
  }
  most = _mm512_max_epu16(most, _mm512_srli_epi32(most, 16));
  const RowScale s =
      row_scale(static_cast<bf16>(_mm512_reduce_max_epu32(_mm512_and_si512(most, _mm512_set1_epi32(0xffff)))));
  if (!s.factor) {
    std::memset(q, 0, static_cast<size_t>(padded));
    return {s.scale, 0};
  }
  const __m512 factor = _mm512_set1_ps(s.factor);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < padded; i += 16) {
    const int64_t left = std::clamp<int64_t>(k - i, 0, 16);
    const __m512 v = simd::maskz_load_bf16_avx512(static_cast<__mmask16>((1u << left) - 1), x + i);
    const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(v, factor));
    sum = _mm512_add_epi32(sum, integers);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), _mm512_cvtepi32_epi8(integers));
  }
  return {s.scale, 128 * _mm512_reduce_add_epi32(sum)};
}

// Two chains a row: one link takes as long as 8 to 10 instructions.
template <int M>
static void some_rows(const int8_t* x, int64_t ldx, const uint8_t* w, int64_t groups, int32_t* sums) {
  __m512i even[M], odd[M];
  for (int i = 0; i < M; ++i) even[i] = odd[i] = _mm512_setzero_si512();
  const auto four = [&](int i, int64_t at) {
    int32_t values;
    std::memcpy(&values, x + i * ldx + at, sizeof values);
    return _mm512_set1_epi32(values);
  };
  for (int64_t g = 0; g < groups; g += 2, w += 2 * kGroupBytes, x += 2 * kGroup) {
    __builtin_prefetch(w + kAhead);
    __builtin_prefetch(w + kAhead + kGroupBytes);
    const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + kGroupBytes);
    for (int i = 0; i < M; ++i) {
      even[i] = _mm512_dpbusd_epi32(even[i], w0, four(i, 0));
      odd[i] = _mm512_dpbusd_epi32(odd[i], w1, four(i, kGroup));
    }
  }
  for (int i = 0; i < M; ++i) _mm512_storeu_si512(sums + i * kBand, _mm512_add_epi32(even[i], odd[i]));
}

static void product(const void* x_, int64_t ldx, int64_t rows, const uint8_t* w, int64_t groups, int32_t* sums) {
  using Rows = void (*)(const int8_t*, int64_t, const uint8_t*, int64_t, int32_t*);
  static constexpr Rows kRows[] = {nullptr,      some_rows<1>, some_rows<2>, some_rows<3>, some_rows<4>,
                                   some_rows<5>, some_rows<6>, some_rows<7>, some_rows<8>};
  const auto* x = static_cast<const int8_t*>(x_);
  for (int64_t passes = (rows + 7) / 8; passes > 0; --passes) {  // even passes: 9 rows run as 5 + 4
    const int64_t n = (rows + passes - 1) / passes;
    kRows[n](x, ldx, w, groups, sums);
    rows -= n, x += n * ldx, sums += n * kBand;
  }
}

static void epilogue(const Params& p, const int32_t* sums, const Row* rows, int64_t row, int64_t count, int64_t band) {
  const int64_t n0 = band * kBand, columns = std::min(kBand, p.n - n0);
  const __mmask16 mask = static_cast<__mmask16>((1u << columns) - 1);
  const __m512 scale = _mm512_maskz_loadu_ps(mask, p.scale + n0);
  const __m512 bias = p.bias ? simd::maskz_load_bf16_avx512(mask, p.bias + n0) : _mm512_setzero_ps();
  for (int64_t i = 0; i < count; ++i, sums += kBand) {
    const __m512i sum = _mm512_sub_epi32(_mm512_load_si512(sums), _mm512_set1_epi32(rows[i].offset));
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(_mm512_set1_ps(rows[i].scale), scale));
    if (p.bias) v = _mm512_add_ps(v, bias);
    v = simd::round_bf16_avx512(v);
    if (p.residual) {
      const bf16* residual = p.residual + (row + i) * p.ld_residual + n0;
      v = simd::round_bf16_avx512(_mm512_add_ps(simd::maskz_load_bf16_avx512(mask, residual), v));
    }
    simd::mask_store_bf16_avx512(p.y + (row + i) * p.ldy + n0, mask, v);
  }
}
}  // namespace vnni

void cpu::avx512_vnni(const Params& p) {
  static constexpr Tier kTier{1, vnni::quantize, [] {}, [] {}, vnni::product, vnni::epilogue};
  drive(p, kTier);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-int8")
// tmm0-3: sums of up to four row tiles;  tmm4: their rows, in turns;  tmm5: the bytes.
namespace amx {
static void begin() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } const config;
  _tile_loadconfig(&config);
}

static void end() { _tile_release(); }

template <int Tiles>
static void some_tiles(const int8_t* x, int64_t ldx, const uint8_t* w, int64_t groups, int32_t* sums) {
  _tile_zero(0);
  if constexpr (Tiles > 1) _tile_zero(1);
  if constexpr (Tiles > 2) _tile_zero(2);
  if constexpr (Tiles > 3) _tile_zero(3);
  for (int64_t g = 0; g < groups; g += 16, w += 16 * kGroupBytes, x += kTileK) {
    for (int i = 0; i < 16; ++i) __builtin_prefetch(w + kAhead + i * kGroupBytes);
    _tile_loadd(5, w, kGroupBytes);
    _tile_loadd(4, x, ldx);
    _tile_dpbsud(0, 4, 5);
    if constexpr (Tiles > 1) {
      _tile_loadd(4, x + 16 * ldx, ldx);
      _tile_dpbsud(1, 4, 5);
    }
    if constexpr (Tiles > 2) {
      _tile_loadd(4, x + 32 * ldx, ldx);
      _tile_dpbsud(2, 4, 5);
    }
    if constexpr (Tiles > 3) {
      _tile_loadd(4, x + 48 * ldx, ldx);
      _tile_dpbsud(3, 4, 5);
    }
  }
  _tile_stored(0, sums, kBand * 4);
  if constexpr (Tiles > 1) _tile_stored(1, sums + 16 * kBand, kBand * 4);
  if constexpr (Tiles > 2) _tile_stored(2, sums + 32 * kBand, kBand * 4);
  if constexpr (Tiles > 3) _tile_stored(3, sums + 48 * kBand, kBand * 4);
}

static void product(const void* x, int64_t ldx, int64_t rows, const uint8_t* w, int64_t groups, int32_t* sums) {
  using RowTiles = void (*)(const int8_t*, int64_t, const uint8_t*, int64_t, int32_t*);
  static constexpr RowTiles kTiles[] = {some_tiles<1>, some_tiles<2>, some_tiles<3>, some_tiles<4>};
  kTiles[(rows - 1) / 16](static_cast<const int8_t*>(x), ldx, w, groups, sums);
}
}  // namespace amx

void cpu::amx(const Params& p) {
  static constexpr Tier kTier{1, vnni::quantize, amx::begin, amx::end, amx::product, vnni::epilogue};
  drive(p, kTier);
}
#pragma GCC pop_options
}  // namespace specpilot::linear_q8
#endif
