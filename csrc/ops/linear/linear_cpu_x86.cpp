// CPU twins. One driver for all tiers: a thread takes bands of 16 output columns, streams their weights once through L1 in
// chunks of 512 k (w12 chunks are decoded into 16 KB of scratch, exceptions patched) and multiplies each chunk with all rows
// of the row block before the next one arrives. So weights are read once for up to kRowBlock rows, and w12 costs its decode
// once.
//
//   for row block ─ for band (parallel) ─ for chunk of k:   c[rows][16] += a[rows][512] · tile chunk[256 pair rows][16]
//                                          then: bias, rounding, residual
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/mma.h"
#include "core/simd.h"
#include "core/thread_pool.h"
#include "formats/w12.h"
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
constexpr int64_t kMaxChunkTiles = 16;    // 512 k: a decoded chunk and the prefetched next one fit L1
constexpr int64_t kStreamChunkTiles = 4;  // few rows: short phases, so that decoding and products overlap out of order
constexpr int64_t kStreamAhead = 8192;    // bytes prefetched into L2; on a Xeon with AMX 4 to 16 KB alike, 2 KB slower
constexpr int64_t kSmallPack = 32768;

// c: fp32 [rows, 16] of one band → y.
using Epilogue = void (*)(const Params&, const float* c, int64_t row, int64_t rows, int64_t band);

// The weights of one band, chunk by chunk, as pair rows.
class BandReader {
 public:
  BandReader(const Weight& w, const Mma& mma, int64_t band)
      : w_(w), mma_(mma), band_(band), exception_(w.format == Format::kW12 ? w.exc_begin[band] : 0) {}

  // Bytes of memory that `tiles` tiles take, and where those of `tile` begin.
  int64_t bytes(int64_t tiles) const {
    return tiles * (w_.format == Format::kBf16 ? w12::kTileWeights * 2 : w12::kTileBytes);
  }
  const char* address(int64_t tile) const { return reinterpret_cast<const char*>(w_.data) + bytes(band_ * w_.tiles + tile); }

  const uint16_t* chunk(int64_t tile, int64_t tiles, int64_t ahead) {
    const int64_t at = band_ * w_.tiles + tile;
    if (w_.format == Format::kBf16) return reinterpret_cast<const uint16_t*>(w_.data) + at * w12::kTileWeights;
    auto* out = static_cast<uint16_t*>(worker_scratch(Scratch::kB, kMaxChunkTiles * w12::kTileWeights * 2));
    mma_.decode_w12(w_.data + at * w12::kTileBytes, tiles, w_.base[band_], out, ahead);
    const uint32_t first = static_cast<uint32_t>(tile * w12::kTileWeights),
                   last = first + static_cast<uint32_t>(tiles * w12::kTileWeights);
    for (; exception_ < w_.exc_begin[band_ + 1] && w_.exc_pos[exception_] < last; ++exception_)
      out[w_.exc_pos[exception_] - first] = w_.exc_val[exception_];
    return out;
  }

 private:
  const Weight& w_;
  const Mma& mma_;
  int64_t band_;
  uint32_t exception_;
};

// Rows [row, row + rows) of A in the tier's form; direct where the tier reads bf16 rows as they are.
const char* packed_rows(const Params& p, const Mma& mma, int64_t row, int64_t rows, int64_t* lda) {
  const bf16* x = p.x + row * p.ldx;
  if (mma.a_bytes == 2 && p.w.k % w12::kTileK == 0) {
    *lda = p.ldx;
    return reinterpret_cast<const char*>(x);
  }
  const int64_t padded = p.w.tiles * w12::kTileK;
  *lda = padded;
  char* a = static_cast<char*>(worker_scratch(Scratch::kA, static_cast<size_t>(rows * padded * mma.a_bytes)));
  const int64_t grain = rows * padded <= kSmallPack ? rows : 4;
  ThreadPool::instance().parallel_for(rows, grain, [&](int64_t b, int64_t e, int) {
    mma.pack(x + b * p.ldx, p.ldx, static_cast<int>(e - b), p.w.k, a + b * padded * mma.a_bytes);
  });
  return a;
}

