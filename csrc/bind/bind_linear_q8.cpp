#include "bind/ops.h"
#include "ops/linear_q8/linear_q8.h"

using namespace specpilot;

SP_BIND(linear_q8) {
  bind::add_variants("linear_q8", linear_q8::variants());
  m.def("linear_q8", &linear_q8::run, pybind11::arg("x"), pybind11::arg("data"), pybind11::arg("scale"),
        pybind11::arg("bias"), pybind11::arg("residual"), pybind11::arg("y"), pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
