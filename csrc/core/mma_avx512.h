// The w12 decoder that the AVX-512 and AMX tiers share.
#pragma once
#include <cstdint>

namespace specpilot::mma_tiers {
void avx512_decode_w12(const uint8_t* packed, int64_t tiles, int base, uint16_t* out, int64_t ahead);
}  // namespace specpilot::mma_tiers
