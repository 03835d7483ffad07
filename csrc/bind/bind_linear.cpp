#include "bind/ops.h"
#include "ops/linear/linear.h"

void specpilot::bind::register_linear(py::module_& m) {
  add_variants("linear", linear::variants());
  m.def("linear", &linear::run, py::arg("x"), py::arg("data"), py::arg("base"), py::arg("exc_begin"), py::arg("exc_pos"),
        py::arg("exc_val"), py::arg("n"), py::arg("bias"), py::arg("residual"), py::arg("y"), py::arg("variant") = "",
        py::call_guard<py::gil_scoped_release>());
}
