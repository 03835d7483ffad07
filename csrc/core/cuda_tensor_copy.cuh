// Rectangles of a matrix into shared memory by one instruction (sm_90 and later), laid out as wgmma and ldmatrix want them.
#pragma once
#include <cuda.h>

#include "core/cuda_async.cuh"
#include "core/cuda_launch.cuh"

namespace specpilot::cuda {
// Of a bf16 matrix [rows, columns], `stride` elements a row, for copies of `box_rows` rows x 64 columns: a row is 128 bytes, its chunk c of
// 16 lies at c ^ row % 8. What is outside of the matrix arrives as zeros. False where the matrix is not aligned for it.
inline bool describe(const char* op, CUtensorMap& map, const void* matrix, int64_t rows, int64_t columns, int64_t stride,
                     int box_rows) {
  if (reinterpret_cast<uintptr_t>(matrix) % 16 != 0 || stride % 8 != 0 || stride < columns) return false;
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (!encode) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(2 * stride)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  const CUresult error = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix), sizes, strides, box,
                                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  SP_CHECK(error == CUDA_SUCCESS, op, ": no tensor map of a [", rows, ", ", columns, "] matrix, ", stride,
           " elements a row (CUDA driver error ", static_cast<int>(error), ")");
  return true;
}

__device__ inline void prefetch(const CUtensorMap& map) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// One lane's copy of the box at (row, column), whose bytes the barrier expects; `to` is a multiple of 1024.
__device__ inline void tensor_copy(void* to, const CUtensorMap& map, int row, int column, Barrier& full) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(full.address()))
      : "memory");
#endif
}
}  // namespace specpilot::cuda
