// Lets bound functions take TensorView: borrows a torch tensor through the DLPack C exchange API (torch >= 2.10) with its
// current stream. No torch headers, no torch libraries, no reference counting, about 0.1 us a tensor.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/tensor.h"

namespace pybind11::detail {
inline const specpilot::dlpack::ExchangeApi* exchange_api(PyTypeObject* type) {
  using Api = specpilot::dlpack::ExchangeApi;
  static PyTypeObject* last_type = nullptr;  // torch.Tensor, almost always (guarded by the GIL)
  static const Api* last = nullptr;
  if (type == last_type) return last;
  object capsule =
      reinterpret_steal<object>(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule) {
    PyErr_Clear();
    return nullptr;
  }
  auto* api = static_cast<const Api*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!api) {
    PyErr_Clear();
    return nullptr;
  }
  last_type = type;
  return last = api;
}

template <>
struct type_caster<specpilot::TensorView> {
  PYBIND11_TYPE_CASTER(specpilot::TensorView, const_name("torch.Tensor"));  // what stubs and error messages show

  bool load(handle src, bool) {
    const auto* api = exchange_api(Py_TYPE(src.ptr()));
    if (!api || !api->tensor_from_object) return false;
    if (api->tensor_from_object(src.ptr(), &value.t) != 0) throw error_already_set();
    if (value.numel() > 0 && !value.t.data) throw type_error("tensor has no storage (fake or meta tensor)");
    if (value.on_cuda() &&
        api->current_work_stream(value.t.device.device_type, value.t.device.device_id, &value.stream) != 0)
      throw error_already_set();
    return true;
  }
};
}  // namespace pybind11::detail
