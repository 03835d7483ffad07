// The tile product of attention's CUDA twin: scores, softmax and weighted values of 16 query vectors at one split, in the registers
// of W warps.
//
//   warp w of a tile   scores of the keys of columns w, w + W, … of 8 keys   | values of dims 32 w …, 32 (w + W) …
//   lane 4 g + t       rows g, g + 8; keys 2t, 2t + 1 of a column            | the same of 8 dims
//   l                  32 partials, position % 32 = 8 (column % 4) + 2t + j: all terms of one are a single lane's, and the fold goes
//                      16: column ^ 2, 8: column ^ 1 (across warps through shared memory), 4: t ^ 2, 2: t ^ 1, 1: j
#pragma once
#include <algorithm>

#include "core/bf16.h"
#include "core/cuda_mma.cuh"
#include "ops/attention/attention_stage.cuh"

namespace specpilot::attention {
namespace {
constexpr int kWeightStride = kSplitKeys / 2 + 4;  // words

template <int kTilesOfBlock>
struct Shape {
  static constexpr int kTiles = kTilesOfBlock, kParts = kTiles < 4 ? 4 : 2;  // W
  static constexpr int kWarps = kTiles * kParts, kThreads = 32 * kWarps, kVectors = 16 * kTiles;
  static constexpr int kColumns = kSplitKeys / 8 / kParts;  // of a warp
  static constexpr int kMostDim = kTiles < 4 ? 256 : 128;
  static constexpr int kChunks = kMostDim / 32 / kParts;   // of 32 dims, of a warp at most
  static constexpr int kOnProcessor = kTiles < 2 ? 3 : 2;  // blocks that registers leave room for

  // Shared memory of a block: keys, values, queries, weights.
  __host__ __device__ static constexpr int64_t words(int64_t dim) {
    return dim / 2 * kKeyStride + kSplitKeys / 2 * (dim + 8) + kVectors * (dim / 2 + 4) + kVectors * kWeightStride;
  }
};

// What the warps of the tiles tell each other.
template <class S>
struct Exchange {
  float tops[S::kTiles][S::kParts][16];
  float4 sums[S::kTiles][S::kParts][32];
};

// Columns [first, first + 16) of 16 rows of words; lane (g, t) holds rows g, g + 8 and words t, t + 4.
__device__ void load_a(uint32_t (&a)[4], const uint32_t* rows, int stride, int first, int lane) {
  const uint32_t* x = rows + (lane / 4) * stride + first / 2 + lane % 4;
  a[0] = x[0], a[1] = x[8 * stride], a[2] = x[4], a[3] = x[8 * stride + 4];
}

template <class S>
class TileProduct {
 public:
  __device__ TileProduct(Exchange<S>& exchange, int warp, int lane)
      : exchange_(exchange), tile_(warp / S::kParts), part_(warp % S::kParts), lane_(lane) {}

  __device__ int tile() const { return tile_; }
  __device__ int part() const { return part_; }
  __device__ int row(int half) const { return tile_ * 16 + half * 8 + lane_ / 4; }

  __device__ void scores(const uint32_t* query, const uint32_t* keys, int dim) {
#pragma unroll
    for (auto& c : s_) c[0] = c[1] = c[2] = c[3] = 0.0f;
    const int stride = dim / 2 + 4;
    const uint32_t* b = keys + lane_ % 4 * kKeyStride + part_ * 8 + lane_ / 4;
#pragma unroll kUnroll
    for (int d = 0; d < dim; d += 16, b += 8 * kKeyStride) {
      uint32_t a[4];
      load_a(a, query + tile_ * 16 * stride, stride, d, lane_);
#pragma unroll
      for (int i = 0; i < S::kColumns; ++i)
        specpilot::cuda::mma(s_[i], a, b[i * S::kParts * 8], b[i * S::kParts * 8 + 4 * kKeyStride]);
    }
  }

