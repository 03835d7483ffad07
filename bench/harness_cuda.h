// The CUDA half of the harness: what harness.h does, where the build (SPECPILOT_CUDA=ON bench/run …) and the machine have CUDA.
// A bench program is the same source in every build; harness_cuda.cu alone needs CUDA's headers.
//
// Operands lie in device memory. A sample is a graph of calls, at least 2 ms of them and one for every copy of a streamed operand,
// timed by events behind an untimed launch of the same graph: the time of a call among others on a busy GPU. Streamed operands
// have 1 GB of distinct copies, at least 2 and at most 4096 (under --cold, small ones stay in the L2).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace bench::cuda {
#ifdef SPECPILOT_HAVE_CUDA
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;  // nothing below is referred to
#endif

// While one lives, operands give device pointers: the parameters of a CUDA variant are being made.
class OnDevice {
 public:
  OnDevice() { active = true; }
  ~OnDevice() { active = false; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  static inline bool active = false;
};

// An operand in device memory: one copy, or as many as outgrow the L2; call i uses number i modulo their count.
class Copies {
 public:
  Copies() = default;  // none yet
  Copies(const void* host, int64_t bytes, bool streamed);
  explicit operator bool() const { return first_ != nullptr; }
  void* operator[](int64_t call) const {
    most = count_ > most ? count_ : most;
    return first_.get() + call % count_ * stride_;
  }
  static inline int64_t most = 1;  // the largest count among the operands of the calls at hand

 private:
  std::shared_ptr<char> first_;
  int64_t stride_ = 0, count_ = 0;
};

void* stream();  // where calls go

// Calls 0 … calls - 1 of an op, captured.
struct Graph {
  int64_t calls;
  std::function<double()> us;  // launches twice; the time of the second launch
};
Graph capture(const std::function<void(int64_t)>& call);

template <class Params, class MakeParams>
Graph capture(void (*run)(const Params&), MakeParams params) {
  return capture([=](int64_t i) {
    const OnDevice operands;
    Params p = params(i);
    p.stream = stream();
    run(p);
  });
}
}  // namespace bench::cuda
