// rope_kv: per-head norm of q and k, rotary embedding, and the write of K and V into the paged cache.
//
//   qkv        bf16 [R, (Hq + 2 Hkv) D]: q heads, k heads, v heads; unit column stride.
//              Hq may be 0 (a drafter's context rows)
//   cos, sin   bf16 [P, D / 2]; row = absolute position (half-rotation: dim i pairs with i + D/2)
//   positions  int32 [R], 0 <= p < P
//   slots      int32 [R]: where the row's K and V go, no slot twice; -1 writes nothing
//   q_norm, k_norm  bf16 [D], optional (both or neither): RMSNorm over D with eps and norm_denom, order as in rmsnorm.h
//   q_out      bf16 [R, Hq, Dp], Dp = D rounded up to 32, padding written as zero
//   k_cache    bf16 [blocks, Hkv, 2, Dp / 2, 32]
//   v_cache    bf16 [blocks, Hkv, 16, 2 Dp]
//
// CUDA checks no values: a row whose position is out of range writes nothing, one whose slot is writes no K and V, and a slot
// given twice holds a mixture.
//
// Cache layout. A block is 32 slots; slot s lies in block s / 32 at lane t = s % 32. Dims past D are zero.
//   K  half t / 16 holds 16 slots as pair rows over D (core/mma.h):
//      element (d, t) at [block, h, t / 16, d / 2, (t % 16) * 2 + d % 2]
//   V  pair rows over slots:
//      element (t, d) at [block, h, t / 2, d * 2 + t % 2]
//
// Rounding: each product and the sum of the rotation are rounded to bf16:
//   rotated[i]       = bf16(bf16(x[i] cos) + bf16(-x[i + D/2] sin))
//   rotated[i + D/2] = bf16(bf16(x[i + D/2] cos) + bf16(x[i] sin))
//
// Determinism: order_fixed.   Roofline: 2 R (2 Hq + 4 Hkv) D bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::rope_kv {
inline constexpr int64_t kBlockSlots = 32, kMaxDim = 512;

struct Params {
  const bf16* qkv;
  int64_t rows, ld_qkv, q_heads, kv_heads, dim, dim_padded;
  const bf16* cos;
  const bf16* sin;
  int64_t max_position;
  const int32_t* positions;
  const int32_t* slots;
  int64_t slot_count;
  const bf16* q_norm;  // nullptr: none
  const bf16* k_norm;
  float eps, norm_denom;
  bf16* q_out;
  bf16* k_cache;
  bf16* v_cache;
  void* stream;
};

void run(const TensorView& qkv, const TensorView& cos, const TensorView& sin, const TensorView& positions,
         const TensorView& slots, const OptionalTensor& q_norm, const OptionalTensor& k_norm, double eps, double norm_denom,
         int64_t dim, const TensorView& q_out, const TensorView& k_cache, const TensorView& v_cache,
         std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::rope_kv
