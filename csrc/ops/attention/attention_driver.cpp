// Rows → tiles → units of work. A unit is a tile of one kv head with all its splits, folded as they come; where there are
// fewer of those than threads want, one split each: the partial states are kept and the last worker of a tile folds them, in
// index order. Either way the bits are the same.
#include <atomic>
#include <numeric>

#include "core/thread_pool.h"
#include "ops/attention/attention_tile.h"

namespace specpilot::attention {
namespace {
constexpr int64_t kSmallWork = 1 << 17;     // products that one thread does in some 10 us
constexpr int64_t kMostPartials = 8 << 20;  // floats kept for folding

// Shared by the workers of one call; lies in the caller's scratch.
struct Plan {
  int32_t* order;  // rows, those of a request together
  RowTile* tiles;
  int64_t tile_count;
  int64_t splits = 0, products = 0, partials = 0;  // over all tiles and kv heads
};

Plan make_plan(const Params& p) {
  const int64_t order_bytes = round_up(p.rows * static_cast<int64_t>(sizeof(int32_t)), 64);
  auto* memory =
      static_cast<char*>(worker_scratch(Scratch::kC, order_bytes + p.rows * static_cast<int64_t>(sizeof(RowTile))));
  Plan plan{reinterpret_cast<int32_t*>(memory), reinterpret_cast<RowTile*>(memory + order_bytes), 0};
  std::iota(plan.order, plan.order + p.rows, 0);
  const auto before = [&p](int32_t a, int32_t b) {
    return p.request[a] != p.request[b] ? p.request[a] < p.request[b] : a < b;
  };
  if (!std::is_sorted(plan.order, plan.order + p.rows, before)) std::sort(plan.order, plan.order + p.rows, before);

  const int64_t group = p.q_heads / p.kv_heads, most = std::max<int64_t>(1, kTileVectors / group);
  for (int64_t i = 0, n; i < p.rows; i += n) {
    const int32_t request = p.request[plan.order[i]];
    for (n = 1; n < most && i + n < p.rows && p.request[plan.order[i + n]] == request;) ++n;
    const RowTile& tile = plan.tiles[plan.tile_count++] = make_tile(p, plan.order + i, n);
    plan.splits += tile.splits() * p.kv_heads;
    plan.products += 2 * n * group * tile.longest * p.dim_padded * p.kv_heads;
    plan.partials += tile.splits() * p.kv_heads * State::floats(p, n * group);
  }
  return plan;
}

void whole_tiles(const Params& p, const Tier& tier, const Plan& plan) {
  const int64_t units = plan.tile_count * p.kv_heads;
  ThreadPool::instance().parallel_for(units, plan.products < kSmallWork ? units : 1, [&](int64_t b, int64_t e, int) {
    for (int64_t unit = b; unit < e; ++unit) {
      const RowTile& rows = plan.tiles[unit / p.kv_heads];
      Tile tile(p, tier, rows, unit % p.kv_heads);
      const int64_t size = State::floats(p, tile.vectors());
      auto* memory = static_cast<float*>(worker_scratch(Scratch::kB, 2 * size * sizeof(float)));
      const State state = State::at(memory, tile.vectors()), next = State::at(memory + size, tile.vectors());
      for (int64_t split = 0; split < rows.splits(); ++split) {
        tile.attend(split, split ? next : state);
        if (split) tile.fold(split, state, next);
      }
      tile.finish(state);
    }
  });
}

// One unit per split; `left` counts a tile's unfinished ones.
struct SplitTile {
  const RowTile* rows;
  int64_t kv_head, first_unit;
  float* partials;
  std::atomic<int64_t> left;
};

void split_tiles(const Params& p, const Tier& tier, const Plan& plan) {
  const int64_t count = plan.tile_count * p.kv_heads;
  const int64_t head_bytes = round_up(count * static_cast<int64_t>(sizeof(SplitTile)), 64);
  auto* memory = static_cast<char*>(worker_scratch(Scratch::kD, head_bytes + plan.partials * sizeof(float)));
  auto* tiles = reinterpret_cast<SplitTile*>(memory);
  auto* partials = reinterpret_cast<float*>(memory + head_bytes);
  int64_t unit = 0;
  for (int64_t i = 0; i < count; ++i) {
    const RowTile& rows = plan.tiles[i / p.kv_heads];
    new (&tiles[i]) SplitTile{&rows, i % p.kv_heads, unit, partials, rows.splits()};
    partials += rows.splits() * State::floats(p, rows.count * (p.q_heads / p.kv_heads));
    unit += rows.splits();
  }
  ThreadPool::instance().parallel_for(unit, 1, [&](int64_t b, int64_t e, int) {
    for (int64_t u = b; u < e; ++u) {
      SplitTile& work = *std::prev(
          std::upper_bound(tiles, tiles + count, u, [](int64_t at, const SplitTile& t) { return at < t.first_unit; }));
      Tile tile(p, tier, *work.rows, work.kv_head);
      const auto state = [&](int64_t split) {
        return State::at(work.partials + split * State::floats(p, tile.vectors()), tile.vectors());
      };
      tile.attend(u - work.first_unit, state(u - work.first_unit));
      if (work.left.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      for (int64_t split = 1; split < work.rows->splits(); ++split) tile.fold(split, state(0), state(split));
      tile.finish(state(0));
    }
  });
}
}  // namespace

void drive(const Params& p, const Tier& tier) {
  if (p.rows == 0) return;
  const Plan plan = make_plan(p);
  const int64_t threads = ThreadPool::instance().threads(), tiles = plan.tile_count * p.kv_heads;
  const bool spread = threads > 1 && tiles < 2 * threads && plan.splits > tiles && plan.products >= kSmallWork;
  if (spread && plan.partials <= kMostPartials)
    split_tiles(p, tier, plan);
  else
    whole_tiles(p, tier, plan);
}
}  // namespace specpilot::attention
