#include "core/mma.h"
#include "harness.h"
#include "ops/rope_kv/rope_kv.h"

using namespace specpilot;

namespace {
struct Heads {
  int64_t q, kv, dim;
  bool norm;
};
constexpr Heads kHeads[] = {{9, 3, 64, false}, {32, 8, 128, true}};  // SmolLM2-135M, Qwen3-8B
constexpr int64_t kFirst = 1003;  // position and slot of the first row: neither a block's first nor a pair's
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("rope_kv", argc, argv);
  for (const Heads& h : kHeads)
    for (const int64_t rows : {1, 16, 64, 512}) {
      const int64_t wide = (h.q + 2 * h.kv) * h.dim, padded = round_up(h.dim, 32);
      const int64_t slots = round_up(kFirst + rows, rope_kv::kBlockSlots), cache = slots * h.kv * padded;
      const auto streamed = bench::Operand<bf16>::kStreamed;  // every layer has its own
      bench::Operand<bf16> qkv(session, rows * wide), q_out(session, rows * h.q * padded);
      bench::Operand<bf16> k(session, cache, streamed), v(session, cache, streamed);
      bench::Operand<bf16> cos(session, slots * h.dim / 2), sin(session, slots * h.dim / 2), weight(session, h.dim);
      bench::Operand<int32_t> place(session, rows);
      qkv.fill(bench::Normal(1));
      cos.fill(bench::Normal(1, 2));
      sin.fill(bench::Normal(1, 3));
      weight.fill(bench::Normal(1, 4));
      place.fill([](int64_t i) { return static_cast<int32_t>(kFirst + i); });
      session.run(bench::shape({{"R", rows}, {"Hq", h.q}, {"Hkv", h.kv}, {"D", h.dim}}) + (h.norm ? " norm" : ""),
                  2.0 * rows * (2 * h.q + 4 * h.kv) * h.dim, 0, rope_kv::variants(), [&, rows](int64_t i) {
                    return rope_kv::Params{.qkv = qkv[i],
                                           .rows = rows,
                                           .ld_qkv = wide,
                                           .q_heads = h.q,
                                           .kv_heads = h.kv,
                                           .dim = h.dim,
                                           .dim_padded = padded,
                                           .cos = cos[i],
                                           .sin = sin[i],
                                           .max_position = slots,
                                           .positions = place[i],
                                           .slots = place[i],
                                           .slot_count = slots,
                                           .q_norm = h.norm ? weight[i] : nullptr,
                                           .k_norm = h.norm ? weight[i] : nullptr,
                                           .eps = 1e-6f,
                                           .norm_denom = static_cast<float>(h.dim),
                                           .q_out = q_out[i],
                                           .k_cache = k[i],
                                           .v_cache = v[i],
                                           .stream = nullptr};
                  });
    }
}
