// The ring of stages in shared memory through which a block of linear_cuda.cu streams weights and x.
//
//   stage    2 W tiles of the weight, as they lie in memory | x rows of 64 k, 144 bytes apart (no bank conflicts for ldmatrix)
//   step i   of the block lies in stage i % kStages: unit first + i of the plan, so weights are one run of memory
//
// One warp fills stages, W warps read them: each step is read by all.
#pragma once
#include "core/cuda_async.cuh"
#include "ops/linear/linear_tile.cuh"

namespace specpilot::linear {
namespace {
constexpr int kMaxStages = 5, kStepK = w12_cuda::kTileK, kRowBytes = 2 * kStepK + 16;
// With up to 32 tokens two blocks fit an SM, so that the next kernel's weights are on their way while this one ends.
constexpr int stages(int tokens) { return tokens <= 16 ? 4 : tokens <= 32 ? 3 : 5; }

struct Barriers {
  specpilot::cuda::Barrier full[kMaxStages], empty[kMaxStages];
};

struct Launch {
  w12_cuda::Plan plan;
  int token_blocks;
  int weight_bytes;  // of a unit
};

template <Format format, int kTokens, int kStages>
class Ring {
 public:
  __device__ Ring(uint8_t* memory, Barriers& barriers, const Params& p, const Launch& launch, int first_unit, int first_row)
      : memory_(memory), barriers_(barriers), p_(p), launch_(launch), first_unit_(first_unit), first_row_(first_row) {}
  __device__ uint8_t* stage(int step) const {
    return memory_ + step % kStages * (launch_.weight_bytes + kTokens * kRowBytes);
  }
  __device__ uint8_t* x(int step) const { return stage(step) + launch_.weight_bytes; }
  __device__ void wait_full(int step) const { barriers_.full[step % kStages].wait(step / kStages & 1); }
  __device__ void leave(int step) const { barriers_.empty[step % kStages].arrive(); }
  __device__ void wait_empty(int step) const { barriers_.empty[step % kStages].wait(step / kStages & 1); }

  // One warp; weights may be staged before the previous kernel has ended, x may not.
  __device__ void stage_weights(int step, int lane) const {
    specpilot::cuda::Barrier& full = barriers_.full[step % kStages];
    const uint8_t* from = p_.w.data + int64_t{first_unit_ + step} * launch_.weight_bytes;
    uint8_t* to = stage(step);
    if constexpr (specpilot::cuda::kBulk) {
      if (lane == 0) {
        full.expect(launch_.weight_bytes);
        specpilot::cuda::bulk_copy(to, from, launch_.weight_bytes, full);
      }
    } else {
      for (int i = 16 * lane; i < launch_.weight_bytes; i += 16 * 32) specpilot::cuda::copy16(to + i, from + i);
    }
  }
  // k_step: the step's place in its row block.
  __device__ void stage_x(int step, int k_step, int lane) const {
    specpilot::cuda::Barrier& full = barriers_.full[step % kStages];
    const int k0 = k_step * kStepK, rows = min(kTokens, static_cast<int>(p_.rows) - first_row_);
    const bf16* from = p_.x + first_row_ * p_.ldx + k0;
    uint8_t* to = x(step);
    if (reinterpret_cast<uintptr_t>(p_.x) % 16 != 0 || p_.ldx % 8 != 0 || k0 + kStepK > p_.w.k) {
      stage_words(to, from, rows, static_cast<int>(p_.w.k) - k0 - 2 * lane, lane);
    } else {
      to += lane / 8 * kRowBytes + lane % 8 * 16, from += lane / 8 * p_.ldx + lane % 8 * 8;  // 8 lanes a row
      const int64_t four_rows = 4 * p_.ldx;
#pragma unroll 4
      for (int r = lane / 8; r < rows; r += 4, to += 4 * kRowBytes, from += four_rows) specpilot::cuda::copy16(to, from);
    }
    full.staged(lane);
  }

 private:
  // Any alignment, two columns a lane; zeros past K (`left` from the lane's first column), where the weights are zeros too.
  __device__ void stage_words(uint8_t* to, const bf16* from, int rows, int left, int lane) const {
    for (int r = 0; r < rows; ++r) {
      const bf16* x = from + r * p_.ldx + 2 * lane;
      *reinterpret_cast<uint32_t*>(to + r * kRowBytes + 4 * lane) = (left > 0 ? x[0] : 0u) | (left > 1 ? x[1] : 0u) << 16;
    }
  }

  uint8_t* memory_;
  Barriers& barriers_;
  const Params& p_;
  const Launch& launch_;
  const int first_unit_, first_row_;
};
}  // namespace
}  // namespace specpilot::linear
