// Reference. Parents precede children, so the search for the next row of a path starts behind the last one:
// a request costs one pass over its rows, whatever its tree.
#include <algorithm>

#include "ops/accept/accept.h"

void specpilot::accept::ref(const Params& p) {
  for (int64_t b = 0; b < p.requests; ++b) {
    const int32_t begin = p.cu_rows[b], end = p.cu_rows[b + 1];
    int32_t* path = p.path + b * p.max_path;
    int32_t* emitted = p.emitted + b * p.max_path;
    int64_t length = 0;
    for (int32_t cur = begin; cur < end && length < p.max_path; ++length) {
      const int32_t token = p.choice[cur];
      path[length] = cur;
      emitted[length] = token;
      int32_t next = cur + 1;
      while (next < end && !(p.parents[next] == cur - begin && p.tokens[next] == token)) ++next;
      cur = next;
    }
    std::fill(path + length, path + p.max_path, -1);
    std::fill(emitted + length, emitted + p.max_path, -1);
    p.length[b] = static_cast<int32_t>(length);
  }
}
