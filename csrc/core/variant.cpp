#include "core/variant.h"

#include <cstdlib>

namespace specpilot {
namespace {
Force parse() {
  Force f;
  const char* env = std::getenv("SPECPILOT_FORCE");
  if (!env || !*env) return f;
  f.any = true;
  const std::string want = env;
  for (int i = 0; i <= static_cast<int>(Isa::kAmx); ++i) {
    const auto isa = static_cast<Isa>(i);
    if (want != isa_name(isa)) continue;
    SP_CHECK(machine_has(isa), "SPECPILOT_FORCE=", want, " cannot run on this machine: its best tier is ",
             isa_name(machine_isa()), "; unset it or name a lower tier");
    f.ceiling = isa;
    return f;
  }
  SP_CHECK(want == kOrderX86 || want == kOrderCuda, "SPECPILOT_FORCE=", want,
           " is not known: expected a tier (cpu_ref, cpu_avx2, cpu_avx512, cpu_avx512_vnni, cpu_amx) or an order id (",
           kOrderX86, " on the CPU, ", kOrderCuda, " on CUDA)");
  f.order = want;
  f.order_cuda = want == kOrderCuda;
  return f;
}
}  // namespace

const Force& force() {
  static const Force f = parse();
  return f;
}
}  // namespace specpilot
