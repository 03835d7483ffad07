#include "bind/ops.h"
#include "ops/accept/accept.h"

using namespace specpilot;

SP_BIND(accept) {
  bind::add_variants("accept", accept::variants());
  m.def("accept", &accept::run, pybind11::arg("cu_rows"), pybind11::arg("tokens"), pybind11::arg("parents"),
        pybind11::arg("choice"), pybind11::arg("path"), pybind11::arg("emitted"), pybind11::arg("length"),
        pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
