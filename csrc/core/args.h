// Argument checks that ops share. Each failure names the op and the argument, says what it is and what was expected.
#pragma once
#include <initializer_list>
#include <string>

#include "core/tensor.h"

namespace specpilot {
enum class Type { kBf16, kFloat32, kInt32, kUint8 };
inline constexpr int64_t kAnySize = -1;

// Checks the tensors of one call of `op` against each other; `first` decides the device.
class Args {
 public:
  Args(const char* op, const TensorView& first) : op_(op), first_(first) {}

  // bf16 [rows, cols], unit column stride, any row stride.
  void rows(const char* name, const TensorView& t, int64_t rows, int64_t cols) const;
  // The same for an output: its rows must not overlap either.
  void output_rows(const char* name, const TensorView& t, int64_t rows, int64_t cols) const;
  // On the device of the first argument.
  void same_device(const char* name, const TensorView& t) const;
  // Contiguous, of exactly this shape (kAnySize: any).
  void packed(const char* name, const TensorView& t, Type type, std::initializer_list<int64_t> shape) const;

 private:
  void check(const char* name, const TensorView& t, Type type, std::initializer_list<int64_t> shape, int packed_from) const;

  const char* op_;
  const TensorView& first_;
};

// "bf16 [3, 576], strides [1152, 1]"
std::string describe(const TensorView& t);
}  // namespace specpilot
