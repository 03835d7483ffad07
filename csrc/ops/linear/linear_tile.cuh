// Half a tile of a CUDA run layout (formats/w12_cuda.h), 16 rows x 32 k, from shared memory to the A fragments of two MMAs.
//
// w12, 8 weights: hi = W & 0x87878787 puts sign and code bits 3…1 above the low byte {code bit 0, mantissa}: a bf16 whose exponent
// field is the code, one byte permute a pair. One packed multiply by 2^base then makes it the weight; both are exact.
#pragma once
#include "formats/w12_cuda.h"
#include "ops/linear/linear.h"

namespace specpilot::linear {
namespace {
using Fragments = uint32_t[2][4];  // [kt % 2][reg]

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
  uint4 header;  // the same in all lanes
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
    p.header = *reinterpret_cast<const uint4*>(tile);
  }
}

__device__ uint32_t exceptions(const Packet<Format::kW12>& p) { return p.header.x >> 16; }
__device__ uint32_t exceptions(const Packet<Format::kBf16>&) { return 0; }

__device__ void decode(Fragments& a, const Packet<Format::kBf16>& p, int half) {
#pragma unroll
  for (int kt = 0; kt < 2; ++kt) {
    const uint4& fragment = p.fragment[2 * half + kt];
    a[kt][0] = fragment.x, a[kt][1] = fragment.y, a[kt][2] = fragment.z, a[kt][3] = fragment.w;
  }
}
// All but the exceptions, which become zeros.
__device__ void decode(Fragments& a, const Packet<Format::kW12>& p, int half) {
  const uint4& lows = p.low[half];
  const uint32_t low[4] = {lows.x, lows.y, lows.z, lows.w};
  const uint32_t word[2] = {half ? p.high.z : p.high.x, half ? p.high.w : p.high.y};
  const uint32_t factor = (127 + (p.header.x & 0xff)) * 0x00800080u;
#pragma unroll
  for (int kt = 0; kt < 2; ++kt) {
    const uint32_t upper[2] = {word[kt] & 0x87878787u, __funnelshift_l(word[kt], word[kt], 4) & 0x87878787u};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[kt][2 * i] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x5140), factor);
      a[kt][2 * i + 1] = scale2(__byte_perm(low[2 * kt + i], upper[i], 0x7362), factor);
    }
  }
}

// Puts an exception, (32 lane + j) | bf16 << 16, into the fragments of its lane if it is in this half of the tile.
__device__ void patch(Fragments& a, uint32_t entry, int half, int lane) {
  if ((entry >> 4 & 1) != static_cast<uint32_t>(half)) return;
  const uint32_t reg = (entry >> 5 & 31) == static_cast<uint32_t>(lane) ? entry >> 1 & 7 : 8;
  const uint32_t selector = entry & 1 ? 0x7610 : 0x3276;  // {upper half of entry, lower half kept} or the reverse
#pragma unroll
  for (uint32_t r = 0; r < 8; ++r)
    if (reg == r) a[r / 4][r % 4] = __byte_perm(a[r / 4][r % 4], entry, selector);
}

__device__ void patch(Fragments& a, const uint4& header, const uint32_t* overflow, int half, int lane) {
  const uint32_t count = header.x >> 16, inlined[w12_cuda::kInline] = {header.y, header.z, header.w};
  if (count <= w12_cuda::kInline) {
#pragma unroll
    for (uint32_t e = 0; e < w12_cuda::kInline; ++e)
      if (e < count) patch(a, inlined[e], half, lane);
  } else {
#pragma unroll 1
    for (uint32_t e = 0; e < count; ++e) patch(a, overflow[header.y + e], half, lane);
  }
}
__device__ void patch(Fragments& a, const Packet<Format::kW12>& p, const uint32_t* overflow, int half, int lane) {
  patch(a, p.header, overflow, half, lane);
}
__device__ void patch(Fragments&, const Packet<Format::kBf16>&, const uint32_t*, int, int) {}

// For branches that are to be known as a whole warp's.
__device__ void make_uniform(Packet<Format::kW12>& p) {
  p.header = {__shfl_sync(~0u, p.header.x, 0), __shfl_sync(~0u, p.header.y, 0), __shfl_sync(~0u, p.header.z, 0),
              __shfl_sync(~0u, p.header.w, 0)};
}
__device__ void make_uniform(Packet<Format::kBf16>&) {}
}  // namespace
}  // namespace specpilot::linear
