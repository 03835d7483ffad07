#include <algorithm>

#include "core/mma.h"
#include "harness.h"
#include "ops/attention/attention.h"

using namespace specpilot;

namespace {
struct Heads {
  int64_t q, kv, dim;
};

// One request: `rows` new rows after `context` positions, slots in order.
void measure(bench::Session& session, const Heads& h, int64_t rows, int64_t context) {
  const int64_t length = context + rows, blocks = (length + 31) / 32, padded = round_up(h.dim, 32);
  const int64_t cache = blocks * h.kv * 32 * padded;
  const auto streamed = bench::Operand<bf16>::kStreamed;  // every layer has its own
  bench::Operand<bf16> q(session, rows * h.q * padded), out(session, rows * h.q * h.dim);
  bench::Operand<bf16> k(session, cache, streamed), v(session, cache, streamed);
  bench::Operand<int32_t> table(session, length), request(session, rows), prefix(session, rows);
  q.fill(bench::Normal(1));
  k.fill(bench::Normal(1, 2));
  v.fill(bench::Normal(1, 3));
  table.fill([](int64_t i) { return static_cast<int32_t>(i); });
  prefix.fill([=](int64_t i) { return static_cast<int32_t>(std::min(context + i + 1, length)); });
  const double seen = rows * (context + (rows + 1) / 2.0);  // query rows x keys
  session.run(bench::shape({{"R", rows}, {"ctx", context}, {"Hq", h.q}, {"Hkv", h.kv}, {"D", h.dim}}),
              4.0 * padded * h.kv * length, 4.0 * padded * h.q * seen, attention::variants(), [&, h, rows](int64_t i) {
                return attention::Params{.q = q[i],
                                         .rows = rows,
                                         .q_heads = h.q,
                                         .kv_heads = h.kv,
                                         .dim = h.dim,
                                         .dim_padded = padded,
                                         .k_cache = k[i],
                                         .v_cache = v[i],
                                         .slot_count = blocks * 32,
                                         .slot_table = table[i],
                                         .requests = 1,
                                         .ld_table = length,
                                         .request = request[i],
                                         .prefix = prefix[i],
                                         .tail_begin = nullptr,
                                         .tail_slots = nullptr,
                                         .tail_count = 0,
                                         .scale = 0.125f,
                                         .out = out[i],
                                         .ld_out = h.q * h.dim,
                                         .stream = nullptr};
              });
}
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("attention", argc, argv);
  for (const Heads& h : {Heads{9, 3, 64}, Heads{32, 8, 128}}) {  // SmolLM2-135M, Qwen3-8B
    for (const int64_t context : {128, 1024, 4096})
      for (const int64_t rows : {1, 16}) measure(session, h, rows, context);
    for (const int64_t context : {0, 1024, 4096}) measure(session, h, 512, context);
  }
}
