// Reference: decodes a band into plain numbers and writes the order out.
#include <cmath>
#include <vector>

#include "core/bf16.h"
#include "core/thread_pool.h"
#include "formats/w12.h"
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
// w[r * K + k] of the 16 rows of a band, K padded to whole tiles.
std::vector<float> dense_band(const Weight& w, int64_t band) {
  const int64_t padded = w.tiles * w12::kTileK;
  std::vector<float> out(w12::kBand * padded);
  const uint16_t* raw = reinterpret_cast<const uint16_t*>(w.data) + band * w.tiles * w12::kTileWeights;
  const uint8_t* packed = w.data + band * w.tiles * w12::kTileBytes;
  for (int64_t t = 0; t < w.tiles; ++t)
    for (int r = 0; r < w12::kBand; ++r)
      for (int k = 0; k < w12::kTileK; ++k) {
        const int pos = w12::pair_row_pos(r, k);
        uint16_t bits;
        if (w.format == Format::kBf16) {
          bits = raw[t * w12::kTileWeights + pos];
        } else {
          const w12::Place at = w12::place(pos);
          const uint8_t* tile = packed + t * w12::kTileBytes;
          bits = w12::decode(tile[at.low], at.upper ? tile[at.nibble] >> 4 : tile[at.nibble] & 15, w.base[band]);
        }
        out[r * padded + t * w12::kTileK + k] = to_f32(bits);
      }
  if (w.format == Format::kW12)
    for (uint32_t e = w.exc_begin[band]; e < w.exc_begin[band + 1]; ++e) {
      const int tile = static_cast<int>(w.exc_pos[e]) / w12::kTileWeights,
                pos = static_cast<int>(w.exc_pos[e]) % w12::kTileWeights;
      const int r = pos % 32 / 2, k = pos / 32 * 2 + pos % 2;
      out[r * padded + tile * w12::kTileK + k] = to_f32(w.exc_val[e]);
    }
  return out;
}

float dot(const bf16* x, const float* w, int64_t k, int64_t padded) {
  float acc = 0.0f;
  for (int64_t k0 = 0; k0 < padded; k0 += 32) {
    float even = 0.0f, odd = 0.0f;
    for (int64_t i = k0; i < k0 + 32; i += 2) {
      even = std::fma(i < k ? to_f32(x[i]) : 0.0f, w[i], even);
      odd = std::fma(i + 1 < k ? to_f32(x[i + 1]) : 0.0f, w[i + 1], odd);
    }
    acc = acc + (even + odd);
  }
  return acc;
}
}  // namespace

void ref(const Params& p) {
  ThreadPool::instance().parallel_for(p.w.bands, 1, [&](int64_t b0, int64_t b1, int) {
    for (int64_t band = b0; band < b1; ++band) {
      const std::vector<float> w = dense_band(p.w, band);
      const int64_t padded = p.w.tiles * w12::kTileK;
      for (int64_t n = band * w12::kBand; n < std::min((band + 1) * w12::kBand, p.w.n); ++n)
        for (int64_t r = 0; r < p.rows; ++r) {
          float v = dot(p.x + r * p.ldx, w.data() + n % w12::kBand * padded, p.w.k, padded);
          if (p.bias) v = v + to_f32(p.bias[n]);
          bf16 y = to_bf16(v);
          if (p.residual) y = to_bf16(to_f32(p.residual[r * p.ld_residual + n]) + to_f32(y));
          p.y[r * p.ldy + n] = y;
        }
    }
  });
}
}  // namespace specpilot::linear
