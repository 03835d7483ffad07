#include <cuda_runtime.h>

#include "core/cuda_info.h"

namespace specpilot {
std::vector<Gpu> gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};  // no driver or no GPU: an answer, not an error
  std::vector<Gpu> out;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp prop{};
    if (cudaGetDeviceProperties(&prop, i) == cudaSuccess)
      out.push_back({prop.name, prop.major, prop.minor, prop.totalGlobalMem});
  }
  return out;
}
}  // namespace specpilot
