#include "bind/ops.h"
#include "ops/kv_move/kv_move.h"

using namespace specpilot;

SP_BIND(kv_move) {
  bind::add_variants("kv_move", kv_move::variants());
  m.def("kv_move", &kv_move::run, pybind11::arg("from_slots"), pybind11::arg("to_slots"), pybind11::arg("k_cache"),
        pybind11::arg("v_cache"), pybind11::arg("variant") = "", pybind11::call_guard<pybind11::gil_scoped_release>());
}
