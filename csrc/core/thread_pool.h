// The CPU backend's only threads. Results never depend on how work is cut among them: ops hand out whole output elements.
//
// Workers spin for a short while between calls (a decode step makes hundreds of calls microseconds apart), then sleep. A
// call waits only for workers that have taken part of its work: one that the system has not scheduled yet delays nobody.
// Every worker runs with subnormals flushed to zero; the calling thread does so only inside parallel_for.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace specpilot {
class ThreadPool {
 public:
  static ThreadPool& instance();  // created on first use with SPECPILOT_THREADS or usable_cores() threads
  ~ThreadPool();

  int threads() const { return threads_; }
  void set_threads(int n);  // 1 … 1024; waits for running work

  // Calls fn(begin, end, worker) over [0, n) in chunks of at most `grain`, handed out dynamically; worker < threads().
  // Nested calls run on the calling worker alone.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run(n, grain, [](void* f, int64_t b, int64_t e, int w) { (*static_cast<Fn*>(f))(b, e, w); }, &fn);
  }

 private:
  using Body = void (*)(void*, int64_t, int64_t, int);
  explicit ThreadPool(int n);
  static void after_fork();  // the child of a fork has no workers: forget them, new ones start with the next call
  void run(int64_t n, int64_t grain, Body body, void* ctx);
  void work(int worker);
  void loop(int worker, uint64_t seen);
  void start(int n);
  void stop();

  std::mutex mutex_;  // one parallel_for at a time
  std::vector<std::thread> workers_;
  int threads_ = 1;
  Body body_ = nullptr;
  void* ctx_ = nullptr;
  int64_t n_ = 0, grain_ = 1;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<int64_t> members_{0};  // workers inside the open call; kOpen is set while it takes new ones
  std::atomic<bool> stopping_{false};
  bool forked_ = false;
};

// Bytes that stay allocated per worker and grow on demand; valid until the same worker's next call with the same key.
enum class Scratch : int { kA, kB, kC, kD, kCount };
void* worker_scratch(Scratch which, size_t bytes);
}  // namespace specpilot
