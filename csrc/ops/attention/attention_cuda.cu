// CUDA twin of attention: flash decoding over absolute splits, order "cuda-mma16" (attention.h).
//
// A block takes (tile of consecutive rows, kv head, some splits). K and V of a split are staged once for all query vectors of
// the tile; query vector m = row * heads + head is row m of the MMA tiles. A (split, tile) whose rows see different keys there
// (rows of several requests, splits that a tail reaches) is done row by row by the same code. Keys are staged by position:
//
//   K  word [d / 2][key]   dims 2i, 2i + 1 of a key      } = B fragments of mma.m16n8k16, as the cache stores them;
//   V  word [key / 2][d]   a dim of keys 2i, 2i + 1      } row strides = 8 (mod 32) words: no bank conflicts
//   Q  word [m][d / 2],  P word [m][key / 2]               A fragments; row strides = 4 odd (mod 32) words
//
// The keys of a block's next split are under way from when the scores of the present one are done, its values from when those of the
// present one are:
//
//   copies     K0 V0 . . . . K1 . . . . V1 . . . . K2 . . . . V2
//   block            scores 0 | exp, P V 0 |  scores 1 | exp, P V 1 | …
//
// Every split leaves a record, and a kernel that follows folds the records of a row in order (attention_fold.cuh). With blocks enough
// without split-K (kWalk) a block takes all splits in order and keeps the state in registers, with the same formula and so the same
// bits.
// Roofline: 4 Dp Hkv (visible keys) bytes per request for few rows, plus 8 (Dp + 2) bytes a row, head and split, in the L2.
#include <algorithm>

#include "core/cuda_launch.cuh"
#include "ops/attention/attention_fold.cuh"
#include "ops/attention/attention_tile.cuh"

