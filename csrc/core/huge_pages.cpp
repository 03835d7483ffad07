#include "core/huge_pages.h"

#include <sys/mman.h>

void specpilot::advise_huge_pages(const TensorView& tensor) {
  SP_CHECK(tensor.on_cpu() && tensor.contiguous(), "advise_huge_pages: expected a contiguous CPU tensor");
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data<char>());
  const uintptr_t end = begin + static_cast<uintptr_t>(tensor.numel() * tensor.t.dtype.bits / 8);
  const uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge, last = end / kHuge * kHuge;
#ifdef MADV_HUGEPAGE
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}
