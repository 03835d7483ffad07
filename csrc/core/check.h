// One way to fail: SP_CHECK throws specpilot::Error with the offending values, what was expected, and where.
//
// Messages are built without iostreams: a process may hold a second C++ runtime with exported locale facets (some wheels
// link one in), and formatting a number through a stream then crashes.
#pragma once
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace specpilot {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
std::string to_text(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
    return text;
  } else {
    return std::to_string(value);
  }
}

template <class... Args>
[[noreturn]] void fail(const char* file, int line, const char* cond, const Args&... args) {
  const std::string_view path = file;
  std::string text;
  ((text += to_text(args)), ...);
  text +=
      "  [" + std::string(cond) + " at " + std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line) + "]";
  throw Error(text);
}
}  // namespace specpilot

#define SP_CHECK(cond, ...)                                                 \
  do {                                                                      \
    if (!(cond)) ::specpilot::fail(__FILE__, __LINE__, #cond, __VA_ARGS__); \
  } while (0)
