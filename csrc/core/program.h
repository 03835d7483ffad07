// Program: a captured sequence of op calls, replayed by one call. The CPU's counterpart of a CUDA graph: the ops were
// checked and their variants chosen when they were recorded, all buffers have fixed addresses, and what changes from step to
// step (token ids, positions, slots, lengths) lies in tensors.
#pragma once
#include <functional>
#include <utility>
#include <vector>

namespace specpilot {
class Program {
 public:
  void add(std::function<void()> step) { steps_.push_back(std::move(step)); }
  void run() const {
    for (const auto& step : steps_) step();
  }
  size_t size() const { return steps_.size(); }

 private:
  std::vector<std::function<void()>> steps_;
};

// The program that ops of this thread are being recorded into; nullptr: ops execute at once.
Program*& recording();
}  // namespace specpilot
