#include "formats/w12_disk.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "core/thread_pool.h"
#include "formats/w12.h"
#include "formats/w12_scan.h"

namespace specpilot::w12 {
namespace {
constexpr int kChunk = 1024;  // weights of a row that are worked on at a time; even, so that nibble pairs stay together

struct Packed {
  uint8_t *low, *high, *base;
  uint32_t* exc_pos;
  uint16_t* exc_val;
  int64_t exceptions;
};

bool is_array(const TensorView& t, int bits) { return t.on_cpu() && t.is(dlpack::kUInt, bits) && t.contiguous(); }

Packed check_arrays(const char* op, const Source& s, const TensorView& low, const TensorView& high, const TensorView& base,
                    const TensorView& exc_pos, const TensorView& exc_val) {
  const int64_t rows = s.groups * s.rows;
  SP_CHECK(rows == 0 || s.k <= (int64_t{1} << 32) / rows, op, ": ", rows, " x ", s.k,
           " weights are too many for 32-bit positions");
  SP_CHECK(is_array(low, 8) && low.numel() == rows * s.k, op, ": low must be uint8 [", rows, ", ", s.k, "]");
  SP_CHECK(is_array(high, 8) && high.numel() == rows * ((s.k + 1) / 2), op, ": high must be uint8 [", rows, ", ",
           (s.k + 1) / 2, "]");
  SP_CHECK(is_array(base, 8) && base.numel() == s.bands(), op, ": base must be uint8 [", s.bands(),
           "], one a band of 16 rows");
  SP_CHECK(is_array(exc_pos, 32) && is_array(exc_val, 16) && exc_pos.numel() == exc_val.numel(), op,
           ": exc_pos uint32 and exc_val uint16 must have one length");
  const Packed p{low.data<uint8_t>(),      high.data<uint8_t>(),     base.data<uint8_t>(),
                 exc_pos.data<uint32_t>(), exc_val.data<uint16_t>(), exc_pos.numel()};
  for (int64_t b = 0; b < s.bands(); ++b)
    SP_CHECK(p.base[b] <= kMaxBase, op, ": base of band ", b, " is ", int{p.base[b]}, ", at most ", kMaxBase);
  return p;
}

void check_positions(const char* op, const Source& s, const Packed& p) {
  const int64_t weights = s.groups * s.rows * s.k;
  for (int64_t e = 0; e < p.exceptions; ++e) {
    SP_CHECK(p.exc_pos[e] < weights, op, ": exception ", e, " is at position ", p.exc_pos[e], " of ", weights, " weights");
    SP_CHECK(e == 0 || p.exc_pos[e - 1] < p.exc_pos[e], op, ": exception positions do not ascend at exception ", e);
  }
}

uint16_t word_at(const Packed& p, const Source& s, int64_t row, int64_t k) {
  const int high = p.high[row * ((s.k + 1) / 2) + k / 2] >> (k % 2 * 4) & 15;
  return static_cast<uint16_t>((high & 8) << 12 | (high & 7) << 8 | p.low[row * s.k + k]);
}

// `count` weights of a row, from k0 (even), → bf16. True if one is a word that no writer makes: code 0 with a mantissa.
bool decode_chunk(const uint8_t* __restrict low, const uint8_t* __restrict high, int count, int base,
                  uint16_t* __restrict out) {
  for (int j = 0; j < count / 2; ++j) {
    const unsigned h = high[j];
    out[2 * j] = static_cast<uint16_t>((h & 8) << 12 | (h & 7) << 8);
    out[2 * j + 1] = static_cast<uint16_t>((h & 0x80) << 8 | (h & 0x70) << 4);
  }
  if (count % 2) out[count - 1] = static_cast<uint16_t>((high[count / 2] & 8) << 12 | (high[count / 2] & 7) << 8);
  const uint16_t shift = static_cast<uint16_t>(base << 7);
  uint16_t bad = 0;
  for (int i = 0; i < count; ++i) {
    const uint16_t word = out[i] | low[i];
    const uint16_t plain = (word & 0x7f80) == 0 ? 0xffff : 0;
    bad |= word & 0x7f & plain;
    out[i] = static_cast<uint16_t>(word + (shift & ~plain));
  }
  return bad != 0;
}

void lower(std::atomic<int64_t>& least, int64_t value) {
  for (int64_t seen = least.load(); value < seen && !least.compare_exchange_weak(seen, value);) {
  }
}

// Calls use(row, k0, bits, count) for each decoded piece with its exceptions, from any thread; throws if a word is refused.
template <class Use>
void decode(const char* op, const Source& s, const Packed& p, Use use) {
  check_positions(op, s, p);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> bad_row{kNone}, bad_exception{kNone};
  const uint32_t *positions = p.exc_pos, *last = positions + p.exceptions;
  const int64_t half = (s.k + 1) / 2;
  ThreadPool::instance().parallel_for(s.bands(), std::max<int64_t>(1, 2048 / s.k), [&](int64_t from, int64_t to, int) {
    uint16_t bits[kChunk];
    for (int64_t band = from; band < to; ++band) {
      const int64_t first = s.first_row(band);
      const uint32_t* e = std::lower_bound(positions, last, first * s.k);
      for (int64_t row = first; row < first + s.band_rows(band); ++row) {
        for (int64_t k0 = 0; k0 < s.k; k0 += kChunk) {
          const int count = static_cast<int>(std::min<int64_t>(kChunk, s.k - k0));
          const int64_t at = row * s.k + k0;
          if (decode_chunk(p.low + at, p.high + row * half + k0 / 2, count, p.base[band], bits)) lower(bad_row, row);
          for (; e != last && *e < at + count; ++e) {
            if (word_at(p, s, row, *e - row * s.k) != 0) lower(bad_exception, e - positions);
            bits[*e - at] = p.exc_val[e - positions];
          }
          use(row, k0, bits, count);
        }
        if (s.k % 2 && p.high[(row + 1) * half - 1] >> 4) lower(bad_row, row);
      }
    }
  });
  if (const int64_t row = bad_row; row != kNone) {
    for (int64_t k = 0; k < s.k; ++k)
      SP_CHECK((word_at(p, s, row, k) & 0x7fff) == 0 || (word_at(p, s, row, k) & 0x7f80) != 0, op, ": weight (", row, ", ",
               k, ") has code 0 with mantissa ", word_at(p, s, row, k) & 0x7f);
    SP_CHECK(false, op, ": the padding nibble of row ", row, " is not 0");
  }
  SP_CHECK(bad_exception == kNone, op, ": exception ", bad_exception.load(), " at position ", p.exc_pos[bad_exception],
           " has a word other than 0 in its place");
}
}  // namespace

void pack(const TensorView& weight, const TensorView& base, const TensorView& begin, const TensorView& low,
          const TensorView& high, const TensorView& exc_pos, const TensorView& exc_val) {
  const Source s = check_source("w12 pack", weight);
  const Packed p = check_arrays("w12 pack", s, low, high, base, exc_pos, exc_val);
  const int64_t bands = s.bands(), half = (s.k + 1) / 2;
  SP_CHECK(begin.on_cpu() && begin.is(dlpack::kInt, 64) && begin.contiguous() && begin.numel() == bands + 1,
           "w12 pack: begin must be int64 [", bands + 1, "]");
  const auto* starts = begin.data<const int64_t>();
  SP_CHECK(starts[0] == 0 && starts[bands] == p.exceptions && std::is_sorted(starts, starts + bands + 1),
           "w12 pack: begin must rise from 0 to ", p.exceptions);
  std::atomic<int64_t> wrong{-1};  // a band whose exceptions are not the counted ones
  ThreadPool::instance().parallel_for(bands, std::max<int64_t>(1, 2048 / s.k), [&](int64_t from, int64_t to, int) {
    uint16_t words[kChunk];
    for (int64_t band = from; band < to; ++band) {
      int64_t next = starts[band];
      for (int64_t row = s.first_row(band); row < s.first_row(band) + s.band_rows(band); ++row)
        for (int64_t k0 = 0; k0 < s.k; k0 += kChunk) {
          const bf16* bits = s.row(row) + k0;
          const int count = static_cast<int>(std::min<int64_t>(kChunk, s.k - k0));
          const bool lost = encode(bits, count, p.base[band], words);
          uint8_t* out = p.low + row * s.k + k0;
          uint8_t* nibbles = p.high + row * half + k0 / 2;
          for (int i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(words[i]);
          for (int i = 0; i < count / 2; ++i)
            nibbles[i] = static_cast<uint8_t>(nibble(words[2 * i]) | nibble(words[2 * i + 1]) << 4);
          if (count % 2) nibbles[count / 2] = static_cast<uint8_t>(nibble(words[count - 1]));
          for (int i = 0; lost && i < count; ++i)
            if (is_exception(bits[i], words[i])) {
              if (next < starts[band + 1]) {
                p.exc_pos[next] = static_cast<uint32_t>(row * s.k + k0 + i);
                p.exc_val[next] = bits[i];
              }
              ++next;
            }
        }
      if (next != starts[band + 1]) wrong = band;
    }
  });
  SP_CHECK(wrong < 0, "w12 pack: band ", wrong.load(), " has another number of exceptions than begin says");
}

void unpack(const TensorView& low, const TensorView& high, const TensorView& base, const TensorView& exc_pos,
            const TensorView& exc_val, const TensorView& weight) {
  const Source s = check_source("w12 unpack", weight);
  const Packed p = check_arrays("w12 unpack", s, low, high, base, exc_pos, exc_val);
  auto* out = weight.data<bf16>();
  decode("w12 unpack", s, p, [&](int64_t row, int64_t k, const uint16_t* bits, int count) {
    std::memcpy(out + row * s.stride + k, bits, static_cast<size_t>(count) * sizeof(bf16));
  });
}

int64_t first_difference(const TensorView& low, const TensorView& high, const TensorView& base, const TensorView& exc_pos,
                         const TensorView& exc_val, const TensorView& weight) {
  const Source s = check_source("w12 verify", weight);
  const Packed p = check_arrays("w12 verify", s, low, high, base, exc_pos, exc_val);
  std::atomic<int64_t> least{std::numeric_limits<int64_t>::max()};
  decode("w12 verify", s, p, [&](int64_t row, int64_t k, const uint16_t* bits, int count) {
    const bf16* want = s.row(row) + k;
    if (std::memcmp(want, bits, static_cast<size_t>(count) * sizeof(bf16)) == 0) return;
    lower(least, row * s.k + k + (std::mismatch(bits, bits + count, want).first - bits));
  });
  return least == std::numeric_limits<int64_t>::max() ? -1 : least.load();
}
}  // namespace specpilot::w12
