#include "harness.h"
#include "ops/kv_move/kv_move.h"
#include "ops/rope_kv/rope_kv.h"

using namespace specpilot;

namespace {
struct Model {
  int64_t layers, kv_heads, dim;
};
constexpr Model kModels[] = {{30, 3, 64}, {36, 8, 128}};  // SmolLM2-135M, Qwen3-8B
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("kv_move", argc, argv);
  for (const Model& m : kModels)
    for (const int64_t count : {1, 16, 64}) {  // entries of a tree closed up, two slots down
      constexpr int64_t kBlocks = 32;
      const int64_t cache = m.layers * kBlocks * m.kv_heads * rope_kv::kBlockSlots * m.dim;
      bench::Operand<bf16> k(session, cache), v(session, cache);
      bench::Operand<int32_t> from(session, count), to(session, count);
      from.fill([](int64_t i) { return static_cast<int32_t>(502 + i); });
      to.fill([](int64_t i) { return static_cast<int32_t>(500 + i); });
      session.run(bench::shape({{"n", count}, {"layers", m.layers}, {"Hkv", m.kv_heads}, {"Dp", m.dim}}),
                  8.0 * count * m.layers * m.kv_heads * m.dim, 0, kv_move::variants(), [&, count](int64_t i) {
                    return kv_move::Params{from[i], to[i], count, m.layers, kBlocks, m.kv_heads, m.dim, k[i], v[i], nullptr};
                  });
    }
}
