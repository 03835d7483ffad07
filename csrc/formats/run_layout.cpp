#include "formats/run_layout.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/mma.h"
#include "core/thread_pool.h"
#include "formats/w12.h"
#include "formats/w12_scan.h"
#include "ops/linear/linear.h"

namespace specpilot::run_layout {
namespace {
using w12::kBand, w12::kTileBytes, w12::kTileK, w12::kTileWeights, w12::kUnitBytes, w12::kUnitWeights;
constexpr int kPairs = kTileK / 2;
static_assert(w12::pair_row_pos(3, 5) == 2 * 32 + 3 * 2 + 1);

int64_t tiles_of(int64_t k) { return (k + kTileK - 1) / kTileK; }

w12::Source check_weight(const char* op, const TensorView& weight) {
  SP_CHECK(weight.ndim() == 2, op, ": weight must be 2-D");
  return w12::check_source(op, weight);
}

// Fewest bands that are worth a thread.
int64_t grain(int64_t k) { return std::max<int64_t>(1, 2048 / k); }

// 16 rows × 32 k, as 32-bit pairs, transposed. Rows and columns past the weight are zero.
void gather_tile(const w12::Source& s, int64_t band, int64_t tile, uint16_t* out) {
  const int rows = s.band_rows(band);
  const int64_t k0 = tile * kTileK, first = s.first_row(band);
  uint32_t pairs[kBand][kPairs];
  if (rows < kBand || k0 + kTileK > s.k) std::memset(pairs, 0, sizeof pairs);
  const size_t bytes = static_cast<size_t>(std::min<int64_t>(kTileK, s.k - k0)) * sizeof(bf16);
  if (bytes == sizeof pairs[0])
    for (int r = 0; r < rows; ++r) std::memcpy(pairs[r], s.row(first + r) + k0, sizeof pairs[0]);
  else
    for (int r = 0; r < rows; ++r) std::memcpy(pairs[r], s.row(first + r) + k0, bytes);
  uint32_t turned[kPairs][kBand];
  for (int r = 0; r < kBand; ++r)
    for (int p = 0; p < kPairs; ++p) turned[p][r] = pairs[r][p];
  std::memcpy(out, turned, sizeof turned);
}

void scatter_tile(const uint16_t* in, int64_t band, int64_t tile, const w12::Source& s, bf16* weight) {
  const int rows = s.band_rows(band);
  const int64_t k0 = tile * kTileK;
  uint32_t turned[kPairs][kBand], pairs[kBand][kPairs];
  std::memcpy(turned, in, sizeof turned);
  for (int r = 0; r < kBand; ++r)
    for (int p = 0; p < kPairs; ++p) pairs[r][p] = turned[p][r];
  const size_t bytes = static_cast<size_t>(std::min<int64_t>(kTileK, s.k - k0)) * sizeof(bf16);
  for (int r = 0; r < rows; ++r) std::memcpy(weight + (band * kBand + r) * s.stride + k0, pairs[r], bytes);
}

// Words of one unit (4 pair rows of 32) → 128 low bytes and 64 nibble bytes, each pair of rows interleaved by 8 bytes.
void pack_unit(const uint16_t* words, uint8_t* out) {
  uint8_t bytes[kUnitBytes];  // low of rows 0 and 1, low of rows 2 and 3, nibbles of both
  for (int i = 0; i < kUnitWeights; ++i) bytes[i] = static_cast<uint8_t>(words[i]);
  for (int i = 0; i < kUnitWeights / 2; ++i)
    bytes[kUnitWeights + i] = static_cast<uint8_t>(w12::nibble(words[i]) | w12::nibble(words[kUnitWeights / 2 + i]) << 4);
  for (int plane = 0; plane < 3; ++plane)
    for (int row = 0; row < 2; ++row)
      for (int lane = 0; lane < 4; ++lane)
        std::memcpy(out + plane * 64 + lane * 16 + row * 8, bytes + plane * 64 + row * 32 + lane * 8, 8);
}
}  // namespace

void pack_bf16(const TensorView& weight, const TensorView& data) {
  const w12::Source s = check_weight("pack_bf16", weight);
  linear::check_weight("pack_bf16", data, {}, {}, {}, {}, s.rows, s.k);
  SP_CHECK(data.is_bf16() && data.on_cpu(), "pack_bf16: data must be bf16 on the CPU");
  const int64_t tiles = tiles_of(s.k);
  auto* out = data.data<bf16>();
  ThreadPool::instance().parallel_for(s.bands(), grain(s.k), [&](int64_t from, int64_t to, int) {
    for (int64_t band = from; band < to; ++band)
      for (int64_t t = 0; t < tiles; ++t) gather_tile(s, band, t, out + (band * tiles + t) * kTileWeights);
  });
}

void pack_w12(const TensorView& weight, const TensorView& base, const TensorView& exc_begin, const TensorView& data,
              const TensorView& exc_pos, const TensorView& exc_val) {
  const w12::Source s = check_weight("pack_w12", weight);
  const int64_t tiles = tiles_of(s.k), count = exc_pos.numel();
  SP_CHECK(tiles <= INT32_MAX / kTileWeights, "pack_w12: rows of ", s.k, " weights are too long for 32-bit positions");
  SP_CHECK(data.on_cpu() && data.is_u8() && data.contiguous() && data.numel() == s.bands() * tiles * kTileBytes,
           "pack_w12: data must be uint8 [", s.bands(), ", ", tiles, ", ", kTileBytes, "]");
  SP_CHECK(base.on_cpu() && base.is_u8() && base.contiguous() && base.numel() == s.bands(), "pack_w12: base must be uint8 [",
           s.bands(), "]");
  SP_CHECK(exc_begin.on_cpu() && exc_begin.is_i32() && exc_begin.contiguous() && exc_begin.numel() == s.bands() + 1,
           "pack_w12: exc_begin must be int32 [", s.bands() + 1, "]");
  SP_CHECK(exc_pos.on_cpu() && exc_pos.is_i32() && exc_pos.contiguous() && exc_val.on_cpu() && exc_val.is_bf16() &&
               exc_val.contiguous() && exc_val.numel() == count,
           "pack_w12: exc_pos int32 and exc_val bf16 must have one length");
  const auto* bases = base.data<const uint8_t>();
  const auto* begin = exc_begin.data<const int32_t>();
  SP_CHECK(begin[0] == 0 && begin[s.bands()] == count && std::is_sorted(begin, begin + s.bands() + 1),
           "pack_w12: exc_begin must rise from 0 to ", count);
  SP_CHECK(std::all_of(bases, bases + s.bands(), [](uint8_t b) { return b <= w12::kMaxBase; }), "pack_w12: base above ",
           w12::kMaxBase);

  auto* out = data.data<uint8_t>();
  auto* pos = exc_pos.data<int32_t>();
  auto* val = exc_val.data<bf16>();
  std::atomic<int64_t> wrong{-1};  // a band whose exceptions are not the counted ones
  ThreadPool::instance().parallel_for(s.bands(), grain(s.k), [&](int64_t from, int64_t to, int) {
    uint16_t bits[kTileWeights], words[kTileWeights];
    for (int64_t band = from; band < to; ++band) {
      int64_t next = begin[band];
      for (int64_t t = 0; t < tiles; ++t) {
        gather_tile(s, band, t, bits);
        const bool lost = w12::encode(bits, kTileWeights, bases[band], words);
        for (int u = 0; u < kTileWeights / kUnitWeights; ++u)
          pack_unit(words + u * kUnitWeights, out + (band * tiles + t) * kTileBytes + u * kUnitBytes);
        for (int i = 0; lost && i < kTileWeights; ++i)
          if (w12::is_exception(bits[i], words[i])) {
            if (next < begin[band + 1]) {
              pos[next] = static_cast<int32_t>(t * kTileWeights + i);
              val[next] = bits[i];
            }
            ++next;
          }
      }
      if (next != begin[band + 1]) wrong = band;
    }
  });
  SP_CHECK(wrong < 0, "pack_w12: band ", wrong.load(), " has another number of exceptions than exc_begin says");
}

void unpack(const TensorView& data, const OptionalTensor& base, const OptionalTensor& exc_begin,
            const OptionalTensor& exc_pos, const OptionalTensor& exc_val, const TensorView& weight) {
  const w12::Source s = check_weight("run_layout unpack", weight);
  const linear::Weight w = linear::check_weight("run_layout unpack", data, base, exc_begin, exc_pos, exc_val, s.rows, s.k);
  SP_CHECK(data.on_cpu(), "run_layout unpack: data must be on the CPU");
  const auto decode = mma(std::min(machine_isa(), force().ceiling)).decode_w12;
  auto* out = weight.data<bf16>();
  ThreadPool::instance().parallel_for(w.bands, grain(s.k), [&](int64_t from, int64_t to, int) {
    alignas(64) uint16_t tile[kTileWeights];
    for (int64_t band = from; band < to; ++band) {
      for (int64_t t = 0; t < w.tiles; ++t) {
        const int64_t at = band * w.tiles + t;
        if (w.format == linear::Format::kBf16)
          std::memcpy(tile, w.data + at * sizeof tile, sizeof tile);
        else
          decode(w.data + at * kTileBytes, 1, w.base[band], tile, 0);
        scatter_tile(tile, band, t, s, out);
      }
      if (w.format != linear::Format::kW12) continue;
      for (uint32_t e = w.exc_begin[band]; e < w.exc_begin[band + 1]; ++e) {
        const uint32_t in = w.exc_pos[e] % kTileWeights;
        const int64_t row = band * kBand + in % 32 / 2, col = w.exc_pos[e] / kTileWeights * kTileK + in / 32 * 2 + in % 2;
        if (row < s.rows && col < s.k) out[row * s.stride + col] = w.exc_val[e];
      }
    }
  });
}
}  // namespace specpilot::run_layout
