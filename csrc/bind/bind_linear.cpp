#include "bind/ops.h"
#include "ops/linear/linear.h"

using namespace specpilot;

SP_BIND(linear) {
  bind::add_variants("linear", linear::variants());
  m.def("linear", &linear::run, pybind11::arg("x"), pybind11::arg("data"), pybind11::arg("base"), pybind11::arg("exc_begin"),
        pybind11::arg("exc_pos"), pybind11::arg("exc_val"), pybind11::arg("n"), pybind11::arg("bias"),
        pybind11::arg("residual"), pybind11::arg("y"), pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
