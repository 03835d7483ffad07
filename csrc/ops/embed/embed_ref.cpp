// Reference and only variant: picks one column out of a band of pair rows, k by k.
#include <algorithm>

#include "core/thread_pool.h"
#include "formats/w12.h"
#include "ops/embed/embed.h"

namespace specpilot::embed {
namespace {
constexpr int64_t kGrainWeights = 4096;  // some 10 us of decoding: less stays on the caller

void read_bf16(const linear::Weight& w, int64_t band, int row, bf16* out) {
  const bf16* tile = reinterpret_cast<const bf16*>(w.data) + band * w.tiles * w12::kTileWeights;
  for (int64_t k0 = 0; k0 < w.k; k0 += w12::kTileK, tile += w12::kTileWeights) {
    const int n = static_cast<int>(std::min<int64_t>(w12::kTileK, w.k - k0));
    for (int k = 0; k < n; ++k) out[k0 + k] = tile[w12::pair_row_pos(row, k)];
  }
}

void read_w12(const linear::Weight& w, int64_t band, int row, bf16* out) {
  w12::Place places[w12::kTileK];  // the same in every tile
  for (int k = 0; k < w12::kTileK; ++k) places[k] = w12::place(w12::pair_row_pos(row, k));
  const uint8_t* tile = w.data + band * w.tiles * w12::kTileBytes;
  const int base = w.base[band];
  for (int64_t k0 = 0; k0 < w.k; k0 += w12::kTileK, tile += w12::kTileBytes) {
    const int n = static_cast<int>(std::min<int64_t>(w12::kTileK, w.k - k0));
    for (int k = 0; k < n; ++k) {
      const w12::Place& at = places[k];
      out[k0 + k] = w12::decode(tile[at.low], at.upper ? tile[at.nibble] >> 4 : tile[at.nibble] & 15, base);
    }
  }
  for (uint32_t e = w.exc_begin[band]; e < w.exc_begin[band + 1]; ++e) {
    const int64_t tile = w.exc_pos[e] / w12::kTileWeights;
    const int pos = static_cast<int>(w.exc_pos[e] % w12::kTileWeights);
    const int64_t k = tile * w12::kTileK + pos / 32 * 2 + pos % 2;
    if (pos % 32 / 2 == row && k < w.k) out[k] = w.exc_val[e];
  }
}
}  // namespace

void ref(const Params& p) {
  const int64_t grain = std::max<int64_t>(kGrainWeights / p.table.k, 1);
  ThreadPool::instance().parallel_for(p.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t band = p.ids[r] / w12::kBand;
      const int row = p.ids[r] % w12::kBand;
      bf16* out = p.out + r * p.ld_out;
      p.table.format == linear::Format::kBf16 ? read_bf16(p.table, band, row, out) : read_w12(p.table, band, row, out);
    }
  });
}
}  // namespace specpilot::embed
