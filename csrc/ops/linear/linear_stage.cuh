// The rings of stages in shared memory through which linear's warps stream weights and x; step i lies in stage i % stages.
//
//   WeightRing   one of each warp, which fills it itself: its tiles of a row group as they lie in memory; no warp waits for another
//   TokenRing    one of the warps that have the same part of k, filled by the first of them: x rows of 64 k, 128 bytes each, chunk c
//                of 16 at c ^ row % 8 (no bank conflicts; wgmma's layout). Warps say when they have read a stage; so they drift apart
//                by as many steps at most.
#pragma once
#include "core/cuda_tensor_copy.cuh"
#include "ops/linear/linear_tile.cuh"

namespace specpilot::linear {
namespace {
constexpr int kMaxStages = 8, kStepK = w12_cuda::kTileK, kRowBytes = 2 * kStepK;

// How warps share the work: those of `cluster` blocks have row_warps row groups, and of k all segments, or, where parts > 1, one each.
// Warp row + row_warps * i of a block has the row group `row` and the i-th of the block's parts.
struct Launch {
  w12_cuda::Plan plan;
  int row_warps, parts, cluster;
  int token_blocks;
  int weight_stages, token_stages;
  bool tensor;  // x comes by tensor copies

  __host__ __device__ int block_parts() const { return parts / cluster; }
  __host__ __device__ int warps() const { return row_warps * block_parts(); }
  __host__ __device__ int clusters() const { return (plan.groups + row_warps - 1) / row_warps; }
};

// A step's stage, and how often (mod 2) the ring had gone round before it.
class Place {
 public:
  explicit __device__ Place(int stages) : stages_(stages) {}
  __device__ int stage() const { return stage_; }
  __device__ uint32_t round() const { return round_; }
  __device__ void advance() {
    if (++stage_ == stages_) stage_ = 0, round_ ^= 1;
  }

 private:
  const int stages_;
  int stage_ = 0;
  uint32_t round_ = 0;
};

template <Format format, int kHeight>
constexpr int kSliceBytes = kHeight * kTileBytes<format>;  // what a warp takes of a step

// A warp's steps: some of k of a row group, then the same of the group that it has in the block's next round.
template <Format format, int kHeight>
class WeightRing {
 public:
  static constexpr int kBytes = kSliceBytes<format, kHeight>;  // of a stage

  // begin, count: steps of each group. A block at the end of the rows has warps that do another's work again, as the tensor cores
  // want four.
  __device__ WeightRing(uint8_t* memory, specpilot::cuda::Barrier* full, const Params& p, const w12_cuda::Plan& plan,
                        int group, int next_group, int begin, int count)
      : memory_(memory),
        full_(full),
        data_(p.w.data + int64_t{begin} * kBytes),
        plan_(plan),
        jump_(next_group - group),
        count_(count),
        group_(group) {
    turn_to_group();
  }
  __device__ void init(int stages) const {
    for (int s = 0; s < stages; ++s) full_[s].init(specpilot::cuda::kBulk ? 1 : specpilot::cuda::kStagers);
  }
  __device__ const uint8_t* at(int stage) const { return memory_ + stage * kBytes; }
  __device__ void wait(const Place& at) const { full_[at.stage()].wait(at.round()); }
  // The next step, by the whole warp; may begin before the previous kernel has ended.
  __device__ void fill(int stage, int lane) {
    uint8_t* to = memory_ + stage * kBytes;
    if constexpr (specpilot::cuda::kBulk) {
      if (lane == 0) {
        full_[stage].expect(kBytes);
        specpilot::cuda::bulk_copy(to, from_, kBytes, full_[stage]);
        full_[stage].arrive();
      }
    } else {
      for (int i = 16 * lane; i < kBytes; i += 16 * 32) specpilot::cuda::copy16(to + i, from_ + i);
      full_[stage].staged(lane);
    }
    from_ += kBytes;
    if (--left_ == 0) group_ += jump_, turn_to_group();
  }

