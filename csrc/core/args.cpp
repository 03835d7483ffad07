#include "core/args.h"

namespace specpilot {
namespace {
template <class At>
std::string list(int n, At at) {
  std::string s = "[";
  for (int i = 0; i < n; ++i) s += (i ? ", " : "") + at(i);
  return s + "]";
}

std::string type_name(const TensorView& t) {
  if (t.is_bf16()) return "bf16";
  const char* kind = t.t.dtype.code == dlpack::kInt     ? "int"
                     : t.t.dtype.code == dlpack::kUInt  ? "uint"
                     : t.t.dtype.code == dlpack::kFloat ? "float"
                                                        : "other";
  return kind + std::to_string(t.t.dtype.bits);
}

const char* type_name(Type type) {
  switch (type) {
    case Type::kBf16:
      return "bf16";
    case Type::kFloat32:
      return "float32";
    case Type::kUint8:
      return "uint8";
    default:
      return "int32";
  }
}

bool is(const TensorView& t, Type type) {
  switch (type) {
    case Type::kBf16:
      return t.is_bf16();
    case Type::kFloat32:
      return t.is_f32();
    case Type::kUint8:
      return t.is_u8();
    default:
      return t.is_i32();
  }
}

bool fits(const TensorView& t, Type type, std::initializer_list<int64_t> shape) {
  if (!is(t, type) || t.ndim() != static_cast<int>(shape.size())) return false;
  int d = 0;
  for (const int64_t want : shape)
    if (const int64_t have = t.size(d++); want != kAnySize && want != have) return false;
  return true;
}
}  // namespace

std::string describe(const TensorView& t) {
  return type_name(t) + " " + list(t.ndim(), [&](int i) { return std::to_string(t.size(i)); }) + ", strides " +
         list(t.ndim(), [&](int i) { return std::to_string(t.stride(i)); });
}

void Args::same_device(const char* name, const TensorView& t) const {
  SP_CHECK(t.t.device.device_type == first_.t.device.device_type && t.t.device.device_id == first_.t.device.device_id, op_,
           ": ", name, " is on another device than the first argument");
}

void Args::check(const char* name, const TensorView& t, Type type, std::initializer_list<int64_t> shape,
                 int packed_from) const {
  same_device(name, t);
  SP_CHECK(fits(t, type, shape), op_, ": ", name, " is ", describe(t), "; expected ", type_name(type), " ",
           list(static_cast<int>(shape.size()), [&](int i) {
             const int64_t want = shape.begin()[i];
             return want == kAnySize ? std::string("any") : std::to_string(want);
           }));
  SP_CHECK(t.rows_contiguous(packed_from), op_, ": ", name, " is ", describe(t), "; expected ",
           packed_from == 0 ? "contiguous" : "unit column stride");
}

void Args::rows(const char* name, const TensorView& t, int64_t rows, int64_t cols) const {
  check(name, t, Type::kBf16, {rows, cols}, 1);
}

void Args::output_rows(const char* name, const TensorView& t, int64_t rows, int64_t cols) const {
  check(name, t, Type::kBf16, {rows, cols}, 1);
  SP_CHECK(t.size(0) <= 1 || t.stride(0) >= t.size(1), op_, ": ", name, " is ", describe(t), ": its rows overlap");
}

void Args::packed(const char* name, const TensorView& t, Type type, std::initializer_list<int64_t> shape) const {
  check(name, t, type, shape, 0);
}
}  // namespace specpilot
