#include "harness.h"
#include "ops/argmax/argmax.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("argmax", argc, argv);
  for (const int64_t vocab : {49152, 151936})  // SmolLM2-135M, Qwen3-8B
    for (const int64_t rows : {1, 16, 64}) {
      bench::Operand<bf16> logits(session, rows * vocab);
      bench::Operand<int32_t> ids(session, rows);
      bench::Operand<float> margin(session, rows);
      logits.fill(bench::Normal(4));
      session.run(
          bench::shape({{"R", rows}, {"V", vocab}}), 2.0 * rows * vocab, 1.0 * rows * vocab, argmax::variants(),
          [&, vocab, rows](int64_t i) { return argmax::Params{logits[i], rows, vocab, vocab, ids[i], margin[i], nullptr}; });
    }
}
