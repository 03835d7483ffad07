#include <random>

#include "harness.h"
#include "linear_shapes.h"
#include "ops/linear_q8/linear_q8.h"

using namespace specpilot;

namespace {
void run(bench::Session& session, const bench::LinearShape& s) {
  const auto name = [&](int64_t rows) { return bench::shape({{"R", rows}, {"N", s.n}, {"K", s.k}}); };
  // Filling the weights takes longer than a measurement.
  if (std::ranges::none_of(bench::kLinearRows, [&](int64_t rows) { return session.selected(name(rows)); })) return;
  const int64_t bytes = s.n * s.k;
  bench::Operand<uint8_t> data(session, bytes, bench::Operand<uint8_t>::kStreamed);
  std::minstd_rand random;
  data.fill([&](int64_t) { return static_cast<uint8_t>(random() >> 8 | 1); });
  const bench::Operand<float> scale(std::vector<float>(s.n, 0.001f));
  for (const int64_t rows : bench::kLinearRows) {
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
  for (const bench::LinearShape& s : bench::kLinearShapes) run(session, s);
}
