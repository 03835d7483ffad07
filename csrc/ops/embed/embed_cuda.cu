// CUDA twin: a block reads one row out of the tiles of the table (formats/w12_cuda.h), a thread two neighbouring columns.
// Roofline: 2 R K bytes written; of each tile 1.5 K / 64 sectors of 32 bytes or more are touched for the row's 64 weights.
#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"
#include "formats/w12_cuda.h"
#include "ops/embed/embed.h"

namespace specpilot::embed {
namespace {
constexpr int kThreads = 256;
constexpr uint32_t kNaN = 0x7fc07fc0u;  // two bf16

// Weights j and j + 1 of a lane, j even.
__device__ uint32_t bf16_pair(const uint8_t* tile, int lane, int j) {
  return *reinterpret_cast<const uint32_t*>(tile + (j / 8 * 32 + lane) * 16 + j % 8 * 2);
}

__device__ uint32_t w12_pair(const uint8_t* tile, const uint32_t* overflow, int lane, int j) {
  const uint4 header = *reinterpret_cast<const uint4*>(tile);
  const uint8_t* planes = tile + w12_cuda::kHeaderBytes;
  const uint32_t low = *reinterpret_cast<const uint16_t*>(planes + j / 16 * 512 + lane * 16 + j % 16);
  uint32_t word = *reinterpret_cast<const uint32_t*>(planes + 1024 + lane * 16 + j / 8 * 4);
  if (j % 8 >= 4) word = __funnelshift_l(word, word, 4);
  const uint32_t upper = (word & 0x87878787u) >> j % 4 * 8, base = header.x & 0xff;
  uint32_t pair = __byte_perm(low, upper, 0x5140);
  if (pair & 0x7f80u) pair += base << 7;
  if (pair & 0x7f800000u) pair += base << 23;
  const uint32_t count = header.x >> 16, at = static_cast<uint32_t>(32 * lane + j);
  const uint32_t inlined[w12_cuda::kInline] = {header.y, header.z, header.w};
  for (uint32_t e = 0; e < count; ++e) {
    const uint32_t entry = count > w12_cuda::kInline ? overflow[header.y + e] : inlined[e];
    if ((entry & 1023) == at) pair = __byte_perm(pair, entry, 0x3276);
    if ((entry & 1023) == at + 1) pair = __byte_perm(pair, entry, 0x7610);
  }
  return pair;
}

__global__ void __launch_bounds__(kThreads) embed_kernel(const Params p, const w12_cuda::Plan plan) {
  const bool w12 = p.table.format == linear::Format::kW12;
  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  const int id = p.ids[blockIdx.x], tile_bytes = w12 ? w12_cuda::kTileBytes : w12_cuda::kBf16TileBytes;
  const bool known = id >= 0 && id < p.table.n;
  const int row = known ? id % 16 : 0, tile = known ? id / 16 : 0;
  const uint8_t* tiles =
      p.table.data + (int64_t{tile / plan.tiles} * plan.steps * plan.tiles + tile % plan.tiles) * tile_bytes;
  bf16* out = p.out + blockIdx.x * p.ld_out;
  for (int k = 2 * static_cast<int>(threadIdx.x); k < p.table.k; k += 2 * kThreads) {
    const int in = k % w12_cuda::kTileK, lane = row % 8 * 4 + in % 8 / 2;
    const int j = in / 16 * 8 + in % 16 / 8 * 4 + row / 8 * 2;
    const uint8_t* t = tiles + int64_t{k / w12_cuda::kTileK} * plan.tiles * tile_bytes;
    const uint32_t pair = !known ? kNaN : w12 ? w12_pair(t, p.table.exc_pos, lane, j) : bf16_pair(t, lane, j);
    out[k] = static_cast<bf16>(pair);
    if (k + 1 < p.table.k) out[k + 1] = static_cast<bf16>(pair >> 16);
  }
}
}  // namespace

void cuda::run(const Params& p) {
  specpilot::cuda::launch_early("embed", embed_kernel, static_cast<unsigned>(p.rows), kThreads, 0, p.stream, p,
                                w12_cuda::plan(p.table.n, p.table.k));
}
}  // namespace specpilot::embed
