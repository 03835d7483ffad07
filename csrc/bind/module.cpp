#include "bind/ops.h"

namespace specpilot::bind {
std::map<std::string, void (*)(py::module_&)>& binders() {
  static std::map<std::string, void (*)(py::module_&)> all;
  return all;
}
}  // namespace specpilot::bind

PYBIND11_MODULE(_C, m) {
  m.doc() = "SpecPilot's engine: kernels over borrowed torch tensors. Use specpilot.ops, which documents each call.";
  pybind11::register_exception<specpilot::Error>(m, "KernelError", PyExc_RuntimeError);
  for (const auto& [name, bind] : specpilot::bind::binders()) bind(m);
}