  // Scales; visible: keys that rows g, g + 8 see; valid: bits of keys that there are.
  __device__ void tell_tops(float scale, const int (&visible)[2], const uint32_t* valid) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Shown shown(*this, visible[half], valid);
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < S::kColumns; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = s_[i][2 * half + j];
          x = scale * x;
          if (shown(i, j)) top = fmaxf(top, x);
        }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      if (lane_ % 4 == 0) exchange_.tops[tile_][part_][half * 8 + lane_ / 4] = top;
    }
  }
  // When all have told. Leaves the weights bf16(e), invisible keys with 0.
  __device__ void exponentials(const int (&visible)[2], const uint32_t* valid, uint32_t* weights) {
    float x[2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Shown shown(*this, visible[half], valid);
      float top = -INFINITY;
#pragma unroll
      for (int w = 0; w < S::kParts; ++w) top = fmaxf(top, exchange_.tops[tile_][w][half * 8 + lane_ / 4]);
      top_[half] = top;
      constexpr int kGroups = 4 / S::kParts;
      float sums[kGroups][2] = {};
      uint32_t* to = weights + row(half) * kWeightStride + part_ * 4 + lane_ % 4;
#pragma unroll
      for (int i = 0; i < S::kColumns; ++i) {
        float e[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          e[j] = shown(i, j) ? exp_f32(s_[i][2 * half + j] - top) : 0.0f;
          sums[i % kGroups][j] = sums[i % kGroups][j] + e[j];
        }
        to[i * S::kParts * 4] = to_bf16(e[0]) | uint32_t{to_bf16(e[1])} << 16;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) x[half][j] = kGroups == 2 ? sums[0][j] + sums[kGroups - 1][j] : sums[0][j];
    }
    exchange_.sums[tile_][part_][lane_] = make_float4(x[0][0], x[0][1], x[1][0], x[1][1]);
  }
  // When all have done that: the maximum and the sum of a row.
  __device__ float top(int half) const { return top_[half]; }
  __device__ float sum(int half) const {
    const auto of = [&](int part, int j) {
      const float4 x = exchange_.sums[tile_][part][lane_];
      return half == 0 ? (j == 0 ? x.x : x.y) : (j == 0 ? x.z : x.w);
    };
    float x[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if constexpr (S::kParts == 4)
        x[j] = (of(0, j) + of(2, j)) + (of(1, j) + of(3, j));
      else
        x[j] = of(0, j) + of(1, j);
      x[j] = x[j] + __shfl_xor_sync(~0u, x[j], 2);
      x[j] = x[j] + __shfl_xor_sync(~0u, x[j], 1);
    }
    return x[0] + x[1];
  }

  // o of dims [32 chunk, 32 chunk + 32): [8 dims][2 half + j]
  __device__ void values(float (&o)[4][4], const uint32_t* weights, const uint32_t* values, int stride, int chunk) const {
#pragma unroll
    for (auto& c : o) c[0] = c[1] = c[2] = c[3] = 0.0f;
    const uint32_t* b = values + lane_ % 4 * stride + chunk * 32 + lane_ / 4;
#pragma unroll kUnroll
    for (int key = 0; key < kSplitKeys; key += 16, b += 8 * stride) {
      uint32_t a[4];
      load_a(a, weights + tile_ * 16 * kWeightStride, kWeightStride, key, lane_);
#pragma unroll
      for (int c = 0; c < 4; ++c) specpilot::cuda::mma(o[c], a, b[c * 8], b[c * 8 + 4 * stride]);
    }
  }

 private:
  static constexpr int kUnroll = S::kParts == 4 ? 4 : 1;  // as registers allow

  // Which of the lane's keys a row sees.
  class Shown {
   public:
    __device__ Shown(const TileProduct& product, int visible, const uint32_t* valid) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int n = visible - 32 * w;
        const uint32_t bits = n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
        words_[w] = (valid[w] & bits) >> (8 * product.part_ + product.lane_ % 4 * 2);
      }
    }
    __device__ bool operator()(int i, int j) const { return words_[i * S::kParts / 4] >> (i * S::kParts % 4 * 8 + j) & 1; }

   private:
    uint32_t words_[4];
  };

  Exchange<S>& exchange_;
  int tile_, part_, lane_;
  float s_[S::kColumns][4], top_[2];
};
}  // namespace
}  // namespace specpilot::attention
