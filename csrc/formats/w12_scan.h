// The first pass of w12: the base of each band and what will be exceptions. Disk and run layout share it.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace specpilot::w12 {
// bf16 [groups, rows, k] (a 2-D weight is one group), bands of 16 rows that never cross a group. Rows may have any stride.
struct Source {
  const bf16* data;
  int64_t groups, rows, k, stride;

  int64_t bands_per_group() const { return (rows + 15) / 16; }
  int64_t bands() const { return groups * bands_per_group(); }
  int64_t first_row(int64_t band) const { return band / bands_per_group() * rows + band % bands_per_group() * 16; }
  int band_rows(int64_t band) const {
    const int64_t left = rows - band % bands_per_group() * 16;
    return left < 16 ? static_cast<int>(left) : 16;
  }
  const bf16* row(int64_t r) const { return data + r * stride; }
};

// Checks `weight`: bf16 [N, K] or [groups, N, K] on the CPU, unit column stride, K >= 1; rows of a group evenly strided.
Source check_source(const char* op, const TensorView& weight);

// base uint8 [bands] is filled: the lowest b of 0…127 whose window covers the most non-zero weights. begin int64 [bands + 1]
// is filled with the running number of exceptions. Returns their total.
int64_t scan(const TensorView& weight, const TensorView& base, const TensorView& begin);

// 12-bit words of `count` bf16 values in a bf16's places, {s 0000 ccc | c mmmmmmm}; 0 for an exception. True if there is
// one.
inline bool encode(const bf16* bits, int count, int base, uint16_t* words) {
  const uint16_t lowest = static_cast<uint16_t>((base + 1) << 7);
  uint16_t lost = 0;
  for (int i = 0; i < count; ++i) {  // masks instead of branches: it vectorises
    const uint16_t magnitude = bits[i] & 0x7fff, sign = bits[i] & 0x8000;
    const uint16_t above = static_cast<uint16_t>(magnitude - lowest);  // below the window it wraps far up
    const uint16_t fits = above < 15 << 7 ? 0xffff : 0, zero = magnitude == 0 ? 0xffff : 0;
    words[i] = static_cast<uint16_t>((sign & (fits | zero)) | ((above + 128) & fits));
    lost |= static_cast<uint16_t>(~(fits | zero));
  }
  return lost != 0;
}
inline bool is_exception(bf16 bits, uint16_t word) { return word == 0 && (bits & 0x7fff) != 0; }
inline uint16_t nibble(uint16_t word) { return static_cast<uint16_t>((word >> 12 & 8) | (word >> 8 & 7)); }
}  // namespace specpilot::w12
