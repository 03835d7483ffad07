#include "bind/ops.h"
#include "ops/attention/attention.h"

using namespace specpilot;

SP_BIND(attention) {
  bind::add_variants("attention", attention::variants());
  m.def("attention", &attention::run, pybind11::arg("q"), pybind11::arg("k_cache"), pybind11::arg("v_cache"),
        pybind11::arg("slot_table"), pybind11::arg("request"), pybind11::arg("prefix"), pybind11::arg("tail_begin"),
        pybind11::arg("tail_slots"), pybind11::arg("scale"), pybind11::arg("dim"), pybind11::arg("out"),
        pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
