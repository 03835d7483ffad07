#include "core/program.h"

namespace specpilot {
Program*& recording() {
  thread_local Program* current = nullptr;
  return current;
}
}  // namespace specpilot
