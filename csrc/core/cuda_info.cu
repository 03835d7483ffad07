#include <cuda_runtime.h>

#include "core/cuda_info.h"

namespace specpilot {
namespace {
CudaInfo ask() {
  CudaInfo info;
  info.runtime = CUDART_VERSION;
  cudaDriverGetVersion(&info.driver);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) info.problem = cudaGetErrorString(error);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp prop{};
    const cudaError_t error = cudaGetDeviceProperties(&prop, i);
    if (error != cudaSuccess) {  // kept, so that numbers go on meaning the same GPUs as elsewhere
      info.gpus.push_back({cudaGetErrorString(error), 0, 0, 0, 0, false});
      continue;
    }
    info.gpus.push_back({prop.name, prop.major, prop.minor, prop.totalGlobalMem, prop.multiProcessorCount,
                         archs_cover(cuda_archs(), prop.major, prop.minor)});
  }
  cudaGetLastError();  // whatever was found is told above; no later launch is to stumble over it
  return info;
}
}  // namespace

const CudaInfo& cuda_info() {
  static const CudaInfo info = ask();
  return info;
}

std::string_view cuda_archs() { return SPECPILOT_CUDA_ARCHS; }
}  // namespace specpilot