 private:
  __device__ void turn_to_group() {
    from_ = data_ + int64_t{min(group_, plan_.groups - 1)} * plan_.steps * kBytes, left_ = count_;
  }

  uint8_t* memory_;
  specpilot::cuda::Barrier* full_;
  const uint8_t *data_, *from_;
  const w12_cuda::Plan& plan_;
  const int jump_, count_;
  int group_, left_;
};

struct TokenBarriers {
  specpilot::cuda::Barrier full[kMaxStages], empty[kMaxStages];
};

template <int kTokens>
class TokenRing {
 public:
  static constexpr int kBytes = kTokens * kRowBytes;  // of a stage

  // begin, count: steps, which come again in every round.
  __device__ TokenRing(uint8_t* memory, TokenBarriers& barriers, const Params& p, const CUtensorMap* map, int64_t first_row,
                       int begin, int count)
      : memory_(memory),
        barriers_(barriers),
        p_(p),
        map_(map),
        first_row_(first_row),
        begin_(begin),
        end_(begin + count),
        next_(begin),
        rows_(static_cast<int>(min(int64_t{kTokens}, p.rows - first_row))),
        words_(reinterpret_cast<uintptr_t>(p.x) % 16 != 0 || p.ldx % 8 != 0) {}
  // readers: warps that say when they have read a stage.
  __device__ void init(int stages, int readers) const {
    for (int s = 0; s < stages; ++s) {
      barriers_.full[s].init(map_ ? 1 : specpilot::cuda::kStagers);
      barriers_.empty[s].init(readers);
    }
  }
  __device__ uint8_t* at(int stage) const { return memory_ + stage * kBytes; }
  __device__ void wait(const Place& at) const { barriers_.full[at.stage()].wait(at.round()); }
  __device__ void leave(int stage, bool really) const { barriers_.empty[stage].arrive(really); }
  // All readers have left the step at `at`.
  __device__ void wait_left(const Place& at) const { barriers_.empty[at.stage()].wait(at.round()); }

  // The next step, by one warp, after the previous kernel.
  __device__ void fill(int stage, int lane) {
    const int k0 = next_ * kStepK;
    if (++next_ == end_) next_ = begin_;
    specpilot::cuda::Barrier& full = barriers_.full[stage];
    if (map_) {
      if (lane > 0) return;
      full.expect(kBytes);
      specpilot::cuda::tensor_copy(at(stage), *map_, static_cast<int>(first_row_), k0, full);
      full.arrive();
      return;
    }
    const bf16* from = p_.x + first_row_ * p_.ldx + k0;
    if (words_ || k0 + kStepK > p_.w.k) {
      fill_words(at(stage), from, static_cast<int>(p_.w.k) - k0 - 2 * lane, lane);
    } else {
      from += lane / 8 * p_.ldx + lane % 8 * 8;  // 8 lanes a row
      const int64_t four_rows = 4 * p_.ldx;
#pragma unroll 4
      for (int r = lane / 8; r < rows_; r += 4, from += four_rows)
        specpilot::cuda::copy16(at(stage) + r * kRowBytes + ((lane ^ r) % 8) * 16, from);
    }
    full.staged(lane);
  }

 private:
  // Any alignment, two columns a lane; zeros past K (`left` from the lane's first column), where the weights are zeros too.
  __device__ void fill_words(uint8_t* to, const bf16* from, int left, int lane) const {
    for (int r = 0; r < rows_; ++r) {
      const bf16* x = from + r * p_.ldx + 2 * lane;
      *reinterpret_cast<uint32_t*>(to + r * kRowBytes + ((lane / 4 ^ r) % 8) * 16 + lane % 4 * 4) =
          (left > 0 ? x[0] : 0u) | (left > 1 ? x[1] : 0u) << 16;
    }
  }

  uint8_t* memory_;
  TokenBarriers& barriers_;
  const Params& p_;
  const CUtensorMap* const map_;
  const int64_t first_row_;
  const int begin_, end_;
  int next_;
  const int rows_;
  const bool words_;
};
}  // namespace
}  // namespace specpilot::linear
