// The CUDA run layouts of a weight [N, K], and how the work of a product is cut: constants of (N, K) alone.
//
//   data     [row groups][k steps of 64][2 or 3 tiles]            zeros past N and past K
//   tile     16 rows x 64 k = 4 MMA fragments (m16n8k16, operand A); lane = 4 g + t holds its 32 weights by number j:
//              j = 8 kt + 2 reg + half:   k = 16 kt + 8 (reg / 2) + 2 t + half,   row = g + 8 (reg % 2)
//   bf16     2048 bytes:  kt 0…3: 32 lanes x 16 bytes (j = 8 kt … 8 kt + 7)
//   w12      1552 bytes:  header 16 | low bytes of j = 0…15: 32 lanes x 16 | of j = 16…31: 32 x 16 | nibbles: 32 x 16
//              nibble word kt, byte i:  {s of j = i | code bits 3…1 of 4 + (i + 1) % 4 | s of 4 + i | code bits of i},  j + 8 kt
//            so that W & 0x87878787 and rotl(W, 4) & 0x87878787 are the upper bytes of j = 0…3 and of 4…7, codes in the exponent
//              header = {base | exceptions << 16, then each exception as (32 lane + j) | bf16 << 16}; more than three of them lie
//              in the list `overflow`, and word 1 is where they begin
//
// Bits per weight: 12 x 1552 / 1536 = 12.125, padding and overflow aside.
#pragma once
#include <cstdint>

namespace specpilot::w12_cuda {
inline constexpr int kTileRows = 16, kTileK = 64, kTileWeights = kTileRows * kTileK;
inline constexpr int kHeaderBytes = 16, kTileBytes = kHeaderBytes + kTileWeights * 12 / 8, kBf16TileBytes = kTileWeights * 2;
inline constexpr int kInline = 3;  // exceptions in a header
inline constexpr int kMaxWarps = 8, kBlocks = 132;
inline constexpr int64_t kMaxWeights = int64_t{1} << 36;  // of a matrix

// An element's sum is one MMA chain a segment of k, the chains of its segments added in order: what decides every bit. The rest
// says which warps do that for few rows of x, where all that counts is that every SM of kBlocks streams as many weights as another.
struct Plan {
  int tiles;      // of a row group: a warp's
  int groups;     // row groups
  int steps;      // of k
  int segments;   // of k, one a warp
  int row_warps;  // row groups of a block; times segments at most kMaxWarps

  constexpr int rows() const { return tiles * kTileRows; }
  constexpr int first_step(int segment) const { return static_cast<int>(int64_t{segment} * steps / segments); }
  constexpr int blocks() const { return (groups + row_warps - 1) / row_warps; }
};

constexpr Plan plan(int64_t n, int64_t k) {
  Plan best{};
  int64_t least = INT64_MAX;
  for (int tiles = 2; tiles <= 3; ++tiles)
    for (int row_warps = kMaxWarps; row_warps >= 1; --row_warps)
      for (int segments = kMaxWarps / row_warps; segments >= 1; --segments) {
        const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
        Plan p{tiles, static_cast<int>(up(n, tiles * kTileRows)), static_cast<int>(up(k, kTileK)), segments, row_warps};
        const int64_t rounds = up(p.blocks(), kBlocks);
        if (segments > 1 && (segments > p.steps || rounds > 1))
          continue;  // sums of segments are added once, at a block's end
        // Tiles that the busiest block waits for; some more where it has fewer warps, or fetches x again.
        const int64_t cost =
            rounds * tiles * row_warps * segments * up(p.steps, segments) * (40 - row_warps * segments) * (31 + rounds);
        if (cost < least) least = cost, best = p;
      }
  return best;
}
}  // namespace specpilot::w12_cuda
