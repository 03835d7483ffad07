#include "harness.h"
#include "ops/advance/advance.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("advance", argc, argv);
  for (const int64_t requests : {1, 16, 64}) {  // chains of 16 rows with a drafter of one block
    constexpr int64_t kChain = 16, kPositions = 8192, kEntries = 4, kPlanes = advance::kPlanes;
    const int64_t rows = requests * kChain;
    bench::Operand<int32_t> state(session, requests * advance::kStateSize), emitted(session, rows),
        length(session, requests), stop_ids(session, 8), slots(session, requests * kPositions),
        chain(session, kPlanes * rows), block(session, kPlanes * rows), context(session, kPlanes * rows),
        ring(session, kEntries * requests * (2 * kChain + 1));
    bench::Operand<float> margins(session, requests * (kChain - 1));
    // Nothing is accepted, so that the state stays as it is however often a call is repeated; the work does not depend on it.
    state.fill([](int64_t i) { return i % advance::kStateSize == advance::kLeft ? 1 << 20 : 0; });
    const auto set = [rows](int32_t* data) { return advance::RowSet{data, rows, kChain}; };
    session.run(bench::shape({{"B", requests}, {"W", kChain}}), 4.0 * (15 * rows + 4 * rows), 0, advance::variants(),
                [&, requests, set](int64_t i) {
                  return advance::Params{.state = state[i],
                                         .requests = requests,
                                         .emitted = emitted[i],
                                         .length = length[i],
                                         .max_path = kChain,
                                         .margins = margins[i],
                                         .stop_ids = stop_ids[i],
                                         .stops = 8,
                                         .slot_table = slots[i],
                                         .ld_table = kPositions,
                                         .chain = set(chain[i]),
                                         .block = set(block[i]),
                                         .causal = {},
                                         .context = set(context[i]),
                                         .ring = ring[i],
                                         .entries = kEntries,
                                         .stream = nullptr};
                });
  }
}
