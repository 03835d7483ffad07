// The answer of a build without CUDA.
#ifndef SPECPILOT_HAVE_CUDA
#include "core/cuda_info.h"

std::vector<specpilot::Gpu> specpilot::gpus() { return {}; }
#endif