namespace specpilot::attention {
namespace {
template <class S, bool kWalk>
__global__ void __launch_bounds__(S::kThreads, S::kOnProcessor)
    attention_kernel(const __grid_constant__ Params p, const __grid_constant__ Plan plan) {
  extern __shared__ uint4 dynamic[];
  __shared__ Seen seen[S::kVectors];
  __shared__ Tile tile;  // here, as registers are short
  __shared__ Common common;
  __shared__ Exchange<S> exchange;
  __shared__ __align__(16) int slots[kSplitKeys];
  __shared__ uint32_t valid[2][kSplitKeys / 32];  // which keys have a slot, in turns
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, dim = static_cast<int>(p.dim_padded);
  const int kv_head = blockIdx.y / plan.head_blocks, first_in_group = blockIdx.y % plan.head_blocks * plan.heads;
  const int group = static_cast<int>(p.q_heads / p.kv_heads), first_row = blockIdx.x * plan.tile_rows;
  if (thread == 0)
    tile = {first_row, min(plan.tile_rows, plan.rows - first_row), kv_head * group + first_in_group,
            min(plan.heads, group - first_in_group)};
  __syncthreads();
  const Records records{plan, static_cast<int>(p.q_heads), dim};

  const int q_stride = dim / 2 + 4, v_stride = dim + 8;
  uint32_t* keys = reinterpret_cast<uint32_t*>(dynamic);
  uint32_t* values = keys + dim / 2 * kKeyStride;
  uint32_t* query = values + kSplitKeys / 2 * v_stride;
  uint32_t* weights = query + S::kVectors * q_stride;

  specpilot::cuda::let_next_start();
  specpilot::cuda::wait_for_previous();
  if (thread < tile.rows) seen[thread] = see(p, plan.first_row + first_row + thread);
  __syncthreads();
  if (warp == 0) {
    const Common c = common_of(seen, tile.rows, lane);
    if (lane == 0) common = c;
  }
  __syncthreads();
  const Items items{seen, tile.rows, static_cast<int>(gridDim.z), common};
  Piece now = items.at(blockIdx.z);
  if (!kWalk && now.item == items.count()) return;

  const bool q_aligned = reinterpret_cast<uintptr_t>(p.q) % 4 == 0;
  for (int m = warp; m < S::kVectors; m += S::kWarps)
    for (int i = lane; i < dim / 2; i += 32) {
      const bf16* q = p.q + (int64_t{plan.first_row + tile.row(m)} * p.q_heads + tile.head(m)) * dim + 2 * i;
      query[m * q_stride + i] = m < tile.vectors() ? load_word(q, q_aligned) : 0;
    }
  const auto bits = reinterpret_cast<uintptr_t>(p.k_cache) | reinterpret_cast<uintptr_t>(p.v_cache);
  const Cache cache{p, kv_head, bits % 16 == 0};
  const auto find_slot = [&](const Piece& piece) {
    return thread < kSplitKeys && piece.item < items.count() ? items.slot(p, piece, thread) : -1;
  };
  const auto tell_slot = [&](int slot, int turn) {  // then a barrier
    if (thread >= kSplitKeys) return;
    slots[thread] = slot;
    const uint32_t found = __ballot_sync(~0u, slot >= 0);
    if (lane == 0) valid[turn % 2][warp] = found;
  };
  const auto stage_keys = [&](const Piece& piece) {
    if (piece.item < items.count()) cache.stage_keys(keys, slots, warp, S::kWarps, lane);
    specpilot::cuda::commit_copies();  // behind the end empty, so that counting them stays simple
  };
  const auto stage_values = [&](const Piece& piece) {
    if (piece.item < items.count()) cache.stage_values(values, v_stride, slots, warp, S::kWarps, lane);
    specpilot::cuda::commit_copies();
  };

  TileProduct<S> product(exchange, warp, lane);
  int total[2];  // keys that the tile's rows g, g + 8 see
  float n[2] = {-INFINITY, -INFINITY}, l[2] = {}, state[kWalk ? S::kChunks : 1][4][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = product.row(half);
    total[half] = m < tile.vectors() ? seen[m / tile.heads].total : 0;
  }

  tell_slot(find_slot(now), 0);
  __syncthreads();
  stage_keys(now);
  stage_values(now);
  for (int turn = 0;; ++turn) {
    specpilot::cuda::wait_copies<1>();
    __syncthreads();  // keys are there
    if (now.item == items.count()) break;
    const Piece next = items.after(now);
    const int next_slot = find_slot(next);

    const int first = now.first_key(), m_begin = now.begin * tile.heads, m_end = now.end * tile.heads;
    const bool mine = product.tile() * 16 < m_end && product.tile() * 16 + 16 > m_begin;
    int visible[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      visible[half] = product.row(half) >= m_begin && product.row(half) < m_end ? max(total[half] - first, 0) : 0;
    if (mine) {
      product.scores(query, keys, dim);
      product.tell_tops(p.scale, visible, valid[turn % 2]);
    }
    tell_slot(next_slot, turn + 1);
    // A key that some rows do not see meets them with e = 0, which hides its value only if that is an ordinary number.
    if (!now.alone() && common.low < first + kSplitKeys) {
      specpilot::cuda::wait_copies<0>();
      __syncthreads();
      bool wild = false;
      for (int pair = max(common.low - first, 0) / 2 + warp; pair < kSplitKeys / 2; pair += S::kWarps)
        for (int d = lane; d < dim; d += 32) {
          const uint32_t v = values[pair * v_stride + d] & 0x7fff7fffu;
          wild |= (v & 0xffffu) >= 0x5f80u || v >> 16 >= 0x5f80u;  // 2^64
        }
      if (__syncthreads_or(wild)) {
        now = items.apart(now);
        tell_slot(find_slot(now), turn + 1);
        __syncthreads();
        stage_keys(now);
        stage_values(now);
        continue;
      }
    } else {
      __syncthreads();  // tops are told, keys are read
    }
    stage_keys(next);
    if (mine) product.exponentials(visible, valid[turn % 2], weights);
    specpilot::cuda::wait_copies<1>();
    __syncthreads();  // values are there, and P

    if (mine) {
      float a[2] = {}, b[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = product.sum(half);
        if (visible[half] == 0) continue;
        if constexpr (kWalk) {
          const Weights w = weigh(n[half], product.top(half), sum);
          n[half] = w.n, a[half] = w.a, b[half] = w.b;
          l[half] = std::fma(l[half], w.a, sum * w.b);
        } else if (product.part() == 0 && lane % 4 == 0) {
          __stcg(records.softmax(tile.row(product.row(half)), tile.head(product.row(half)), now.split),
                 make_float2(product.top(half), sum));
        }
      }
#pragma unroll
      for (int c = 0; c < S::kChunks; ++c) {
        const int chunk = product.part() + c * S::kParts;
        if (chunk * 32 >= dim) break;
        float o[4][4];
        product.values(o, weights, values, v_stride, chunk);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (visible[half] == 0) continue;
          const int m = product.row(half);
          float* to = records.o(tile.row(m), tile.head(m), now.split) + chunk * 32 + lane % 4 * 2;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float x = o[i][2 * half], y = o[i][2 * half + 1];
            if constexpr (kWalk) {
              float* s = &state[c][i][2 * half];
              s[0] = std::fma(s[0], a[half], x * b[half]), s[1] = std::fma(s[1], a[half], y * b[half]);
            } else {
              __stcg(reinterpret_cast<float2*>(to + i * 8), make_float2(x, y));
            }
          }
        }
      }
    }
    __syncthreads();  // values are read, records are left
    stage_values(next);
    now = next;
  }

