// advance: what a pass accepted becomes the inputs of the next one, on the device. With it, a step needs no answer of the host.
//
//   state       int32 [B, 4], of each request: {start: the anchor's position, left: tokens it may still emit, done: 0 or 1,
//               step: calls so far}; read and updated
//   emitted     int32 [B, P], length  int32 [B]: as `accept` wrote them
//   margins     fp32 [B, P - 1], optional: how sure the drafter was (argmax.h); handed on to the ring
//   stop_ids    int32 [S]: tokens that end a request; -1 matches none
//   slot_table  int32 [B, L]: slot of each position, reserved as far as the request may get (attention.h)
//   chain       int32 [5, B, W]: rows of the next pass, each seeing all up to itself
//   block       int32 [5, B, D], optional: the drafter's rows, each seeing all up to the last of them
//   causal      int32 [5, B, D'], optional: the same for a drafter's causal layers, each seeing all up to itself
//   context     int32 [5, B, C], optional: rows by which the drafter takes in what this pass accepted; row i is tap row i
//   ring        int32 [N, B, 2 P + 1]: what the host reads, a step late
//
// The five planes of a row set are {ids, positions, slots, request, prefix}; a plane's rows of B requests stand together, planes
// may lie apart (a part of a wider buffer is a fine target).
//
//   n      = done ? 0 : min(length, P, left), and no further than the first stop token of emitted (included)
//   done  |= a stop token among them, or n = left;     left -= n;     step += 1
//   context[i]:  position start + i, request b, slot of that position if i < n and not done, else -1; ids and prefix stay
//   start += n
//   chain[i], block[i], causal[i]:  position start + i, request b, its slot (-1 once done), prefix as above; if n > 0, the last
//               emitted token is the id of row 0; other ids stay
//   ring[(step before) % N, b] = {n, done, n tokens and -1 for the rest, the bits of the margins (0 without)}
//
// So once a request is done, its rows write no K or V, and later calls add empty entries to the ring and nothing else. A
// position that the slot table does not reach has slot -1, a prefix ends at L.
// Bad values (a start outside of the table, a negative left or step, a length outside of 0 … P) are errors on the CPU when the
// op executes, before anything is written; CUDA checks none: it takes a start outside of the table for one without a slot, any
// other as the nearest good value.
// Determinism: bit_exact.   Roofline: 4 B (5 (W + D + D' + C) + 4 P) bytes; in truth the latency of a launch.
#pragma once
#include "core/tensor.h"
#include "core/variant.h"

namespace specpilot::advance {
enum State { kStart, kLeft, kDone, kStep, kStateSize };
enum Plane { kIds, kPositions, kSlots, kRequest, kPrefix, kPlanes };

struct RowSet {
  int32_t* data = nullptr;  // nullptr: none
  int64_t plane = 0;        // from one plane to the next
  int64_t width = 0;        // rows of a request
};

struct Params {
  int32_t* state;
  int64_t requests;
  const int32_t* emitted;
  const int32_t* length;
  int64_t max_path;
  const float* margins;  // or nullptr
  const int32_t* stop_ids;
  int64_t stops;
  const int32_t* slot_table;
  int64_t ld_table;
  RowSet chain, block, causal, context;
  int32_t* ring;
  int64_t entries;
  void* stream;

  constexpr int64_t entry_size() const { return 2 * max_path + 1; }
};

void run(const TensorView& state, const TensorView& emitted, const TensorView& length, const OptionalTensor& margins,
         const TensorView& stop_ids, const TensorView& slot_table, const TensorView& chain, const OptionalTensor& block,
         const OptionalTensor& causal, const OptionalTensor& context, const TensorView& ring, std::string_view variant = {});
std::span<const Variant<Params>> variants();

void ref(const Params&);
namespace cuda {
void run(const Params&);
}
}  // namespace specpilot::advance
