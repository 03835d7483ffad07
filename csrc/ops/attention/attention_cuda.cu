// CUDA twin of attention: flash decoding over absolute splits, order "cuda-mma16" (attention.h).
//
// A block takes (tile of consecutive rows, kv head, some splits). K and V of a split are staged once for all query vectors of
// the tile; query vector m = row * heads + head is row m of the MMA tiles. A (split, tile) whose rows see different keys there
// (rows of several requests, splits that a tail reaches) is done row by row by the same code. Keys are staged by position:
//
//   K  word [d / 2][key]   dims 2i, 2i + 1 of a key      } = B fragments of mma.m16n8k16, as the cache stores them;
//   V  word [key / 2][d]   a dim of keys 2i, 2i + 1      } row strides = 8 (mod 32) words: no bank conflicts
//   Q  word [m][d / 2],  P word [m][key / 2]               A fragments; row strides = 4 odd (mod 32) words
//   S  fp32 [m][key]       lies where K was; P replaces it row by row
//
// Every split leaves a record {o[Dp], m, l} in the workspace and fold_kernel folds a row's records in order; with blocks enough
// without split-K, a block walks all splits in order and keeps one record a row, with the same formula and so the same bits.
// Roofline: 4 Dp Hkv (visible keys) bytes per request for few rows, plus 8 (Dp + 2) bytes a row, head and split.
#include <algorithm>
#include <climits>

#include "core/cuda_launch.cuh"
#include "ops/attention/attention_fold.cuh"
#include "ops/attention/attention_stage.cuh"

