#include "bind/ops.h"
#include "formats/w12_cuda.h"
#include "ops/linear/linear.h"

using namespace specpilot;

SP_BIND(linear) {
  bind::add_variants("linear", linear::variants());
  m.def("linear", &linear::run, pybind11::arg("x"), pybind11::arg("data"), pybind11::arg("base"), pybind11::arg("exc_begin"),
        pybind11::arg("exc_pos"), pybind11::arg("exc_val"), pybind11::arg("n"), pybind11::arg("bias"),
        pybind11::arg("residual"), pybind11::arg("y"), pybind11::arg("variant") = "",
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def(
      "linear_cuda_plan",
      [](int64_t n, int64_t k) {
        const w12_cuda::Plan p = w12_cuda::plan(n, k);
        return std::tuple(p.groups, p.steps, p.tiles, p.segments, p.row_warps);
      },
      pybind11::arg("n"), pybind11::arg("k"),
      "How CUDA cuts a weight: row groups, k steps, tiles of a row group, segments of k, row groups of a block.");
}
