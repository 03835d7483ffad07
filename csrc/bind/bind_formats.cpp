#include "bind/ops.h"
#include "formats/run_layout.h"
#include "formats/w12_disk.h"
#include "formats/w12_scan.h"

using namespace specpilot;
namespace py = pybind11;

SP_BIND(formats) {
  const py::call_guard<py::gil_scoped_release> unlocked;
  m.def("w12_scan", &w12::scan, py::arg("weight"), py::arg("base"), py::arg("begin"), unlocked,
        "Fills the base of each band and the running number of exceptions; returns their total.");
  m.def("w12_pack", &w12::pack, py::arg("weight"), py::arg("base"), py::arg("begin"), py::arg("low"), py::arg("high"),
        py::arg("exc_pos"), py::arg("exc_val"), unlocked, "A scanned bf16 weight to the w12 arrays of a file.");
  m.def("w12_unpack", &w12::unpack, py::arg("low"), py::arg("high"), py::arg("base"), py::arg("exc_pos"), py::arg("exc_val"),
        py::arg("weight"), unlocked, "The w12 arrays of a file to bf16.");
  m.def("w12_first_difference", &w12::first_difference, py::arg("low"), py::arg("high"), py::arg("base"), py::arg("exc_pos"),
        py::arg("exc_val"), py::arg("weight"), unlocked,
        "Position of the first weight that the w12 arrays do not give back; -1 when there is none.");
  m.def("run_pack_bf16", &run_layout::pack_bf16, py::arg("weight"), py::arg("data"), unlocked,
        "bf16 [N, K] to the bf16 run layout.");
  m.def("run_pack_w12", &run_layout::pack_w12, py::arg("weight"), py::arg("base"), py::arg("exc_begin"), py::arg("data"),
        py::arg("exc_pos"), py::arg("exc_val"), unlocked, "bf16 [N, K], scanned, to the w12 run layout.");
  m.def("run_unpack", &run_layout::unpack, py::arg("data"), py::arg("base"), py::arg("exc_begin"), py::arg("exc_pos"),
        py::arg("exc_val"), py::arg("weight"), unlocked, "Either run layout to bf16 [N, K].");
}