namespace specpilot::attention {
namespace {
template <int kTiles>
__global__ void __launch_bounds__(kThreads, 2) split_kernel(const Params p, const Plan plan) {
  constexpr int kWarpsOfTile = kWarps / kTiles, kColumns = 2 * kTiles;  // 8-wide column tiles of a warp
  extern __shared__ uint4 dynamic[];
  __shared__ Seen seen[kMaxVectors];
  __shared__ float state_m[kMaxVectors], state_l[kMaxVectors], weight_old[kMaxVectors], weight_new[kMaxVectors];
  __shared__ __align__(16) int slots[kSplitKeys];
  __shared__ int common[5];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = static_cast<int>(p.dim_padded);
  const int first_row = blockIdx.x * plan.tile_rows, rows = min(plan.tile_rows, plan.rows - first_row);
  const int kv_head = blockIdx.y / plan.head_blocks, first_in_group = blockIdx.y % plan.head_blocks * plan.heads;
  const int group = static_cast<int>(p.q_heads / p.kv_heads), heads = min(plan.heads, group - first_in_group);
  const int first_head = kv_head * group + first_in_group, vectors = rows * heads;

  const int q_stride = dim / 2 + 4, v_stride = dim + 8;
  uint32_t* keys = reinterpret_cast<uint32_t*>(dynamic);
  float* scores = reinterpret_cast<float*>(keys);
  uint32_t* values = keys + max(dim / 2 * kKeyStride, 16 * kTiles * kScoreStride);
  uint32_t* query = values + kSplitKeys / 2 * v_stride;

  // What the rows of the tile have in common: splits before `together` show all rows that reach them the same keys.
  if (threadIdx.x < rows) seen[threadIdx.x] = see(p, plan.first_row + first_row + threadIdx.x);
  __syncthreads();
  if (warp == 0) {
    int low = INT_MAX, high = 0, request_low = INT_MAX, request_high = -1, bare = INT_MAX, prefix = 0;
    for (int r = lane; r < rows; r += 32) {
      const Seen s = seen[r];
      if (s.total == 0) continue;
      low = min(low, s.total), high = max(high, s.total), prefix = max(prefix, s.prefix);
      request_low = min(request_low, s.request), request_high = max(request_high, s.request);
      if (s.total > s.prefix) bare = min(bare, s.prefix / kSplitKeys);
    }
    low = __reduce_min_sync(~0u, low), high = __reduce_max_sync(~0u, high), prefix = __reduce_max_sync(~0u, prefix);
    request_low = __reduce_min_sync(~0u, request_low), request_high = __reduce_max_sync(~0u, request_high);
    bare = __reduce_min_sync(~0u, bare);
    const int splits = (high + kSplitKeys - 1) / kSplitKeys;
    if (lane == 0) {
      common[0] = low, common[1] = prefix, common[2] = splits, common[3] = request_low;
      common[4] = request_low == request_high ? min(bare, splits) : 0;
    }
  }
  __syncthreads();
  const int low = common[0], prefix = common[1], request = common[3], together = common[4];
  const int items = together + (common[2] - together) * rows;
  if (blockIdx.z >= items) return;

  const bool q_aligned = reinterpret_cast<uintptr_t>(p.q) % 4 == 0;
  for (int m = warp; m < 16 * kTiles; m += kWarps) {
    const int64_t vector = int64_t{plan.first_row + first_row + m / heads} * p.q_heads + first_head + m % heads;
    for (int i = lane; i < dim / 2; i += 32)
      query[m * q_stride + i] = m < vectors ? load_word(p.q + vector * dim + 2 * i, q_aligned) : 0;
  }
  const auto record = [&](int m, int split) {
    const int64_t vector = int64_t{first_row + m / heads} * p.q_heads + first_head + m % heads;
    return workspace + (vector * plan.slots + (plan.slots == 1 ? 0 : split)) * (dim + 2);
  };
  const auto bits = reinterpret_cast<uintptr_t>(p.k_cache) | reinterpret_cast<uintptr_t>(p.v_cache);
  const Cache cache{p, kv_head, bits % 16 == 0};

  // One split for rows [begin, end) of the tile. False: nothing done, the rows must be taken one by one.
  const auto attend = [&](int split, int begin, int end) {
    const int first = split * kSplitKeys, m_begin = begin * heads, m_end = end * heads;
    const int tile = warp % kTiles, column = warp / kTiles * kColumns;
    const bool mine = tile * 16 < m_end && tile * 16 + 16 > m_begin;
    const bool alone = end == begin + 1;
    if (threadIdx.x < kSplitKeys) {
      const Seen s = alone ? seen[begin] : Seen{request, prefix, 0, prefix};
      const int position = first + threadIdx.x;
      int slot = -1;
      if (position < s.prefix)
        slot = p.slot_table[s.request * p.ld_table + position];
      else if (position < s.total)
        slot = p.tail_slots[s.tail + (position - s.prefix)];
      slots[threadIdx.x] = slot >= 0 && slot < p.slot_count ? slot : -1;
    }
    __syncthreads();
    cache.stage_keys(keys, slots, warp, lane);
    commit_copies();
    cache.stage_values(values, v_stride, slots, warp, lane);
    commit_copies();
    wait_copies<1>();
    __syncthreads();

    float acc[kColumns][4] = {};
    if (mine)
      for (int d = 0; d < dim; d += 16) {
        uint32_t a[4];
        load_a(a, query + tile * 16 * q_stride, q_stride, d, lane);
        const uint32_t* b = keys + (d / 2 + lane % 4) * kKeyStride + column * 8 + lane / 4;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) mma(acc[c], a, b[c * 8], b[c * 8 + 4 * kKeyStride]);
      }
    wait_copies<0>();
    __syncthreads();
    if (mine)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float* s = scores + (tile * 16 + lane / 4) * kScoreStride + (column + c) * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(s) = make_float2(acc[c][0], acc[c][1]);
        *reinterpret_cast<float2*>(s + 8 * kScoreStride) = make_float2(acc[c][2], acc[c][3]);
      }
    // A key that some rows do not see meets them with e = 0, which hides its value only if that is an ordinary number.
    bool wild = false;
    if (!alone)
      for (int pair = max(low - first, 0) / 2 + warp; pair < kSplitKeys / 2; pair += kWarps)
        for (int d = lane; d < dim; d += 32) {
          const uint32_t v = values[pair * v_stride + d] & 0x7fff7fffu;
          wild |= (v & 0xffffu) >= 0x5f80u || v >> 16 >= 0x5f80u;  // 2^64
        }
    if (__syncthreads_or(wild)) return false;

    for (int m = m_begin + warp; m < m_end; m += kWarps) {
      const int visible = seen[m / heads].total - first;
      if (visible <= 0) continue;
      float* s = scores + m * kScoreStride;
      float e[4], top = -INFINITY;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = lane + 32 * i;
        e[i] = p.scale * s[key];
        if (key < visible && slots[key] >= 0) top = fmaxf(top, e[i]);
      }
#pragma unroll
      for (int half = 16; half > 0; half /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, half));
      __syncwarp();  // every lane has read its scores: P takes their place
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = lane + 32 * i;
        e[i] = key < visible && slots[key] >= 0 ? exp_f32(e[i] - top) : 0.0f;
        sum = sum + e[i];
        reinterpret_cast<bf16*>(s)[key] = to_bf16(e[i]);
      }
