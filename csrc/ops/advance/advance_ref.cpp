// Reference: one request after the other, as the contract is written.
#include <algorithm>
#include <cstring>

#include "ops/advance/advance.h"

namespace specpilot::advance {
namespace {
int32_t slot_at(const Params& p, int64_t request, int64_t position) {
  return position < p.ld_table ? p.slot_table[request * p.ld_table + position] : -1;
}

// `whole`: every row sees all of them.
void place(const Params& p, const RowSet& set, int64_t request, int64_t start, bool done, bool whole,
           const int32_t* anchor) {
  if (!set.data) return;
  int32_t* row = set.data + request * set.width;
  if (anchor && set.width > 0) row[kIds * set.plane] = *anchor;
  for (int64_t i = 0; i < set.width; ++i, ++row) {
    row[kPositions * set.plane] = static_cast<int32_t>(start + i);
    row[kSlots * set.plane] = done ? -1 : slot_at(p, request, start + i);
    row[kRequest * set.plane] = static_cast<int32_t>(request);
    row[kPrefix * set.plane] = static_cast<int32_t>(std::min(start + (whole ? set.width : i + 1), p.ld_table));
  }
}

void place_context(const Params& p, int64_t request, int64_t start, int64_t count) {
  if (!p.context.data) return;
  int32_t* row = p.context.data + request * p.context.width;
  for (int64_t i = 0; i < p.context.width; ++i, ++row) {
    row[kPositions * p.context.plane] = static_cast<int32_t>(start + i);
    row[kSlots * p.context.plane] = i < count ? slot_at(p, request, start + i) : -1;
    row[kRequest * p.context.plane] = static_cast<int32_t>(request);
  }
}
}  // namespace

void ref(const Params& p) {
  for (int64_t b = 0; b < p.requests; ++b) {
    int32_t* state = p.state + b * kStateSize;
    const int32_t* emitted = p.emitted + b * p.max_path;
    const int32_t most = state[kDone] ? 0 : std::min(p.length[b], state[kLeft]);
    const int32_t* stop = std::find_first_of(emitted, emitted + most, p.stop_ids, p.stop_ids + p.stops);
    const bool stopped = stop != emitted + most;
    const int32_t n = static_cast<int32_t>(stop - emitted) + stopped;
    const bool done = state[kDone] || stopped || n == state[kLeft];

    place_context(p, b, state[kStart], done ? 0 : n);
    int32_t* entry = p.ring + (state[kStep] % p.entries * p.requests + b) * p.entry_size();
    state[kStart] += n;
    state[kLeft] -= n;
    state[kDone] = done;
    state[kStep] += 1;
    const int32_t* anchor = n ? emitted + n - 1 : nullptr;
    place(p, p.chain, b, state[kStart], done, false, anchor);
    place(p, p.block, b, state[kStart], done, true, anchor);
    place(p, p.causal, b, state[kStart], done, false, anchor);

    *entry++ = n;
    *entry++ = done;
    entry = std::copy(emitted, emitted + n, entry);
    entry = std::fill_n(entry, p.max_path - n, -1);
    const size_t bytes = (p.max_path - 1) * sizeof(float);
    p.margins ? std::memcpy(entry, p.margins + b * (p.max_path - 1), bytes) : std::memset(entry, 0, bytes);
  }
}
}  // namespace specpilot::advance
