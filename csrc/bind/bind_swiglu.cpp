#include "bind/ops.h"
#include "ops/swiglu/swiglu.h"

using namespace specpilot;

SP_BIND(swiglu) {
  bind::add_variants("swiglu", swiglu::variants());
  m.def("swiglu", &swiglu::run, pybind11::arg("gate_up"), pybind11::arg("y"), pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
