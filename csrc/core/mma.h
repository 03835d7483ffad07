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
  // A thread brackets its calls of run with begin (same m throughout) and end: AMX tile shapes are set and released there,
  // never left to whatever else runs in the thread. `pack` may be skipped (a = x, lda = ldx) where a_bytes is 2 and k % 32
  // == 0.
  void (*begin)(int m);
  void (*end)();
  // a: packed A, at the first k of this call, row stride lda elements; blocks: 32-deep k blocks; c: fp32, row stride ldc.
  // next, next_bytes: memory that the caller reads after this call; prefetched evenly over its work (nullptr: none).
  void (*product)(const void* a, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c,
                  int64_t ldc, const char* next, int64_t next_bytes);
  // w12 run layout → pair rows: `tiles` tiles of 768 bytes (16 columns × 32 k each) to 512 bf16 each. Exceptions not
  // applied.
  // ahead > 0: prefetches what lies that many bytes further on.
  void (*decode_w12)(const uint8_t* packed, int64_t tiles, int base, uint16_t* out, int64_t ahead);
  int streaming_rows;  // up to so many rows the stream of weights, not the arithmetic, sets the pace

  void run(const void* a, int64_t lda, int m, const uint16_t* b, int64_t pair_stride, int64_t blocks, float* c, int64_t ldc,
           const void* next = nullptr, int64_t next_bytes = 0) const {
    product(a, lda, m, b, pair_stride, blocks, c, ldc, static_cast<const char*>(next), next_bytes);
  }
};

const Mma& mma(Isa isa);  // kRef: plain loops, the model of the order
// Walks a range of memory in equal steps: each take() prefetches the next share of it.
class Prefetch {
 public:
  Prefetch(const char* p, int64_t bytes, int64_t steps)
      : p_(p), end_(p + bytes), share_(steps > 0 ? round_up_to_line((bytes + steps - 1) / steps) : 0) {}
  inline __attribute__((always_inline)) void take() {
    const char* stop = p_ + share_ < end_ ? p_ + share_ : end_;
    for (; p_ < stop; p_ += 64) __builtin_prefetch(p_, 0, 3);
  }

 private:
  static int64_t round_up_to_line(int64_t n) { return (n + 63) / 64 * 64; }
  const char* p_;
  const char* end_;
  int64_t share_;
};

inline constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
}  // namespace specpilot
