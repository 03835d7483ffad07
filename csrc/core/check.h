// One way to fail: SP_CHECK throws specpilot::Error with the offending values, what was expected, and where.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace specpilot {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(const char* file, int line, const char* cond, const Args&... args) {
  const std::string path = file;
  std::ostringstream os;
  (os << ... << args);
  os << "  [" << cond << " at " << path.substr(path.rfind('/') + 1) << ":" << line << "]";
  throw Error(os.str());
}
}  // namespace specpilot

#define SP_CHECK(cond, ...)                                                 \
  do {                                                                      \
    if (!(cond)) ::specpilot::fail(__FILE__, __LINE__, #cond, __VA_ARGS__); \
  } while (0)
