// TensorView: a borrowed tensor plus the stream its framework is working on. Owns nothing, allocates nothing.
#pragma once
#include <cstdint>
#include <optional>

#include "core/check.h"
#include "core/dlpack_abi.h"

namespace specpilot {
using bf16 = uint16_t;  // bf16 travels as its bit pattern

struct TensorView {
  dlpack::Tensor t{};
  void* stream = nullptr;  // cudaStream_t of the framework's current stream; unused on the CPU

  int ndim() const { return t.ndim; }
  int64_t size(int d) const { return t.shape[d < 0 ? d + t.ndim : d]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < t.ndim; ++d) n *= t.shape[d];
    return n;
  }
  int64_t stride(int d) const {
    if (d < 0) d += t.ndim;
    if (t.strides) return t.strides[d];
    int64_t s = 1;
    for (int i = t.ndim - 1; i > d; --i) s *= t.shape[i];
    return s;
  }
  bool on_cpu() const { return t.device.device_type == dlpack::kCpu; }
  bool on_cuda() const { return t.device.device_type == dlpack::kCuda; }
  bool is(dlpack::TypeCode code, int bits) const {
    return t.dtype.code == code && t.dtype.bits == bits && t.dtype.lanes == 1;
  }
  bool is_bf16() const { return is(dlpack::kBfloat, 16); }
  bool is_f32() const { return is(dlpack::kFloat, 32); }
  bool is_i32() const { return is(dlpack::kInt, 32); }
  bool is_u8() const { return is(dlpack::kUInt, 8); }
  bool contiguous() const { return rows_contiguous(0); }
  // Dims [first, ndim) are packed; a 2-D activation with a row stride has rows_contiguous(1).
  bool rows_contiguous(int first) const {
    if (numel() == 0) return true;
    int64_t expect = 1;
    for (int d = t.ndim - 1; d >= first; --d) {
      if (t.shape[d] != 1 && stride(d) != expect) return false;
      expect *= t.shape[d];
    }
    return true;
  }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(static_cast<char*>(t.data) + t.byte_offset);
  }
};

using OptionalTensor = std::optional<TensorView>;
}  // namespace specpilot
