#include "bind/ops.h"
#include "ops/embed/embed.h"

using namespace specpilot;

SP_BIND(embed) {
  bind::add_variants("embed", embed::variants());
  m.def("embed", &embed::run, pybind11::arg("ids"), pybind11::arg("data"), pybind11::arg("base"), pybind11::arg("exc_begin"),
        pybind11::arg("exc_pos"), pybind11::arg("exc_val"), pybind11::arg("n"), pybind11::arg("out"),
        pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
