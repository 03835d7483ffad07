// Machine facts, threads, programs and variant tables.
#include <algorithm>

#include "bind/ops.h"
#include "core/bandwidth.h"
#include "core/cuda_info.h"
#include "core/huge_pages.h"
#include "core/thread_pool.h"

namespace specpilot::bind {
bool have_gpu() { return std::ranges::any_of(gpus(), &Gpu::runs); }

std::map<std::string, std::vector<VariantInfo>>& variant_tables() {
  static std::map<std::string, std::vector<VariantInfo>> tables;
  return tables;
}

}  // namespace specpilot::bind

using namespace specpilot;
using namespace specpilot::bind;

SP_BIND(core) {
#ifdef SPECPILOT_HAVE_CUDA
  m.attr("built_with_cuda") = true;
#else
  m.attr("built_with_cuda") = false;
#endif
  m.attr("order_id") = kOrderX86;
  m.attr("cuda_order_id") = kOrderCuda;
  m.attr("build_flags") = SPECPILOT_BUILD_FLAGS;
  m.def(
      "gpus",
      [] {
        std::vector<std::tuple<std::string, int, int, size_t, int, bool>> out;
        for (const auto& g : gpus()) out.emplace_back(g.name, g.major, g.minor, g.memory_bytes, g.sms, g.runs);
        return out;
      },
      "(name, compute capability major, minor, memory bytes, SMs, whether this build has code for it) of each GPU; empty "
      "without "
      "CUDA in the build.");
  m.def(
      "cuda_status",
      [] {
        const CudaInfo& info = cuda_info();
        return std::make_tuple(info.problem, info.driver, info.runtime);
      },
      "(why no GPU is seen, in the CUDA runtime's words, or \"\"; newest CUDA of the driver, 1000 major + 10 minor, 0 "
      "without a "
      "driver; CUDA of the build, 0 without).");
  m.attr("cuda_archs") = std::string(cuda_archs());
  m.def("archs_cover", &archs_cover, py::arg("archs"), py::arg("major"), py::arg("minor"),
        "Whether code for these architectures (\"80-real,90a-real\") runs on a GPU of this compute capability.");
  m.def("machine_tier", [] { return std::string(isa_name(machine_isa())); }, "Best CPU tier of this machine.");
  m.def(
      "active_tier", [] { return std::string(isa_name(std::min(machine_isa(), force().ceiling))); },
      "Best CPU tier in use: the machine's, or SPECPILOT_FORCE's.");
  m.def("threads", [] { return ThreadPool::instance().threads(); }, "Threads of the CPU backend.");
  m.def(
      "set_threads", [](int n) { ThreadPool::instance().set_threads(n); }, py::arg("n"),
      py::call_guard<py::gil_scoped_release>(), "Threads of the CPU backend, 1 to 1024.");
  m.def("advise_huge_pages", &advise_huge_pages, py::arg("tensor"),
        "Asks the system for huge pages under a CPU tensor that has not been written yet.");
  m.def("memory_bandwidth", &measure_read_bandwidth, py::arg("mebibytes") = 256, py::arg("repeats") = 3,
        py::call_guard<py::gil_scoped_release>(), "Measured read bandwidth of all threads together, bytes per second.");
  m.def(
      "variants",
      [](const std::string& op) {
        const auto it = variant_tables().find(op);
        if (it == variant_tables().end()) throw py::key_error("no op " + op);
        std::vector<std::tuple<std::string, std::string, bool>> out;
        for (const auto& v : it->second) out.emplace_back(v.name, v.order_id, v.runs);
        return out;
      },
      py::arg("op"), "(name, order id, runs on this machine) of each variant of an op, best first.");
  m.def(
      "ops",
      [] {
        std::vector<std::string> names;
        for (const auto& [name, table] : variant_tables()) names.push_back(name);
        return names;
      },
      "Names of all ops.");

  py::class_<Program>(m, "Program", "A captured sequence of op calls; run() replays it on the same buffers.")
      .def(py::init<>())
      .def("begin",
           [](Program& p) {
             SP_CHECK(!recording(), "Program.begin: another program is being recorded in this thread");
             recording() = &p;
           })
      .def("end",
           [](Program& p) {
             SP_CHECK(recording() == &p, "Program.end: this program is not being recorded in this thread");
             recording() = nullptr;
           })
      .def("run", &Program::run, py::call_guard<py::gil_scoped_release>())
      .def("__len__", &Program::size);
}
