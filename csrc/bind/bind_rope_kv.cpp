#include "bind/ops.h"
#include "ops/rope_kv/rope_kv.h"

using namespace specpilot;

SP_BIND(rope_kv) {
  bind::add_variants("rope_kv", rope_kv::variants());
  m.def("rope_kv", &rope_kv::run, pybind11::arg("qkv"), pybind11::arg("cos"), pybind11::arg("sin"),
        pybind11::arg("positions"), pybind11::arg("slots"), pybind11::arg("q_norm"), pybind11::arg("k_norm"),
        pybind11::arg("eps"), pybind11::arg("norm_denom"), pybind11::arg("dim"), pybind11::arg("q_out"),
        pybind11::arg("k_cache"), pybind11::arg("v_cache"), pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
