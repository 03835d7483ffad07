// Weights stream through memory at the speed of page walks unless they lie in huge pages.
#pragma once
#include "core/tensor.h"

namespace specpilot {
// Asks for 2 MiB pages for the whole ones inside a CPU tensor, before it is first written. Advice: no error where the
// system has none.
void advise_huge_pages(const TensorView& tensor);
}  // namespace specpilot
