#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"
#include "harness_cuda.h"

namespace bench::cuda {
namespace {
constexpr int64_t kStreamed = int64_t{1} << 30;  // distinct bytes; an H200's L2 has 60 MB
constexpr int64_t kAlign = 256, kMaxCalls = 4096, kTrialCalls = 8;
constexpr double kSampleUs = 2000;                // beside it the gap between two graphs is nothing
constexpr std::chrono::milliseconds kWarmUp{50};  // clocks rise

void check(cudaError_t error, const char* what) {
  SP_CHECK(error == cudaSuccess, "bench: ", what, ": ", cudaGetErrorString(error));
}

cudaStream_t the_stream() {
  static const cudaStream_t s = [] {
    cudaStream_t made;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "stream");
    return made;
  }();
  return s;
}

class Recorded {
 public:
  Recorded(const std::function<void(int64_t)>& call, int64_t calls) {
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal), "begin of capture");
    for (int64_t i = 0; i < calls; ++i) call(i);
    check(cudaStreamEndCapture(the_stream(), &graph), "end of capture");
    check(cudaGraphInstantiate(&exec_, graph, 0), "graph");
    check(cudaGraphDestroy(graph), "graph");
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  ~Recorded() {
    cudaGraphExecDestroy(exec_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  double us() const {
    check(cudaGraphLaunch(exec_, the_stream()), "launch");  // untimed: warms, and hides the start of the next
    check(cudaEventRecord(begin_, the_stream()), "event");
    check(cudaGraphLaunch(exec_, the_stream()), "launch");
    check(cudaEventRecord(end_, the_stream()), "event");
    check(cudaEventSynchronize(end_), "run");
    float ms;
    check(cudaEventElapsedTime(&ms, begin_, end_), "time");
    return 1e3 * ms;
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};
}  // namespace

void* stream() { return the_stream(); }

Copies::Copies(const void* host, int64_t bytes, bool streamed) : stride_((bytes + kAlign - 1) / kAlign * kAlign) {
  stride_ = std::max(stride_, kAlign);
  count_ = !streamed ? 1 : std::min(std::max<int64_t>(kStreamed / stride_, 2), kMaxCalls);
  void* memory;
  check(cudaMalloc(&memory, stride_ * count_), "operand");
  first_.reset(static_cast<char*>(memory), [](char* p) { cudaFree(p); });
  for (int64_t i = 0; i < count_; ++i)
    check(i == 0 ? cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice)
                 : cudaMemcpy(first_.get() + i * stride_, memory, bytes, cudaMemcpyDeviceToDevice),
          "operand");
  check(cudaDeviceSynchronize(), "operand");
}

Graph capture(const std::function<void(int64_t)>& call) {
  Copies::most = 1;
  call(0);  // moves the operands, loads the kernels
  check(cudaStreamSynchronize(the_stream()), "first call");
  const double us = Recorded(call, kTrialCalls).us() / kTrialCalls;
  int64_t calls = std::clamp(static_cast<int64_t>(std::ceil(kSampleUs / std::max(us, 0.1))), int64_t{1}, kMaxCalls);
  calls = (calls + Copies::most - 1) / Copies::most * Copies::most;  // whole rounds: a launch ends where the next begins
  const auto recorded = std::make_shared<const Recorded>(call, calls);
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < kWarmUp;)
    recorded->us();
  return {calls, [recorded] { return recorded->us(); }};
}
}  // namespace bench::cuda
