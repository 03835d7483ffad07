// attention: softmax(scale q K^T) V for ragged rows of many requests over the paged cache, one reduction order for every M.
//
//   q           bf16 [R, Hq, Dp], as rope_kv writes it
//   k_cache     bf16 [blocks, Hkv, 2, Dp / 2, 32]   as in rope_kv.h
//   v_cache     bf16 [blocks, Hkv, 16, 2 Dp]        as in rope_kv.h
//               Hq is a multiple of Hkv, q head h reads kv head h / (Hq / Hkv)
//   slot_table  int32 [B, L]: slot of each committed position of a request
//   request     int32 [R]: the row's request, 0 <= request < B
//   prefix      int32 [R]: the row sees positions [0, prefix) of its request's slot table …
//   tail_begin  int32 [R + 1], ascending
//   tail_slots  int32 [T]: … then slots tail_begin[r] to tail_begin[r + 1] of these, its own ancestors and itself in path
//               order, at positions prefix, prefix + 1, …
//               Both or neither: a chain needs none, its rows lie in the slot table.
//   out         bf16 [R, Hq * D], any row stride; a row that sees nothing (prefix 0, no tail) is written as zero
//
// Order. Keys stand in position order, whatever slots they lie in; positions are cut into absolute splits of kSplit keys.
// Inside a split:
//   s = scale * (q . k), with q . k in "x86-pairs32" over d
//   m = max of the visible scores
//   e = exp_f32(s - m)
//   l = sum of e as 16 strided fp32 partials (lane = position % 16, ascending) by fold16
//   o = sum over keys of bf16(e) v in "x86-pairs32" over positions, invisible keys with e = 0 and v = 0
// Splits fold in index order:
//   n = max(m, m'),  a = exp_f32(m - n),  b = exp_f32(m' - n),  l = fma(l, a, l' b),  o = fma(o, a, o' b)
// At the end out = bf16(o / l), a zero as +0. So a row's bits are a function of (q, keys and values by position), nothing
// else: not of M, the other rows, the tree's shape, slots, page layout, threads or tier.
//
// On CUDA the order is "cuda-mma16": the same splits, formulas and roundings, but q . k is one mma.m16n8k16 chain over d, the
// o of a split one such chain over positions, and l 32 strided fp32 partials (lane = position % 32, ascending) folded by
// halves. There, indices are not checked: what is out of range is not seen. D <= 256 (160 where a block has
// but 99 KB of shared memory), one call at a time on a device.
//
// Determinism: order_fixed.   Roofline: 4 Dp Hkv (visible keys) bytes per request for few rows.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::attention {
inline constexpr int64_t kSplit = 128;  // keys; frozen: part of the order (chosen by measurement, docs/numerics.md)

struct Params {
  const bf16* q;
  int64_t rows, q_heads, kv_heads, dim, dim_padded;
  const bf16* k_cache;
  const bf16* v_cache;
  int64_t slot_count;
  const int32_t* slot_table;
  int64_t requests, ld_table;
  const int32_t* request;
  const int32_t* prefix;
  const int32_t* tail_begin;  // nullptr: no tails
  const int32_t* tail_slots;
  int64_t tail_count;
  float scale;
  bf16* out;
  int64_t ld_out;
  void* stream;
};

void run(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache, const TensorView& slot_table,
         const TensorView& request, const TensorView& prefix, const OptionalTensor& tail_begin,
         const OptionalTensor& tail_slots, double scale, int64_t dim, const TensorView& out, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cpu {
void avx2(const Params&);
void avx512(const Params&);
void amx(const Params&);
}  // namespace cpu
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::attention
