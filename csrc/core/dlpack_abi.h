// The few C structs of the DLPack 1.x binary interface that the binding borrows tensors through. An ABI, so the layout is
// fixed by the DLPack specification (https://dmlc.github.io/dlpack); only what is used here is declared by name.
#pragma once
#include <cstdint>

namespace specpilot::dlpack {
enum DeviceType : int32_t { kCpu = 1, kCuda = 2 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
  int32_t device_type;
  int32_t device_id;
};
struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

// torch.Tensor.__dlpack_c_exchange_api__ (torch >= 2.10): a capsule that holds a pointer to this table.
struct ExchangeHeader {
  uint32_t major, minor;
  ExchangeHeader* previous;
};
struct ExchangeApi {
  ExchangeHeader header;
  void* allocate;                                           // unused: outputs come from Python
  void* managed_from_object;                                // unused: tensors are borrowed, never owned
  void* managed_to_object;                                  // unused
  int (*tensor_from_object)(void* py_object, Tensor* out);  // borrowed for the duration of the call
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
};
}  // namespace specpilot::dlpack
