// What the rows of a tile see, and in which order a block takes its share of their splits.
#pragma once
#include <climits>

#include "ops/attention/attention.h"

namespace specpilot::attention {
namespace {
constexpr int kSplitKeys = kSplit;

// What a row sees; whatever is out of range is not seen.
struct Seen {
  int request, prefix, tail, total;

  __device__ int splits() const { return (total + kSplitKeys - 1) / kSplitKeys; }
};

__device__ Seen see(const Params& p, int64_t row) {
  Seen s{p.request[row], 0, 0, 0};
  if (s.request < 0 || s.request >= p.requests) return s;
  s.prefix = static_cast<int>(min(max(int64_t{p.prefix[row]}, int64_t{0}), p.ld_table));
  s.total = s.prefix;
  if (!p.tail_begin) return s;
  const int begin = p.tail_begin[row], end = p.tail_begin[row + 1];
  if (begin >= 0 && begin <= end && end <= p.tail_count) s.tail = begin, s.total += end - begin;
  return s;
}

// Of the rows that see anything: splits before `together` show all of them that reach so far the same keys.
struct Common {
  int low, prefix, splits, request, together;  // the shortest row, the longest prefix, splits of the longest row
};

// One warp.
__device__ Common common_of(const Seen* seen, int rows, int lane) {
  int low = INT_MAX, splits = 0, request_low = INT_MAX, request_high = -1, bare = INT_MAX, prefix = 0;
  for (int r = lane; r < rows; r += 32) {
    const Seen s = seen[r];
    if (s.total == 0) continue;
    low = min(low, s.total), splits = max(splits, s.splits()), prefix = max(prefix, s.prefix);
    request_low = min(request_low, s.request), request_high = max(request_high, s.request);
    if (s.total > s.prefix) bare = min(bare, s.prefix / kSplitKeys);
  }
  low = __reduce_min_sync(~0u, low), splits = __reduce_max_sync(~0u, splits), prefix = __reduce_max_sync(~0u, prefix);
  request_low = __reduce_min_sync(~0u, request_low), request_high = __reduce_max_sync(~0u, request_high);
  bare = __reduce_min_sync(~0u, bare);
  return {low, prefix, splits, request_low, request_low == request_high ? min(bare, splits) : 0};
}

// Rows [begin, end) of the tile at one split.
struct Piece {
  int item, split, begin, end;
  bool apart;  // one of several that a block makes of an item

  __device__ bool alone() const { return end == begin + 1; }
  __device__ int first_key() const { return split * kSplitKeys; }
};

// Items: a split of all rows, or from `together` on of one row. A block takes every step-th of them.
struct Items {
  const Seen* seen;
  int rows, step;
  const Common& common;

  __device__ int count() const { return common.together + (common.splits - common.together) * rows; }
  __device__ bool sees(int row, int split) const { return seen[row].total > split * kSplitKeys; }

  // Of this item or, if its row does not reach so far, the block's next; item = count() behind the end.
  __device__ Piece at(int item) const {
    for (; item < count(); item += step) {
      if (item < common.together) return {item, item, 0, rows, false};
      const int split = common.together + (item - common.together) / rows, row = (item - common.together) % rows;
      if (sees(row, split)) return {item, split, row, row + 1, false};
    }
    return {count(), 0, 0, 0, false};
  }
  __device__ Piece after(const Piece& now) const {
    if (now.apart)
      for (int r = now.end; r < rows; ++r)
        if (sees(r, now.split)) return {now.item, now.split, r, r + 1, true};
    return at(now.item + step);
  }
  // The same item row by row.
  __device__ Piece apart(const Piece& now) const { return after({now.item, now.split, 0, 0, true}); }

  // Slot of a piece's key; -1: there is none.
  __device__ int slot(const Params& p, const Piece& piece, int key) const {
    const Seen s = piece.alone() ? seen[piece.begin] : Seen{common.request, common.prefix, 0, common.prefix};
    const int position = piece.first_key() + key;
    int slot = -1;
    if (position < s.prefix)
      slot = p.slot_table[s.request * p.ld_table + position];
    else if (position < s.total)
      slot = p.tail_slots[s.tail + (position - s.prefix)];
    return slot >= 0 && slot < p.slot_count ? slot : -1;
  }
};
}  // namespace
}  // namespace specpilot::attention
