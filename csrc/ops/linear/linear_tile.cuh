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

// What a lane reads of a tile.
template <Format format>
struct Packet;
template <>
struct Packet<Format::kBf16> {
  uint4 fragment[4];
};
template <>
struct Packet<Format::kW12> {
  uint32_t header;  // its first word
  uint4 low[2], high;
};

template <Format format>
__device__ void load(Packet<format>& p, const uint8_t* tile, int lane) {
  if constexpr (format == Format::kBf16) {
#pragma unroll
    for (int kt = 0; kt < 4; ++kt) p.fragment[kt] = reinterpret_cast<const uint4*>(tile)[kt * 32 + lane];
  } else {
    const auto* lanes = reinterpret_cast<const uint4*>(tile + w12_cuda::kHeaderBytes) + lane;
    p.high = lanes[64], p.low[0] = lanes[0], p.low[1] = lanes[32];
    p.header = *reinterpret_cast<const uint32_t*>(tile);
  }
}

__device__ uint32_t exceptions(const Packet<Format::kW12>& p) { return p.header >> 16; }  // the same in all lanes
__device__ uint32_t exceptions(const Packet<Format::kBf16>&) { return 0; }

__device__ void decode(Fragments& a, const Packet<Format::kBf16>& p) {
#pragma unroll
  for (int kt = 0; kt < 4; ++kt)
    a[kt][0] = p.fragment[kt].x, a[kt][1] = p.fragment[kt].y, a[kt][2] = p.fragment[kt].z, a[kt][3] = p.fragment[kt].w;
}
// All but the exceptions, which become zeros.
__device__ void decode(Fragments& a, const Packet<Format::kW12>& p) {
  const uint32_t low[8] = {p.low[0].x, p.low[0].y, p.low[0].z, p.low[0].w, p.low[1].x, p.low[1].y, p.low[1].z, p.low[1].w};
  const uint32_t word[4] = {p.high.x, p.high.y, p.high.z, p.high.w};
  const uint32_t factor = (127 + (p.header & 0xff)) * 0x00800080u;
#pragma unroll
  for (int kt = 0; kt < 4; ++kt) {
    const uint32_t upper[2] = {word[kt] & 0x87878787u, __funnelshift_l(word[kt], word[kt], 4) & 0x87878787u};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[kt][2 * i] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x5140), factor);
      a[kt][2 * i + 1] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x7362), factor);
    }
  }
}

__device__ void patch(uint32_t (&a)[4], int reg, uint32_t entry, uint32_t selector) {
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if (reg == r) a[r] = __byte_perm(a[r], entry, selector);
}

// Puts a tile's exceptions into the fragments of the lanes that they belong to; a branch of all lanes.
__device__ void patch(Fragments& a, const uint8_t* tile, uint32_t count, const uint32_t* overflow, int lane) {
  const auto* header = reinterpret_cast<const uint32_t*>(tile);
  const uint32_t* entries = count > w12_cuda::kInline ? overflow + header[1] : header + 1;
#pragma unroll 1
  for (uint32_t e = 0; e < count; ++e) {
    const uint32_t entry = entries[e];  // (32 lane + j) | bf16 << 16
    const int reg = (entry >> 5 & 31) == static_cast<uint32_t>(lane) ? static_cast<int>(entry >> 1 & 3) : -1;
    const uint32_t selector = entry & 1 ? 0x7610 : 0x3276;  // {upper half of entry, lower half kept} or the reverse
    switch (entry >> 3 & 3) {
      case 0:
        patch(a[0], reg, entry, selector);
        break;
      case 1:
        patch(a[1], reg, entry, selector);
        break;
      case 2:
        patch(a[2], reg, entry, selector);
        break;
      default:
        patch(a[3], reg, entry, selector);
    }
  }
}
}  // namespace
}  // namespace specpilot::linear
