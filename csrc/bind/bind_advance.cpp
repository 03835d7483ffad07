#include "bind/ops.h"
#include "ops/advance/advance.h"

using namespace specpilot;

SP_BIND(advance) {
  bind::add_variants("advance", advance::variants());
  m.def("advance", &advance::run, pybind11::arg("state"), pybind11::arg("emitted"), pybind11::arg("length"),
        pybind11::arg("margins"), pybind11::arg("stop_ids"), pybind11::arg("slot_table"), pybind11::arg("chain"),
        pybind11::arg("block"), pybind11::arg("causal"), pybind11::arg("context"), pybind11::arg("ring"),
        pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
