// GPUs that the CUDA backend could use. Answers 0 where the build has no CUDA, or the machine no driver.
#pragma once
#include <string>
#include <vector>

namespace specpilot {
struct Gpu {
  std::string name;
  int major, minor;  // compute capability
  size_t memory_bytes;
};
std::vector<Gpu> gpus();
}  // namespace specpilot
