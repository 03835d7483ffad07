#include "harness.h"
#include "ops/gather_rows/gather_rows.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("gather_rows", argc, argv);
  for (const int64_t cols : {576, 4096})  // SmolLM2-135M, Qwen3-8B
    for (const int64_t rows : {1, 16, 64}) {
      bench::Operand<bf16> x(session, rows * cols), out(session, rows * 5 * cols);  // one of five taps side by side
      bench::Operand<int32_t> index(session, rows);
      x.fill(bench::Normal(1));
      index.fill([rows](int64_t i) { return i < rows ? static_cast<int32_t>(rows - 1 - i) : 0; });
      session.run(bench::shape({{"R", rows}, {"C", cols}}), 4.0 * rows * cols, 0, gather_rows::variants(),
                  [&, cols, rows](int64_t i) {
                    return gather_rows::Params{x[i], rows, cols, cols, index[i], rows, out[i], 5 * cols, nullptr};
                  });
    }
}
