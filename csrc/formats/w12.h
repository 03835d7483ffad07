// The 12-bit lossless weight format ("w12"): the number, and the CPU run layout. The file format is docs/format.md.
//
// A word: sign 1, exponent code 4, mantissa 7. Code c = 1…15 stands for the bf16 exponent field b + c, where b (0…127)
// belongs to a band of 16 rows; code 0 with mantissa 0 stands for ±0. Whatever does not fit is an exception (position, bf16
// value).
//
// CPU run layout. Band-major; inside a band one tile per 32 k (rows past N and k past K are zero), 768 bytes = 4 units:
//
//   unit u covers pair rows 4u … 4u+3 (pair row p: k = 2p, 2p+1 of 16 rows, the layout of core/mma.h):
//   [64 low bytes: pair rows 4u, 4u+1][64 low bytes: pair rows 4u+2, 4u+3][64 nibble bytes]
//   low byte j of a 64: 128-bit lane L = j / 16, i = j % 16:  pair row +(i / 8), column 4 L + (i % 8) / 2, k parity i % 2
//   nibble byte j: low half = nibble of low byte j of the first 64, high half = of the second 64
//   low byte = {code bit 0, mantissa 7};  nibble = {sign, code bits 3…1}
//
// so that unpacking bytes with their nibbles inside 128-bit lanes yields pair rows directly, for any register width.
// Exceptions are sorted by (band, tile, position in the tile's 512 pair-row order): exc_begin u32 [bands + 1],
// exc_pos u32 = tile in band * 512 + position, exc_val u16. Bits per weight: 12 + 8/(16 K) + 32/(16 K) + 48 x exception
// rate.
#pragma once
#include <cstdint>

namespace specpilot::w12 {
inline constexpr int kBand = 16;   // rows that share a base; also the columns of an mma tile
inline constexpr int kTileK = 32;  // k of a tile
inline constexpr int kTileWeights = kBand * kTileK;
inline constexpr int kTileBytes = kTileWeights * 12 / 8;
inline constexpr int kUnitWeights = 128, kUnitBytes = 192;
inline constexpr int kMaxBase = 127;

// Position of weight (row r in band, k in tile) in pair-row order.
constexpr int pair_row_pos(int r, int k) { return (k / 2) * 32 + r * 2 + (k & 1); }

// Where that position's low byte and nibble lie in the 768 bytes of a tile.
struct Place {
  int low;     // byte offset
  int nibble;  // byte offset
  bool upper;  // upper half of the nibble byte
};
constexpr Place place(int pos) {
  const int unit = pos / kUnitWeights, in = pos % kUnitWeights;  // in: 4 pair rows of 32
  const int row = in / 32, e = in % 32;                          // e = column * 2 + parity
  const int lane = e / 8, byte = lane * 16 + (row & 1) * 8 + e % 8;
  return {unit * kUnitBytes + (row / 2) * 64 + byte, unit * kUnitBytes + 128 + byte, row >= 2};
}

// bf16 bits of a word; exact.
constexpr uint16_t decode(uint8_t low, uint8_t nibble, int base) {
  const uint16_t word = static_cast<uint16_t>((nibble & 8) << 12 | (nibble & 7) << 8 | low);
  return (word & 0x7f80) ? static_cast<uint16_t>(word + (base << 7)) : word;
}
}  // namespace specpilot::w12
