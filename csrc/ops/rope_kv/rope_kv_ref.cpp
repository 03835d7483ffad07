// The model of rope_kv: plain loops, one rounding per line.
#include <cmath>

#include "core/bf16.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::rope_kv {
namespace {
void norm(float* x, const bf16* weight, const Params& p) {
  float partial[16] = {};
  for (int64_t i = 0; i < p.dim; ++i) partial[i % 16] = std::fma(x[i], x[i], partial[i % 16]);
  const float inv = 1.0f / std::sqrt(fold16(partial) / p.norm_denom + p.eps);
  for (int64_t i = 0; i < p.dim; ++i) x[i] = round_bf16(round_bf16(x[i] * inv) * to_f32(weight[i]));
}

// Reads a head, norms and rotates it; dims past D are zero.
void rotated_head(const bf16* in, const bf16* weight, int64_t position, const Params& p, bf16* out) {
  const int64_t half = p.dim / 2;
  float x[512];
  for (int64_t i = 0; i < p.dim; ++i) x[i] = to_f32(in[i]);
  if (weight) norm(x, weight, p);
  for (int64_t i = 0; i < half; ++i) {
    const float c = to_f32(p.cos[position * half + i]), s = to_f32(p.sin[position * half + i]);
    out[i] = to_bf16(round_bf16(x[i] * c) + round_bf16(-x[i + half] * s));
    out[i + half] = to_bf16(round_bf16(x[i + half] * c) + round_bf16(x[i] * s));
  }
  for (int64_t i = p.dim; i < p.dim_padded; ++i) out[i] = 0;
}
}  // namespace

void ref(const Params& p) {
  FlushToZero ftz;
  bf16 key[512];
  for (int64_t r = 0; r < p.rows; ++r) {
    const bf16* q = p.qkv + r * p.ld_qkv;
    const bf16* k = q + p.q_heads * p.dim;
    const bf16* v = k + p.kv_heads * p.dim;
    const int64_t position = p.positions[r], slot = p.slots[r];
    for (int64_t h = 0; h < p.q_heads; ++h)
      rotated_head(q + h * p.dim, p.q_norm, position, p, p.q_out + (r * p.q_heads + h) * p.dim_padded);
    if (slot < 0) continue;
    const int64_t block = slot / kBlockSlots, t = slot % kBlockSlots;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      const int64_t base = (block * p.kv_heads + h) * kBlockSlots * p.dim_padded;
      rotated_head(k + h * p.dim, p.k_norm, position, p, key);
      for (int64_t d = 0; d < p.dim_padded; ++d) {
        p.k_cache[base + ((t / 16) * (p.dim_padded / 2) + d / 2) * 32 + (t % 16) * 2 + d % 2] = key[d];
        p.v_cache[base + (t / 2) * 2 * p.dim_padded + d * 2 + t % 2] = d < p.dim ? v[h * p.dim + d] : 0;
      }
    }
  }
}
}  // namespace specpilot::rope_kv
