// AMX tier of the tile product: A rows stay bf16, one TDPBF16PS is one 32-deep block of 16 rows x 16 columns.
//
//   tmm0-2  c of up to three full row tiles      tmm4  a of a full row tile
//   tmm3    c of the last, partial row tile      tmm6  a of the partial row tile
//   tmm5    b
#include "core/mma.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "core/mma_avx512.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")
namespace specpilot::mma_tiers {
namespace amx {
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

static void begin(int m) {
  TileConfig config;
  for (int t = 0; t < 7; ++t) config.bytes[t] = 64, config.rows[t] = 16;
  if (m % 16) config.rows[3] = config.rows[6] = static_cast<uint8_t>(m % 16);
  _tile_loadconfig(&config);
}

static void end() { _tile_release(); }

static void pack(const uint16_t* x, int64_t ldx, int m, int64_t k, void* packed) {
  const int64_t padded = round_up(k, 32);
  for (int i = 0; i < m; ++i) {
    uint16_t* to = static_cast<uint16_t*>(packed) + i * padded;
    std::memcpy(to, x + i * ldx, static_cast<size_t>(k) * 2);
    std::memset(to + k, 0, static_cast<size_t>(padded - k) * 2);
  }
}

// Full: full row tiles (0…3) in tmm0…; Partial: a partial row tile in tmm3.
template <int Full, bool Partial>
static void tiles(const uint16_t* a, int64_t lda, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
                  int64_t ldc, Prefetch& next) {
  const int64_t a_bytes = lda * 2, b_bytes = pair_stride * 2, c_bytes = ldc * 4;
  if constexpr (Full > 0) _tile_loadd(0, c, c_bytes);
  if constexpr (Full > 1) _tile_loadd(1, c + 16 * ldc, c_bytes);
  if constexpr (Full > 2) _tile_loadd(2, c + 32 * ldc, c_bytes);
  if constexpr (Partial) _tile_loadd(3, c + Full * 16 * ldc, c_bytes);
  for (int64_t block = 0; block < blocks; ++block, a += 32, b += 16 * pair_stride) {
    next.take();
    _tile_loadd(5, b, b_bytes);
    if constexpr (Full > 0) {
      _tile_loadd(4, a, a_bytes);
      _tile_dpbf16ps(0, 4, 5);
    }
    if constexpr (Full > 1) {
      _tile_loadd(4, a + 16 * lda, a_bytes);
      _tile_dpbf16ps(1, 4, 5);
    }
    if constexpr (Full > 2) {
      _tile_loadd(4, a + 32 * lda, a_bytes);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (Partial) {
      _tile_loadd(6, a + Full * 16 * lda, a_bytes);
      _tile_dpbf16ps(3, 6, 5);
    }
  }
  if constexpr (Full > 0) _tile_stored(0, c, c_bytes);
  if constexpr (Full > 1) _tile_stored(1, c + 16 * ldc, c_bytes);
  if constexpr (Full > 2) _tile_stored(2, c + 32 * ldc, c_bytes);
  if constexpr (Partial) _tile_stored(3, c + Full * 16 * ldc, c_bytes);
}

static void run(const void* a_, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
                int64_t ldc, const char* next, int64_t next_bytes) {
  const uint16_t* a = static_cast<const uint16_t*>(a_);
  Prefetch ahead(next, next_bytes, (m + 47) / 48 * blocks);
  for (; m >= 64 || m == 48; m -= 48, a += 48 * lda, c += 48 * ldc)
    tiles<3, false>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
  switch (m / 16 * 2 + (m % 16 != 0)) {
    case 0:
      return;
    case 1:
      return tiles<0, true>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
    case 2:
      return tiles<1, false>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
    case 3:
      return tiles<1, true>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
    case 4:
      return tiles<2, false>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
    case 5:
      return tiles<2, true>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
    default:
      return tiles<3, true>(a, lda, b, pair_stride, blocks, c, ldc, ahead);
  }
}
}  // namespace amx
extern const Mma kAmx{Isa::kAmx, 2, amx::pack, amx::begin, amx::end, amx::run, avx512_decode_w12, 32};
}  // namespace specpilot::mma_tiers
#pragma GCC pop_options
#endif
