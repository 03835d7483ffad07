#include "core/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "core/bf16.h"
#include "core/check.h"
#include "core/isa.h"

namespace specpilot {
namespace {
constexpr int kSpins = 20000;  // about 0.2 ms: longer than the gap between two ops of a step, shorter than a user notices
constexpr int64_t kOpen = int64_t{1} << 32;
thread_local bool inside = false;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int default_threads() {
  const char* env = std::getenv("SPECPILOT_THREADS");
  if (!env || !*env) return usable_cores();
  const int n = std::atoi(env);
  SP_CHECK(n >= 1 && n <= 1024, "SPECPILOT_THREADS=", env, ": expected a count from 1 to 1024");
  return n;
}
}  // namespace

ThreadPool& ThreadPool::instance() {
  static ThreadPool pool(default_threads());
  return pool;
}

ThreadPool::ThreadPool(int n) {
  start(n);
  pthread_atfork(nullptr, nullptr, after_fork);
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::after_fork() {
  ThreadPool& pool = instance();
  new (&pool.workers_) std::vector<std::thread>;  // the old handles name threads of the parent; dropped, never joined
  new (&pool.mutex_) std::mutex;
  pool.members_ = 0;
  pool.forked_ = true;
}

void ThreadPool::set_threads(int n) {
  SP_CHECK(n >= 1 && n <= 1024, "threads = ", n, ": expected 1 to 1024");
  std::lock_guard lock(mutex_);
  if (n == threads_) return;
  forked_ = false;
  stop();
  start(n);
}

void ThreadPool::start(int n) {
  threads_ = n;
  stopping_ = false;
  const uint64_t seen = epoch_.load();
  for (int w = 1; w < n; ++w) workers_.emplace_back([this, w, seen] { loop(w, seen); });
}

void ThreadPool::stop() {
  stopping_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& t : workers_) t.join();
  workers_.clear();
}

void ThreadPool::work(int worker) {
  for (int64_t b; (b = next_.fetch_add(grain_, std::memory_order_relaxed)) < n_;)
    body_(ctx_, b, std::min(b + grain_, n_), worker);
}

void ThreadPool::loop(int worker, uint64_t seen) {
  FlushToZero ftz;
  inside = true;
  for (;;) {
    for (int i = 0; i < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++i) pause();
    epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_) return;
    // The body and its range change only while the call is closed and has no members.
    if (members_.fetch_add(1, std::memory_order_acq_rel) & kOpen) work(worker);
    members_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run(int64_t n, int64_t grain, Body body, void* ctx) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  FlushToZero ftz;
  if (inside) return body(ctx, 0, n, 0);  // a nested call: the outer one already uses every thread
  std::lock_guard lock(mutex_);
  if (std::exchange(forked_, false)) start(threads_);
  if (threads_ == 1 || n <= grain) {
    inside = true;
    for (int64_t b = 0; b < n; b += grain) body(ctx, b, std::min(b + grain, n), 0);
    inside = false;
    return;
  }
  body_ = body, ctx_ = ctx, n_ = n, grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  members_.fetch_add(kOpen, std::memory_order_acq_rel);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  inside = true;
  work(0);
  inside = false;
  members_.fetch_sub(kOpen, std::memory_order_acq_rel);
  for (int i = 0; members_.load(std::memory_order_acquire) != 0; ++i)
    if (i < kSpins)
      pause();
    else
      std::this_thread::yield();  // oversubscribed machine: let the workers have the core
}

void* worker_scratch(Scratch which, size_t bytes) {
  struct Buffer {
    void* p = nullptr;
    size_t size = 0;
    ~Buffer() { ::operator delete(p, std::align_val_t{64}); }
  };
  thread_local Buffer buffers[static_cast<int>(Scratch::kCount)];
  Buffer& b = buffers[static_cast<int>(which)];
  if (b.size < bytes) {
    ::operator delete(b.p, std::align_val_t{64});
    b.p = nullptr, b.size = 0;
    b.p = ::operator new(bytes, std::align_val_t{64});
    b.size = bytes;
  }
  return b.p;
}
}  // namespace specpilot
