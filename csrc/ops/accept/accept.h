// accept: walks each request's draft tree (a chain is a tree) along the target's choices. One call serves all requests.
//
//   cu_rows   int32 [B + 1]: rows of request b are [cu_rows[b], cu_rows[b + 1]); the first is the anchor, the root
//   tokens    int32 [R]: token of each row
//   parents   int32 [R]: parent as an index inside the request, -1 for the root; parents come before children
//   choice    int32 [R]: what the target chose to follow each row
//   path      int32 [B, P]: accepted rows (global indices), root first
//   emitted   int32 [B, P]: emitted[j] = choice[path[j]]: the accepted drafts, then the bonus token
//   length    int32 [B]: how many of path and emitted are set: accepted drafts + 1 (0 for a request without rows)
//
// Walk: cur = root; loop: t = choice[cur]; emit t; go to the child of cur with token t (the lowest index), else stop. A path
// longer than P is cut at P. Entries past length are written as -1.
// Bad values (bounds that fall or leave the rows, a parent that does not precede its row) are errors on the CPU when the op
// executes; CUDA cuts bounds to [0, R) and makes such a row nobody's child.
// Determinism: bit_exact.   Roofline: 12 R bytes.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::accept {
struct Params {
  const int32_t* cu_rows;
  int64_t requests, rows;
  const int32_t* tokens;
  const int32_t* parents;
  const int32_t* choice;
  int32_t* path;
  int32_t* emitted;
  int32_t* length;
  int64_t max_path;
  void* stream;
};

void run(const TensorView& cu_rows, const TensorView& tokens, const TensorView& parents, const TensorView& choice,
         const TensorView& path, const TensorView& emitted, const TensorView& length, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
inline constexpr int64_t kMaxRows = 12000;  // a row takes 4 bytes of 48 KB of shared memory
void run(const Params&);
}  // namespace cuda
}  // namespace specpilot::accept
