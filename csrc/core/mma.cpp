#include "core/mma.h"

#include "core/check.h"

namespace specpilot {
namespace mma_tiers {
extern const Mma kRef;
#if defined(__x86_64__)
extern const Mma kAvx2, kAvx512, kAmx;
#endif
}  // namespace mma_tiers

const Mma& mma(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return mma_tiers::kAvx2;
    case Isa::kAvx512:
      return mma_tiers::kAvx512;
    case Isa::kAmx:
      return mma_tiers::kAmx;
#endif
    default:
      return mma_tiers::kRef;
  }
}
}  // namespace specpilot
