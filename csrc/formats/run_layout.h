// bf16 [N, K] ↔ the CPU run layouts (formats/w12.h, ops/linear/linear.h). A permutation: bit_exact, any thread count.
#pragma once
#include "core/tensor.h"

namespace specpilot::run_layout {
// → bf16 [bands, tiles, 16, 32], padding zero.
void pack_bf16(const TensorView& weight, const TensorView& data);

// → w12, after w12::scan: exc_begin int32 [bands + 1] is its running count; data uint8 [bands, tiles, 768], exc_pos int32
// [E] and exc_val bf16 [E] are filled.
void pack_w12(const TensorView& weight, const TensorView& base, const TensorView& exc_begin, const TensorView& data,
              const TensorView& exc_pos, const TensorView& exc_val);

// Either layout → bf16 [N, K]; base and exceptions only for w12.
void unpack(const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
            const OptionalTensor& exc_pos, const OptionalTensor& exc_val, const TensorView& weight);
}  // namespace specpilot::run_layout
