#include "core/cuda_info.h"

#include <charconv>

namespace specpilot {
#ifndef SPECPILOT_HAVE_CUDA
const CudaInfo& cuda_info() {
  static const CudaInfo none;
  return none;
}
std::string_view cuda_archs() { return {}; }
#endif

namespace {
bool covers(std::string_view arch, int major, int minor) {
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (error != std::errc()) return false;
  const std::string_view rest = arch.substr(end - arch.data());
  const int at = 10 * major + minor;
  const bool same_major = number / 10 == major && number <= at;
  if (rest.starts_with('a')) return number == at;
  if (rest.starts_with('f')) return same_major;
  return rest == "-real" ? same_major : number <= at;
}
}  // namespace

bool archs_cover(std::string_view archs, int major, int minor) {
  if (major < kOldestCuda) return false;
  while (!archs.empty()) {
    const size_t comma = archs.find(',');
    if (covers(archs.substr(0, comma), major, minor)) return true;
    archs = comma == archs.npos ? std::string_view() : archs.substr(comma + 1);
  }
  return false;
}
}  // namespace specpilot
