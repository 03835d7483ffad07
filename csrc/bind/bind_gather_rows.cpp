#include "bind/ops.h"
#include "ops/gather_rows/gather_rows.h"

using namespace specpilot;

SP_BIND(gather_rows) {
  bind::add_variants("gather_rows", gather_rows::variants());
  m.def("gather_rows", &gather_rows::run, pybind11::arg("x"), pybind11::arg("index"), pybind11::arg("out"),
        pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
