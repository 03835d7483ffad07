#include <random>

#include "harness.h"
#include "ops/linear_q8/linear_q8.h"

using namespace specpilot;

namespace {
struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{960, 576},   {3072, 576},   {576, 1536},
                             {49152, 576},                                 // SmolLM2-135M: qkv, gate|up, down, head
                             {6144, 4096}, {24576, 4096}, {4096, 12288}};  // Qwen3-8B: qkv, gate|up, down
constexpr int64_t kRows[] = {1, 4, 8, 16, 64, 512};

void run(bench::Session& session, const Shape& s) {
  const auto name = [&](int64_t rows) { return bench::shape({{"R", rows}, {"N", s.n}, {"K", s.k}}); };
  // Filling the weights takes longer than a measurement.
  if (std::ranges::none_of(kRows, [&](int64_t rows) { return session.selected(name(rows)); })) return;
  const int64_t bytes = s.n * s.k;
  bench::Operand<uint8_t> data(session, bytes, bench::Operand<uint8_t>::kStreamed);
  std::minstd_rand random;
  data.fill([&](int64_t) { return static_cast<uint8_t>(random() >> 8 | 1); });
  const bench::Operand<float> scale(std::vector<float>(s.n, 0.001f));
  for (const int64_t rows : kRows) {
    bench::Operand<bf16> x(session, rows * s.k), y(session, rows * s.n);
    x.fill(bench::Normal(1));
    session.run(name(rows), static_cast<double>(bytes) + 2.0 * rows * (s.n + s.k), 2.0 * rows * s.n * s.k,
                linear_q8::variants(), [&, rows](int64_t i) {
                  return linear_q8::Params{x[i],    rows,    s.k, s.k,  data[i], scale[i], s.n,
                                           nullptr, nullptr, 0,   y[i], s.n,     nullptr};
                });
  }
}
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("linear_q8", argc, argv);
  for (const Shape& s : kShapes) run(session, s);
}
