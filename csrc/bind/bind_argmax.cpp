#include "bind/ops.h"
#include "ops/argmax/argmax.h"

using namespace specpilot;

SP_BIND(argmax) {
  bind::add_variants("argmax", argmax::variants());
  m.def("argmax", &argmax::run, pybind11::arg("logits"), pybind11::arg("valid_vocab"), pybind11::arg("ids"),
        pybind11::arg("margin") = std::nullopt, pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
