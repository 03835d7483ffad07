// The tile product that every matrix-like op of the CPU backend (linear, attention) is made of.
//
//   c[i][j] += sum over 32-deep k blocks of (even chain + odd chain)          i < m rows, j < 16 columns
//
//   even chain: fp32 fma over k = 0, 2, …, 30 of the block, from zero;  odd chain: k = 1, 3, …, 31;  then c += even + odd.
//   That is what TDPBF16PS does (subnormals flushed to zero), so all tiers give the same bits (order id "x86-pairs32").
//
// B comes in *pair rows*, the layout of an AMX B tile and of the K and V cache:
//
//   b + p * pair_stride:   col 0: k=2p, k=2p+1 | col 1: k=2p, k=2p+1 | … | col 15: k=2p, k=2p+1       32 bf16 = 64 bytes
//
// A is packed once per call by the tier's own `pack` (fp32 for FMA tiers, bf16 for AMX), rows padded to 32 k with zeros.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/isa.h"

namespace specpilot {
struct Mma {
  Isa isa;
  int a_bytes;  // bytes of one packed A element: 4 (fp32) or 2 (bf16)
  // x: bf16 [m, k] with row stride ldx (elements) → packed [m, k rounded up to 32].
  void (*pack)(const uint16_t* x, int64_t ldx, int m, int64_t k, void* packed);
  // A thread brackets its calls of `run` with begin (same m throughout) and end: AMX tile shapes are set and released there,
  // never left to whatever else runs in the thread. `pack` may be skipped (a = x, lda = ldx) where a_bytes is 2 and k % 32
  // == 0.
  void (*begin)(int m);
  void (*end)();
  // a: packed A, at the first k of this call, row stride lda elements; blocks: 32-deep k blocks; c: fp32, row stride ldc.
  void (*run)(const void* a, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
              int64_t ldc);
  // w12 run layout → pair rows: `tiles` tiles of 768 bytes (16 columns × 32 k each) to 512 bf16 each. Exceptions not
  // applied.
  void (*decode_w12)(const uint8_t* packed, int64_t tiles, int base, uint16_t* out);
};

const Mma& mma(Isa isa);  // kRef: plain loops, the model of the order
inline constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
}  // namespace specpilot
