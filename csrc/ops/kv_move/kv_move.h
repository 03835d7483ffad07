// kv_move: KV compaction. Entry from[i] of every cache is copied to entry to[i], for all layers in one call.
//
//   from, to   int32 [n]; -1 in either skips the pair. `to` holds no slot twice; it may overlap `from` in any way: the
//              result is as if all sources were read before any write.
//              CUDA checks no values: a slot out of range skips the pair, a slot twice in `to` ends as a mixture.
//   k_cache    bf16 [layers, blocks, Hkv, 2, Dp / 2, 32]     v_cache  bf16 [layers, blocks, Hkv, 16, 2 Dp]   (rope_kv.h)
//
// Determinism: bit_exact.   Roofline: 8 n layers Hkv Dp bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::kv_move {
struct Params {
  const int32_t* from;
  const int32_t* to;
  int64_t count, layers, blocks, kv_heads, dim_padded;
  bf16* k_cache;
  bf16* v_cache;
  void* stream;
};

void run(const TensorView& from, const TensorView& to, const TensorView& k_cache, const TensorView& v_cache,
         std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::kv_move
