#include "harness.h"
#include "ops/swiglu/swiglu.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("swiglu", argc, argv);
  for (const int64_t width : {1536, 12288})  // SmolLM2-135M, Qwen3-8B
    for (const int64_t rows : {1, 16, 64}) {
      bench::Operand<bf16> gate_up(session, rows * 2 * width), y(session, rows * width);
      gate_up.fill(bench::Normal(2));
      session.run(
          bench::shape({{"R", rows}, {"I", width}}), 6.0 * rows * width, 20.0 * rows * width, swiglu::variants(),
          [&, width, rows](int64_t i) { return swiglu::Params{gate_up[i], y[i], rows, width, 2 * width, width, nullptr}; });
    }
}
