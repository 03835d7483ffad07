// One tile of a CUDA run layout (formats/w12_cuda.h) from shared memory to the A fragments of four MMAs.
//
// w12, 8 weights: hi = W & 0x87878787 puts sign and code bits 3…1 above the low byte {code bit 0, mantissa}: a bf16 whose exponent
// field is the code, one byte permute a pair. One packed multiply by 2^base then makes it the weight; both are exact.
#pragma once
#include "formats/w12_cuda.h"
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
using Fragments = uint32_t[4][4];  // [kt][reg]

template <Format format>
constexpr int kTileBytes = format == Format::kW12 ? w12_cuda::kTileBytes : w12_cuda::kBf16TileBytes;

__device__ uint32_t scale2(uint32_t x, uint32_t factor) {  // by a power of two; -0 keeps the sign of a zero
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(factor), "r"(0x80008000u));
  return y;
}

// entry: (32 lane + j) | bf16 << 16
__device__ void patch(Fragments& a, uint32_t entry, int lane) {
  if (static_cast<int>(entry >> 5 & 31) != lane) return;
  const uint32_t reg = entry >> 1 & 15,
                 selector = entry & 1 ? 0x7610 : 0x3276;  // {upper of entry, lower kept} or the reverse
#pragma unroll
  for (uint32_t r = 0; r < 16; ++r)
    if (r == reg) a[r / 4][r % 4] = __byte_perm(a[r / 4][r % 4], entry, selector);
}

template <Format format>
__device__ void load_tile(Fragments& a, const uint8_t* tile, const uint32_t* overflow, int lane) {
  if constexpr (format == Format::kBf16) {
#pragma unroll
    for (int kt = 0; kt < 4; ++kt) {
      const uint4 v = reinterpret_cast<const uint4*>(tile)[kt * 32 + lane];
      a[kt][0] = v.x, a[kt][1] = v.y, a[kt][2] = v.z, a[kt][3] = v.w;
    }
  } else {
    const uint4 header = *reinterpret_cast<const uint4*>(tile);
    const auto* lanes = reinterpret_cast<const uint4*>(tile + w12_cuda::kHeaderBytes) + lane;
    const uint4 low0 = lanes[0], low1 = lanes[32], high = lanes[64];
    const uint32_t low[8] = {low0.x, low0.y, low0.z, low0.w, low1.x, low1.y, low1.z, low1.w};
    const uint32_t word[4] = {high.x, high.y, high.z, high.w};
    const uint32_t factor = (127 + (header.x & 0xff)) * 0x00800080u;
#pragma unroll
    for (int kt = 0; kt < 4; ++kt) {
      const uint32_t upper[2] = {word[kt] & 0x87878787u, __funnelshift_l(word[kt], word[kt], 4) & 0x87878787u};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[kt][2 * i] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x5140), factor);
        a[kt][2 * i + 1] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x7362), factor);
      }
    }
    const uint32_t exceptions = header.x >> 16;  // the same in all lanes
    if (exceptions == 0) return;
    if (exceptions > w12_cuda::kInline) {
      for (uint32_t e = 0; e < exceptions; ++e) patch(a, overflow[header.y + e], lane);
      return;
    }
    patch(a, header.y, lane);
    if (exceptions > 1) patch(a, header.z, lane);
    if (exceptions > 2) patch(a, header.w, lane);
  }
}
}  // namespace
}  // namespace specpilot::linear
