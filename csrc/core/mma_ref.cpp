// The model of the order "x86-pairs32": plain loops, one written fma per product.
#include <cmath>

#include "core/bf16.h"
#include "core/mma.h"
#include "formats/w12.h"

namespace specpilot::mma_tiers {
namespace {
void pack(const uint16_t* x, int64_t ldx, int m, int64_t k, void* packed) {
  const int64_t padded = round_up(k, 32);
  for (int i = 0; i < m; ++i)
    for (int64_t j = 0; j < padded; ++j) static_cast<float*>(packed)[i * padded + j] = j < k ? to_f32(x[i * ldx + j]) : 0.0f;
}

void run(const void* a_, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c, int64_t ldc,
         const char*, int64_t) {
  const float* a = static_cast<const float*>(a_);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < 16; ++j)
      for (int64_t block = 0; block < blocks; ++block) {
        float even = 0.0f, odd = 0.0f;
        for (int64_t p = 16 * block; p < 16 * block + 16; ++p) {
          even = std::fma(a[i * lda + 2 * p], to_f32(b[p * pair_stride + 2 * j]), even);
          odd = std::fma(a[i * lda + 2 * p + 1], to_f32(b[p * pair_stride + 2 * j + 1]), odd);
        }
        c[i * ldc + j] = c[i * ldc + j] + (even + odd);
      }
}

void decode_w12(const uint8_t* packed, int64_t tiles, int base, uint16_t* out, int64_t) {
  for (int64_t t = 0; t < tiles; ++t)
    for (int pos = 0; pos < w12::kTileWeights; ++pos) {
      const w12::Place at = w12::place(pos);
      const uint8_t* tile = packed + t * w12::kTileBytes;
      const uint8_t nibble = at.upper ? tile[at.nibble] >> 4 : tile[at.nibble] & 15;
      out[t * w12::kTileWeights + pos] = w12::decode(tile[at.low], nibble, base);
    }
}
}  // namespace

extern const Mma kRef{Isa::kRef, 4, pack, [](int) {}, [] {}, run, decode_w12, 0};
}  // namespace specpilot::mma_tiers
