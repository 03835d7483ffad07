// bf16 [N, K] or [groups, N, K] ↔ the row-major w12 arrays of docs/format.md. bit_exact, any thread count.
//
//   low      uint8 [groups * N, K]            {code bit 0, mantissa 7}
//   high     uint8 [groups * N, ceil(K / 2)]  {sign, code bits 3…1}; even k in the low nibble
//   base     uint8 [groups * ceil(N / 16)]
//   exc_pos  uint32 [E]  ascending positions in the row-major weight;   exc_val uint16 [E]
#pragma once
#include "core/tensor.h"

namespace specpilot::w12 {
// After scan(), whose base and begin it takes.
void pack(const TensorView& weight, const TensorView& base, const TensorView& begin, const TensorView& low,
          const TensorView& high, const TensorView& exc_pos, const TensorView& exc_val);

// Arrays from a file: everything that docs/format.md asks a reader to refuse is refused, by position.
void unpack(const TensorView& low, const TensorView& high, const TensorView& base, const TensorView& exc_pos,
            const TensorView& exc_val, const TensorView& weight);

// As unpack, but compares with `weight`: position of the first weight that differs, -1 when none does.
int64_t first_difference(const TensorView& low, const TensorView& high, const TensorView& base, const TensorView& exc_pos,
                         const TensorView& exc_val, const TensorView& weight);
}  // namespace specpilot::w12
