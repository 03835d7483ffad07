// The CUDA run layouts of a weight [N, K], and how the work of a product is cut: constants of (N, K) alone.
//
//   data     [row blocks of 32 W rows][k steps of 64][2 W tiles]         zeros past N and past K
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
inline constexpr int kTilesPerWarp = 2, kMaxWarps = 8, kMaxSmallPieces = 8;
inline constexpr int kMaxPieceWarps = 132 * kMaxWarps;    // pieces times warps
inline constexpr int64_t kMaxWeights = int64_t{1} << 36;  // of a matrix: units times pieces stay in 31 bits

// Unit u of the work is k step u % steps of row block u / steps; piece g of `pieces` takes units [first(g), first(g + 1)). An
// element's sum is one MMA chain a piece, the chains of its pieces added in order: what decides every bit.
struct Plan {
  int warps;  // of a row block
  int blocks, steps;
  int pieces;
  bool small;  // a row block is one warp's, cut into as many pieces as any other

  constexpr int rows() const { return warps * kTilesPerWarp * kTileRows; }
  constexpr int tiles() const { return warps * kTilesPerWarp; }
  constexpr int units() const { return blocks * steps; }
};

constexpr Plan plan(int64_t n, int64_t k) {
  constexpr int kPieces = 132, kSmallSteps = 3;
  constexpr int64_t kSmallWeights = int64_t{1} << 21;
  Plan p{};
  p.small = n * k <= kSmallWeights;
  p.warps = p.small ? 1 : n >= 4096 ? 8 : n >= 2048 ? 4 : n >= 512 ? 2 : 1;
  p.blocks = static_cast<int>((n + p.rows() - 1) / p.rows());
  p.steps = static_cast<int>((k + kTileK - 1) / kTileK);
  const int cuts = (p.steps + kSmallSteps - 1) / kSmallSteps;
  p.pieces = p.small               ? p.blocks * (cuts < kMaxSmallPieces ? cuts : kMaxSmallPieces)
             : p.units() < kPieces ? p.units()
                                   : kPieces;
  if (p.pieces > kMaxPieceWarps) p.small = false, p.pieces = kPieces;  // thousands of outputs of a few columns
  return p;
}
}  // namespace specpilot::w12_cuda
