#include "harness.h"
#include "ops/rmsnorm/rmsnorm.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("rmsnorm", argc, argv);
  for (const int64_t width : {576, 4096})  // SmolLM2-135M, Qwen3-8B
    for (const int64_t rows : {1, 16, 64}) {
      bench::Operand<bf16> x(session, rows * width), weight(session, width), y(session, rows * width);
      x.fill(bench::Normal(2));
      weight.fill(bench::Normal(1, 2));
      session.run(bench::shape({{"R", rows}, {"H", width}}), 4.0 * rows * width, 4.0 * rows * width, rmsnorm::variants(),
                  [&, width, rows](int64_t i) {
                    return rmsnorm::Params{x[i],  weight[i], y[i], rows, width, width, width, static_cast<float>(width),
                                           1e-5f, nullptr};
                  });
    }
}
