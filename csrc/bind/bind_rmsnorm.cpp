#include "bind/ops.h"
#include "ops/rmsnorm/rmsnorm.h"

using namespace specpilot;

SP_BIND(rmsnorm) {
  bind::add_variants("rmsnorm", rmsnorm::variants());
  m.def("rmsnorm", &rmsnorm::run, pybind11::arg("x"), pybind11::arg("weight"), pybind11::arg("eps"), pybind11::arg("denom"),
        pybind11::arg("y"), pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
