// How every CUDA twin starts its kernels: on the caller's stream, without allocation or synchronisation, errors named by op.
//
// Kernels are compiled with --fmad=false and --ftz=true: one rounding per written operation, subnormals flushed, as on the CPU
// (docs/numerics.md). core/bf16.h holds the arithmetic that both share.
#pragma once
#include <cuda_runtime.h>

#include <utility>

#include "core/check.h"

namespace specpilot::cuda {
template <class... P, class... A>
void launch(const char* op, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, void* stream, A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(std::forward<A>(args)...);
  const cudaError_t error = cudaGetLastError();
  SP_CHECK(error == cudaSuccess, op, ": ", cudaGetErrorString(error));
}

// The code that the current device runs was compiled for sm_90 or later (code for less may run on any later GPU).
template <class... P>
bool compiled_since_90(const char* op, void (*kernel)(P...)) {
  cudaFuncAttributes code;
  const cudaError_t error = cudaFuncGetAttributes(&code, kernel);
  SP_CHECK(error == cudaSuccess, op, ": ", cudaGetErrorString(error));
  return code.ptxVersion >= 90;
}

// The same for a kernel whose blocks all call wait_for_previous (cuda_async.cuh): from sm_90 on it may start while the one before
// it ends. `cluster` neighbouring blocks may read each other's shared memory (cuda_cluster.cuh).
template <class... P, class... A>
void launch_clusters(const char* op, void (*kernel)(P...), unsigned cluster, dim3 grid, dim3 block, size_t shared_bytes,
                     void* stream, A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes, config.numAttrs = !compiled_since_90(op, kernel) ? 0 : cluster == 1 ? 1 : 2;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
  SP_CHECK(error == cudaSuccess, op, ": ", cudaGetErrorString(error));
}
template <class... P, class... A>
void launch_early(const char* op, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, void* stream,
                  A&&... args) {
  launch_clusters(op, kernel, 1, grid, block, shared_bytes, stream, std::forward<A>(args)...);
}

// Bytes of shared memory that a block may have on the current device: 227 KB on sm_90 and 100, 163 on 80, 99 on 89 and 120.
inline size_t most_shared(const char* op) {
  int device = 0, bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  SP_CHECK(error == cudaSuccess, op, ": ", cudaGetErrorString(error));
  return static_cast<size_t>(bytes);
}

// Lets a kernel use more than 48 KB of dynamic shared memory; needed once, cheap to repeat.
template <class... P>
void allow_shared(const char* op, void (*kernel)(P...), size_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  SP_CHECK(error == cudaSuccess, op, ": ", bytes, " bytes of shared memory: ", cudaGetErrorString(error));
}
}  // namespace specpilot::cuda
