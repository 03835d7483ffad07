// What the CUDA backend finds: the driver, the GPUs, and which of them this build has code for. A problem with a GPU is an
// answer here, never an error: the CPU backend works beside it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace specpilot {
inline constexpr int kOldestCuda = 8;  // compute capability 8.0: cp.async, bf16 tensor cores

struct Gpu {
  std::string name;
  int major, minor;  // compute capability
  size_t memory_bytes;
  int sms;
  bool runs;  // the build has code for it
};
struct CudaInfo {
  std::vector<Gpu> gpus;
  std::string problem;  // why there are none, as the CUDA runtime says it; empty: no problem, or no CUDA in the build
  int driver = 0;       // newest CUDA that the driver supports, 1000 major + 10 minor; 0: no driver
  int runtime = 0;      // CUDA of the build; 0: none
};
const CudaInfo& cuda_info();  // asked once
inline const std::vector<Gpu>& gpus() { return cuda_info().gpus; }

// Architectures compiled in, as CMake names them: "80-real,90a-real,100f-real"; empty without CUDA.
std::string_view cuda_archs();
// Does code for these architectures run on this compute capability? N-real: the same major, no older minor; Na: just N; Nf: N's
// family; N-virtual (and plain N): PTX, for everything from N on.
bool archs_cover(std::string_view archs, int major, int minor);
}  // namespace specpilot