  if constexpr (kWalk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = product.row(half);
      if (m >= tile.vectors()) continue;
      bf16* out = p.out + int64_t{plan.first_row + tile.row(m)} * p.ld_out + tile.head(m) * p.dim;
#pragma unroll
      for (int c = 0; c < S::kChunks; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (const int d = (product.part() + c * S::kParts) * 32 + i * 8 + lane % 4 * 2 + j; d < p.dim)
              out[d] = finished(state[c][i][2 * half + j], l[half]);
    }
  }
}

int processors() {
  int device = 0, count = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  SP_CHECK(error == cudaSuccess, "attention: ", cudaGetErrorString(error));
  return count;
}

template <int kTiles>
void run_tiles(const Params& p) {
  using S = Shape<kTiles>;
  const int64_t group = p.q_heads / p.kv_heads, heads = std::min<int64_t>(group, S::kVectors),
                tile_rows = S::kVectors / heads;
  const int64_t head_blocks = (group + heads - 1) / heads, y = p.kv_heads * head_blocks;
  const int64_t slots = std::max<int64_t>(1, (p.ld_table + p.tail_count + kSplit - 1) / kSplit);
  const int64_t row = slots * p.q_heads * (p.dim_padded + 2);  // floats of its records
  const bool walk = (p.rows + tile_rows - 1) / tile_rows * y >= processors() || row * tile_rows > kWorkspace;
  const int64_t room = kWorkspace / row / tile_rows * tile_rows;
  const int64_t pass = walk ? p.rows : std::min(p.rows, room);

  const auto kernel = walk ? attention_kernel<S, true> : attention_kernel<S, false>;
  const size_t bytes = 4 * S::words(p.dim_padded);
  specpilot::cuda::allow_shared("attention", kernel, bytes);
  int on_processor = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_processor, kernel, S::kThreads, bytes);
  for (int64_t first = 0; first < p.rows; first += pass) {
    const int64_t rows = std::min(pass, p.rows - first), x = (rows + tile_rows - 1) / tile_rows;
    const int64_t fill = processors() * on_processor / (x * y);  // blocks that share the splits of a tile
    const int64_t z = walk ? 1 : std::clamp<int64_t>(fill, 1, std::min<int64_t>(slots * tile_rows, 65535));
    const Plan plan{static_cast<int>(first), static_cast<int>(rows),        static_cast<int>(tile_rows),
                    static_cast<int>(heads), static_cast<int>(head_blocks), static_cast<int>(slots)};
    const dim3 grid(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
    specpilot::cuda::launch_early("attention", kernel, grid, S::kThreads, bytes, p.stream, p, plan);
    if (!walk)
      specpilot::cuda::launch_early("attention", fold_kernel, static_cast<unsigned>(rows * p.q_heads), kFoldThreads,
                                    kChunk * p.dim_padded * sizeof(float), p.stream, p, plan);
  }
}
}  // namespace

void cuda::run(const Params& p) {
  if (p.rows == 0) return;
  const auto most_shared = static_cast<int64_t>(specpilot::cuda::most_shared("attention"));
  // Rows of a request mostly stand together, and tiles of one request share its keys.
  const int64_t vectors = (p.rows + p.requests - 1) / std::max<int64_t>(p.requests, 1) * (p.q_heads / p.kv_heads);
  const auto fits = [&]<class S>(S) {
    constexpr int64_t kStatic = sizeof(Exchange<S>) + sizeof(Seen[S::kVectors]) + 1024;  // a block's own arrays, and some
    return p.dim_padded <= S::kMostDim && 4 * S::words(p.dim_padded) + kStatic <= most_shared;
  };
  if (vectors > Shape<4>::kVectors / 2 && fits(Shape<4>())) return run_tiles<4>(p);
  if (vectors > Shape<2>::kVectors / 2 && fits(Shape<2>())) return run_tiles<2>(p);
  SP_CHECK(fits(Shape<1>()), "attention: heads of ", p.dim, " dims take ", 4 * Shape<1>::words(p.dim_padded),
           " bytes of shared memory, of which this GPU has ", most_shared, " a block; use another GPU, or the CPU");
  run_tiles<1>(p);
}
}  // namespace specpilot::attention
