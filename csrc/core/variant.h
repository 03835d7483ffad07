// A variant is one implementation of an op: {name, order id, tier or device, shape test, run}. Every op exposes its table,
// best first, so tests, benches, `specpilot info` and tuning all walk the same list.
//
// order_id names a summation order. Variants of one order id give the same bits, so M, batch and load may choose among them;
// the order id itself is chosen once for the whole engine:
//   SPECPILOT_FORCE=cpu_avx2     no CPU tier above AVX2, in any op           (a tier name)
//   SPECPILOT_FORCE=x86-pairs32  CPU ops: only variants of that order        (an order id of the CPU)
//   SPECPILOT_FORCE=cuda-mma16   CUDA ops: likewise                          (an order id of CUDA)
// Each speaks of its own backend and leaves the other as it is. CUDA variants that keep the CPU's order (no matrix product in
// them) belong to every engine on CUDA.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/isa.h"
#include "core/program.h"

namespace specpilot {
// The order of exactness rules for x86: per 32-deep k block two fma chains from zero (even k, odd k), then acc += even +
// odd.
inline constexpr const char* kOrderX86 = "x86-pairs32";
// CUDA's tensor cores: one m16n8k16 chain over ascending k within a segment (linear.h) or a split (attention.h); segments are added,
// splits folded, in ascending order.
inline constexpr const char* kOrderCuda = "cuda-mma16";
// No floating-point sum is involved (gathers, moves, integer decisions): bits cannot depend on an order.
inline constexpr const char* kOrderNone = "exact";

template <class Params>
struct Variant {
  const char* name;                // a tier ("cpu_avx2") or "cuda"
  const char* order_id;            // see above
  Isa isa;                         // CPU tier it needs; kRef for CUDA variants
  bool cuda;                       // runs on CUDA tensors
  bool (*accepts)(const Params&);  // shapes it takes; nullptr: all
  void (*run)(const Params&);
};

struct Force {
  bool any = false;  // SPECPILOT_FORCE is set
  Isa ceiling = Isa::kAmx;
  std::string order;        // empty: any
  bool order_cuda = false;  // the backend that order belongs to
  bool allows(std::string_view order_id, bool cuda) const {
    if (order.empty() || order_cuda != cuda) return true;
    return order_id == order || order_id == kOrderNone || (cuda && order_id == kOrderX86);
  }
};
const Force& force();  // parsed once; throws on an unknown name, listing the known ones

template <class Params>
bool runs_here(const Variant<Params>& v, const Params& p, bool cuda) {
  return v.cuda == cuda && (cuda || machine_has(v.isa)) && (!v.accepts || v.accepts(p));
}

// The first variant of the table that runs here (or the one asked for), executed now or recorded into the open Program.
template <class Params>
void dispatch(std::string_view op, std::span<const Variant<Params>> table, const Params& p, bool cuda,
              std::string_view want = {}) {
  const Force& f = force();
  for (const auto& v : table) {
    if (!want.empty()) {
      if (want != v.name) continue;
      SP_CHECK(runs_here(v, p, cuda), op, ": variant ", std::string(want),
               " cannot run here (machine: ", isa_name(machine_isa()), ")");
    } else {
      if (!runs_here(v, p, cuda) || (!cuda && v.isa > f.ceiling) || !f.allows(v.order_id, cuda)) continue;
    }
    if (Program* program = recording()) return program->add([run = v.run, p] { run(p); });
    return v.run(p);
  }
  SP_CHECK(false, op, ": no variant ", std::string(want.empty() ? "for this device, shape and SPECPILOT_FORCE" : want));
}

struct VariantInfo {
  std::string name, order_id;
  bool runs;  // on this machine, shapes aside
};
template <class Params>
std::vector<VariantInfo> describe(std::span<const Variant<Params>> table, bool have_gpu) {
  std::vector<VariantInfo> out;
  for (const auto& v : table) out.push_back({v.name, v.order_id, v.cuda ? have_gpu : machine_has(v.isa)});
  return out;
}
}  // namespace specpilot
