// The model of attention: one query vector at a time, plain loops in the order that attention.h states.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/bf16.h"
#include "ops/attention/attention.h"
#include "ops/rope_kv/rope_kv.h"

namespace specpilot::attention {
namespace {
// Softmax state of one query vector over the splits so far; o is not divided by l yet.
struct State {
  float m, l;
  std::vector<float> o;
};

struct Head {
  const Params& p;
  int64_t kv_head;

  int64_t base(int64_t slot) const { return (slot / rope_kv::kBlockSlots * p.kv_heads + kv_head) * 32 * p.dim_padded; }
  float k(int64_t slot, int64_t d) const {
    const int64_t t = slot % rope_kv::kBlockSlots;
    return to_f32(p.k_cache[base(slot) + (t / 16 * (p.dim_padded / 2) + d / 2) * 32 + t % 16 * 2 + d % 2]);
  }
  float v(int64_t slot, int64_t d) const {
    const int64_t t = slot % rope_kv::kBlockSlots;
    return to_f32(p.v_cache[base(slot) + t / 2 * 2 * p.dim_padded + d * 2 + t % 2]);
  }
};

// Slots of everything that row r sees, in position order.
std::vector<int32_t> visible_slots(const Params& p, int64_t r) {
  const int32_t* table = p.slot_table + p.request[r] * p.ld_table;
  std::vector<int32_t> slots(table, table + p.prefix[r]);
  if (p.tail_begin) slots.insert(slots.end(), p.tail_slots + p.tail_begin[r], p.tail_slots + p.tail_begin[r + 1]);
  return slots;
}

float dot(const bf16* q, const Head& head, int32_t slot) {
  float acc = 0.0f;
  for (int64_t d = 0; d < head.p.dim_padded; d += 32) {
    float even = 0.0f, odd = 0.0f;
    for (int64_t i = d; i < d + 32; i += 2) {
      even = std::fma(to_f32(q[i]), head.k(slot, i), even);
      odd = std::fma(to_f32(q[i + 1]), head.k(slot, i + 1), odd);
    }
    acc = acc + (even + odd);
  }
  return acc;
}

// One split: keys lie at slots[0 … count), count <= kSplit; the keys after them are invisible (e = 0, v = 0).
State attend(const bf16* q, const Head& head, const int32_t* slots, int64_t count) {
  float e[kSplit] = {}, partial[16] = {};
  State s{-std::numeric_limits<float>::infinity(), 0.0f, std::vector<float>(head.p.dim, 0.0f)};
  for (int64_t i = 0; i < count; ++i) {
    e[i] = head.p.scale * dot(q, head, slots[i]);
    s.m = std::max(s.m, e[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    e[i] = exp_f32(e[i] - s.m);
    partial[i % 16] = partial[i % 16] + e[i];
  }
  s.l = fold16(partial);
  for (int64_t d = 0; d < head.p.dim; ++d)
    for (int64_t block = 0; block < kSplit; block += 32) {
      float even = 0.0f, odd = 0.0f;
      for (int64_t i = block; i < block + 32; i += 2) {
        even = std::fma(round_bf16(e[i]), i < count ? head.v(slots[i], d) : 0.0f, even);
        odd = std::fma(round_bf16(e[i + 1]), i + 1 < count ? head.v(slots[i + 1], d) : 0.0f, odd);
      }
      s.o[d] = s.o[d] + (even + odd);
    }
  return s;
}

void fold(State& s, const State& next) {
  const float n = std::max(s.m, next.m);
  const float a = exp_f32(s.m - n), b = exp_f32(next.m - n);
  s.m = n;
  s.l = std::fma(s.l, a, next.l * b);
  for (size_t d = 0; d < s.o.size(); ++d) s.o[d] = std::fma(s.o[d], a, next.o[d] * b);
}
}  // namespace

void ref(const Params& p) {
  FlushToZero ftz;
  for (int64_t r = 0; r < p.rows; ++r) {
    const std::vector<int32_t> slots = visible_slots(p, r);
    const auto seen = static_cast<int64_t>(slots.size());
    for (int64_t h = 0; h < p.q_heads; ++h) {
      bf16* out = p.out + r * p.ld_out + h * p.dim;
      std::fill_n(out, p.dim, bf16{0});
      if (seen == 0) continue;
      const Head head{p, h / (p.q_heads / p.kv_heads)};
      const bf16* q = p.q + (r * p.q_heads + h) * p.dim_padded;
      State s = attend(q, head, slots.data(), std::min(kSplit, seen));
      for (int64_t first = kSplit; first < seen; first += kSplit)
        fold(s, attend(q, head, slots.data() + first, std::min(kSplit, seen - first)));
      for (int64_t d = 0; d < p.dim; ++d) out[d] = to_bf16(s.o[d] / s.l + 0.0f);
    }
  }
}
}  // namespace specpilot::attention
