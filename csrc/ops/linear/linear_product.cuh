// The work of a warp in linear's CUDA kernels: sums of some tiles of 16 outputs x some tiles of 8 tokens in registers, a step of 64 k.
#pragma once
#include "core/cuda_mma.cuh"
#include "core/cuda_wgmma.cuh"
#include "ops/linear/linear_stage.cuh"

namespace specpilot::linear {
namespace {
using w12_cuda::Plan;

template <int kHeight, int kTiles>
struct Accumulators {
  float c[kHeight][kTiles][4];

  __device__ void clear() {
    each([](float& x, int, int, int) { x = 0.0f; });
  }
  template <class F>
  __device__ void each(F f) {
#pragma unroll
    for (int i = 0; i < kHeight; ++i)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(c[i][j][e], i, j, e);
  }
};

// Operand b of a step from x's stage: two k of 16 of 8 tokens a load, or 16 k of two tiles of tokens.
template <int kTiles>
class Tokens {
 public:
  static constexpr int kLoads = kTiles == 1 ? 2 : 2 * kTiles;
  __device__ Tokens(const uint8_t* x, int lane)
      : row_(specpilot::cuda::shared_address(x) + (lane % 8 + (kTiles == 1 ? 0 : lane / 16 * 8)) * kRowBytes),
        chunk_(kTiles == 1 ? lane / 8 : lane / 8 % 2),
        swizzle_(lane % 8) {}
  static constexpr int k(int load, int half) { return kTiles == 1 ? 2 * load + half : load / (kTiles / 2); }  // times 16
  static constexpr int tile(int load, int half) { return kTiles == 1 ? 0 : load % (kTiles / 2) * 2 + half; }
  __device__ void load(uint32_t (&b)[4], int load) const {
    const int rows = kTiles == 1 ? 0 : load % (kTiles / 2) * 16, chunk = kTiles == 1 ? 4 * load : 2 * k(load, 0);
    specpilot::cuda::load_matrices(b, row_ + rows * kRowBytes + ((chunk | chunk_) ^ swizzle_) * 16);
  }

 private:
  const uint32_t row_;
  const int chunk_, swizzle_;
};

// One step of one warp.
template <Format format, int kHeight, int kTiles>
__device__ void multiply(Accumulators<kHeight, kTiles>& acc, const uint8_t* tiles, const uint8_t* x,
                         const uint32_t* overflow, int lane) {
  using X = Tokens<kTiles>;
  constexpr int kAhead = kTiles == 8 ? 4 : kTiles == 4 ? 2 : X::kLoads;  // loads of x before they are due
  const X tokens(x, lane);
  Packet<format> packets[kHeight];
#pragma unroll
  for (int i = 0; i < kHeight; ++i) load<format>(packets[i], tiles + i * kTileBytes<format>, lane);
  uint32_t b[kAhead][4];
#pragma unroll
  for (int m = 0; m < kAhead; ++m) tokens.load(b[m], m);
  Fragments a[kHeight][2];
  uint32_t any = 0;
#pragma unroll
  for (int i = 0; i < kHeight; ++i) {
    decode(a[i][0], packets[i], 0), decode(a[i][1], packets[i], 1);
    any |= exceptions(packets[i]);
  }
  if (any)
#pragma unroll
    for (int i = 0; i < 2 * kHeight; ++i)
      if (exceptions(packets[i / 2])) patch(a[i / 2][i % 2], packets[i / 2], overflow, i % 2, lane);
#pragma unroll
  for (int m = 0; m < X::kLoads; ++m) {
    const auto& now = b[m % kAhead];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kHeight; ++i)
        specpilot::cuda::mma(acc.c[i][X::tile(m, half)], a[i][X::k(m, half) / 2][X::k(m, half) % 2], now[2 * half],
                             now[2 * half + 1]);
    if (m + kAhead < X::kLoads) tokens.load(b[m % kAhead], m + kAhead);
  }
}

// The same by four warps together. While half a tile is multiplied the next half is decoded; the last half's products are still under
// way at the end, and `before` is called when those of the step before are done.
template <Format format, int kHeight, int kTiles, class Before>
__device__ void multiply_together(Accumulators<kHeight, kTiles>& acc, Fragments (&a)[2], const uint8_t* tiles,
                                  const uint8_t* x, const uint32_t* overflow, int lane, Before before) {
  const uint64_t rows = specpilot::cuda::wgmma_rows(specpilot::cuda::shared_address(x));
  Packet<format> packets[kHeight];
  uint32_t any = 0;
#pragma unroll
  for (int i = 0; i < kHeight; ++i)
    load<format>(packets[i], tiles + i * kTileBytes<format>, lane), any |= exceptions(packets[i]);
  const bool patches = __any_sync(~0u, any);
  if (patches)
#pragma unroll
    for (int i = 0; i < kHeight; ++i) make_uniform(packets[i]);
#pragma unroll
  for (int i = 0; i < kHeight; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      specpilot::cuda::wgmma_wait<1>();  // a[half] has been read
      if (i == 0 && half == 1) before();
      decode(a[half], packets[i], half);
      if (patches) patch(a[half], packets[i], overflow, half, lane);
      specpilot::cuda::wgmma_begin();
#pragma unroll
      for (int kt = 0; kt < 2; ++kt)
        specpilot::cuda::wgmma(acc.c[i], a[half][kt], specpilot::cuda::wgmma_from_k(rows, 2 * half + kt));
      specpilot::cuda::wgmma_end();
    }
  }
}
}  // namespace
}  // namespace specpilot::linear
