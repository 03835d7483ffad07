#include "harness.h"
#include "ops/accept/accept.h"

using namespace specpilot;

int main(int argc, char** argv) {
  bench::Session session("accept", argc, argv);
  for (const int64_t requests : {1, 16, 64}) {  // chains of 16 rows, all drafts accepted: the longest walk
    constexpr int64_t kChain = 16;
    const int64_t rows = requests * kChain;
    bench::Operand<int32_t> cu_rows(session, requests + 1), tokens(session, rows), parents(session, rows),
        choice(session, rows), path(session, rows), emitted(session, rows), length(session, requests);
    cu_rows.fill([=](int64_t i) { return static_cast<int32_t>(std::min(i, requests) * kChain); });
    parents.fill([](int64_t i) { return static_cast<int32_t>(i % kChain - 1); });
    session.run(bench::shape({{"B", requests}, {"R", rows}}), 12.0 * rows, 0, accept::variants(),
                [&, requests, rows](int64_t i) {
                  return accept::Params{cu_rows[i], requests,   rows,      tokens[i], parents[i], choice[i],
                                        path[i],    emitted[i], length[i], kChain,    nullptr};
                });
  }
}
