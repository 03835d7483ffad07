// One instruction of the tensor cores, and how operands get into its registers: the order id "cuda-mma16".
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "core/cuda_async.cuh"

namespace specpilot::cuda {
// c[16 x 8] += a[16 x 16] b[16 x 8], bf16 into fp32. Lane 4 g + t: c = (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1);
// a = (g, 2t…), (g + 8, 2t…), (g, 2t + 8…), (g + 8, 2t + 8…);  b = (2t…, g), (2t + 8…, g).
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16-byte rows; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t (&b)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(row_address)
               : "memory");
}

// Lane 4 g + t gives (g, 2t…), gets (2t…, g)'s transpose: row g of columns 2t, 2t + 1.
__device__ inline uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
}  // namespace specpilot::cuda