void drive(const Params& p, const Mma& mma, int64_t row_block, Epilogue epilogue) {
  ThreadPool& pool = ThreadPool::instance();
  for (int64_t row = 0; row < p.rows; row += row_block) {
    const int64_t rows = std::min(row_block, p.rows - row);
    int64_t lda;
    const char* a = packed_rows(p, mma, row, rows, &lda);
    const bool stream = p.w.format == Format::kW12 && rows <= mma.streaming_rows;
    const int64_t chunks = (p.w.tiles + kMaxChunkTiles - 1) / kMaxChunkTiles;
    const int64_t chunk = stream ? kStreamChunkTiles : (p.w.tiles + chunks - 1) / chunks;
    const int64_t grain = std::max<int64_t>(1, p.w.bands / (pool.threads() * 4));
    pool.parallel_for(p.w.bands, grain, [&](int64_t b0, int64_t b1, int) {
      float* c = static_cast<float*>(worker_scratch(Scratch::kC, static_cast<size_t>(rows) * w12::kBand * 4));
      mma.begin(static_cast<int>(rows));
      for (int64_t band = b0; band < b1; ++band) {
        std::memset(c, 0, static_cast<size_t>(rows) * w12::kBand * 4);
        BandReader weights(p.w, mma, band);
        for (int64_t t = 0; t < p.w.tiles; t += chunk) {
          const int64_t tiles = std::min(chunk, p.w.tiles - t);
          const uint16_t* b = weights.chunk(t, tiles, stream ? kStreamAhead : 0);
          // The stream goes on past this band: the next one follows in memory.
          const char* next = stream ? nullptr : weights.address(t + tiles);
          mma.run(a + t * w12::kTileK * mma.a_bytes, lda, static_cast<int>(rows), b, 32, tiles, c, w12::kBand, next,
                  next ? weights.bytes(tiles) : 0);
        }
        epilogue(p, c, row, rows, band);
      }
      mma.end();
    });
  }
}
}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace cpu {
static void epilogue_avx2(const Params& p, const float* c, int64_t row, int64_t rows, int64_t band) {
  const int64_t n0 = band * w12::kBand, cols = std::min<int64_t>(w12::kBand, p.w.n - n0);
  for (int64_t r = 0; r < rows; ++r, c += w12::kBand) {
    bf16* y = p.y + (row + r) * p.ldy + n0;
    const bf16* residual = p.residual ? p.residual + (row + r) * p.ld_residual + n0 : nullptr;
    int64_t j = 0;
    for (; j + 8 <= cols; j += 8) {
      __m256 v = _mm256_loadu_ps(c + j);
      if (p.bias) v = _mm256_add_ps(v, simd::load_bf16_avx2(p.bias + n0 + j));
      v = simd::round_bf16_avx2(v);
      if (residual) v = simd::round_bf16_avx2(_mm256_add_ps(simd::load_bf16_avx2(residual + j), v));
      simd::store_bf16_avx2(y + j, v);
    }
    for (; j < cols; ++j) {
      bf16 v = to_bf16(p.bias ? c[j] + to_f32(p.bias[n0 + j]) : c[j]);
      if (residual) v = to_bf16(to_f32(residual[j]) + to_f32(v));
      y[j] = v;
    }
  }
}

void avx2(const Params& p) { drive(p, mma(Isa::kAvx2), 64, epilogue_avx2); }
}  // namespace cpu
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace cpu {
static void epilogue_avx512(const Params& p, const float* c, int64_t row, int64_t rows, int64_t band) {
  const int64_t n0 = band * w12::kBand, cols = std::min<int64_t>(w12::kBand, p.w.n - n0);
  const __mmask16 mask = static_cast<__mmask16>((1u << cols) - 1);
  const __m512 bias = p.bias ? simd::maskz_load_bf16_avx512(mask, p.bias + n0) : _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; ++r, c += w12::kBand) {
    __m512 v = _mm512_loadu_ps(c);
    if (p.bias) v = _mm512_add_ps(v, bias);
    v = simd::round_bf16_avx512(v);
    if (p.residual) {
      const __m512 old = simd::maskz_load_bf16_avx512(mask, p.residual + (row + r) * p.ld_residual + n0);
      v = simd::round_bf16_avx512(_mm512_add_ps(old, v));
    }
    simd::mask_store_bf16_avx512(p.y + (row + r) * p.ldy + n0, mask, v);
  }
}

void avx512(const Params& p) { drive(p, mma(Isa::kAvx512), 96, epilogue_avx512); }
void amx(const Params& p) { drive(p, mma(Isa::kAmx), 240, epilogue_avx512); }
}  // namespace cpu
#pragma GCC pop_options
}  // namespace specpilot::linear
#endif