#pragma unroll
      for (int half = 16; half > 0; half /= 2) sum = sum + __shfl_xor_sync(~0u, sum, half);
      if (lane == 0) {
        const bool fresh = split == 0 || plan.slots > 1;
        const Weights w = weigh(fresh ? -INFINITY : state_m[m], top, sum);
        state_m[m] = w.n;
        state_l[m] = std::fma(fresh ? 0.0f : state_l[m], w.a, sum * w.b);
        weight_old[m] = fresh ? -1.0f : w.a, weight_new[m] = w.b;
        *reinterpret_cast<float2*>(record(m, split) + dim) = make_float2(state_m[m], state_l[m]);
      }
    }
    __syncthreads();

    for (int base = column; mine && base < dim / 8; base += kWarpsOfTile * kColumns) {
      __syncwarp();
      float o[kColumns][4] = {};
#pragma unroll 2
      for (int key = 0; key < kSplitKeys; key += 16) {
        uint32_t a[4];
        load_a(a, keys + tile * 16 * kScoreStride, kScoreStride, key, lane);
        const uint32_t* b = values + (key / 2 + lane % 4) * v_stride + base * 8 + lane / 4;
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (base + c < dim / 8) mma(o[c], a, b[c * 8], b[c * 8 + 4 * v_stride]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = tile * 16 + half * 8 + lane / 4;
        if (m < m_begin || m >= m_end || seen[m / heads].total <= first) continue;
        float* to = record(m, split) + base * 8 + lane % 4 * 2;
        const float a = weight_old[m], b = weight_new[m];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (base + c >= dim / 8) break;
          float2* x = reinterpret_cast<float2*>(to + c * 8);
          const float2 old = a < 0.0f ? make_float2(0.0f, 0.0f) : *x;
          const float weight = a < 0.0f ? 0.0f : a;
          *x = make_float2(std::fma(old.x, weight, o[c][2 * half] * b), std::fma(old.y, weight, o[c][2 * half + 1] * b));
        }
      }
    }
    return true;
  };

  for (int item = blockIdx.z; item < items; item += gridDim.z) {
    const bool shared = item < together;
    const int split = shared ? item : together + (item - together) / rows;
    if (shared && attend(split, 0, rows)) continue;
    const int only = (item - together) % rows;
    for (int r = shared ? 0 : only; r < (shared ? rows : only + 1); ++r)
      if (seen[r].total > split * kSplitKeys) attend(split, r, r + 1);
  }
}

}  // namespace

void cuda::run(const Params& p) {
  if (p.rows == 0) return;
  int device = 0, processors = 0, most_shared = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  constexpr int64_t kStatic = 4096;  // more than split_kernel's own arrays
  const int64_t group = p.q_heads / p.kv_heads;
  int tiles = kMaxTiles;
  while (tiles > 1 && (8 * tiles >= p.rows * group || 4 * shared_words(tiles, p.dim_padded) + kStatic > most_shared))
    tiles /= 2;
  const int64_t heads = std::min<int64_t>(group, 16 * tiles), tile_rows = 16 * tiles / heads;
  const int64_t head_blocks = (group + heads - 1) / heads, y = p.kv_heads * head_blocks;
  const int64_t splits = std::max<int64_t>(1, (p.ld_table + p.tail_count + kSplit - 1) / kSplit);
  const int64_t vector = p.q_heads * (p.dim_padded + 2);  // floats of a row's records of one split
  const bool walk = (p.rows + tile_rows - 1) / tile_rows * y >= 2 * processors || splits * vector > kWorkspace;
  const int64_t slots = walk ? 1 : splits;
  int64_t pass = std::min(p.rows, kWorkspace / (slots * vector));
  SP_CHECK(pass > 0, "attention: ", p.q_heads, " heads of ", p.dim, " are more than the workspace holds");
  if (pass < p.rows && pass > tile_rows) pass -= pass % tile_rows;

  const auto kernel = tiles == 1 ? split_kernel<1> : tiles == 2 ? split_kernel<2> : split_kernel<4>;
  const size_t bytes = 4 * shared_words(tiles, p.dim_padded);
  specpilot::cuda::allow_shared("attention", kernel, bytes);
  for (int64_t first = 0; first < p.rows; first += pass) {
    const int64_t rows = std::min(pass, p.rows - first), x = (rows + tile_rows - 1) / tile_rows;
    const int64_t fill = (4 * processors + x * y - 1) / (x * y);  // blocks that share the splits of a tile
    const int64_t z = walk ? 1 : std::min<int64_t>({fill, splits * tile_rows, 65535});
    const Plan plan{static_cast<int>(first), static_cast<int>(rows),        static_cast<int>(tile_rows),
                    static_cast<int>(heads), static_cast<int>(head_blocks), static_cast<int>(slots)};
    const dim3 grid(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
    specpilot::cuda::launch("attention", kernel, grid, kThreads, bytes, p.stream, p, plan);
    const dim3 vectors(static_cast<unsigned>(rows), static_cast<unsigned>(p.q_heads));
    specpilot::cuda::launch("attention", fold_kernel, vectors, kFoldThreads, 0, p.stream, p, plan);
  }
}
}  // namespace specpilot::attention
