// Microbenchmark harness. No dependency; a bench is one loop over shapes (bench/ops/bench_swiglu.cpp).
//
// Protocol. The variants of one shape are measured together: every epoch takes one sample of each, in an order that rotates
// from epoch to epoch, so that drifting clocks and neighbours on the machine hit all of them alike. A sample is a batch of
// calls long enough for the clock (the batch is found while warming up), after one untimed call that brings back caches,
// threads and page tables (on another copy of what is streamed); its value is time / batch. Reported: the median over
// epochs, the median absolute deviation as a percentage of it, the minimum, and from the median GB/s and GFLOP/s. Compare
// figures of one run only.
//
// Caches. Call number i uses copy i of an operand. Activations have one copy and stay warm, as between two ops of a decode
// step; weights (Operand::kStreamed) have more than the caches hold. --cold makes every operand streamed.
//
// CUDA variants: harness_cuda.h.
//
// Output: JSON lines. The first describes the machine, each other one a (shape, variant).
#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/cuda_info.h"
#include "core/isa.h"
#include "core/thread_pool.h"
#include "core/variant.h"
#include "harness_cuda.h"

namespace bench {
struct Options {
  int epochs = 31;
  double sample_us = 300;   // shortest sample: some thousand ticks of the clock
  double case_seconds = 2;  // an op slower than this allows gets fewer epochs, but at least 5
  bool cold = false;
  std::string variant;  // only this one
  std::string shape;    // only shapes that contain this
};

struct Case {
  std::string variant;
  std::function<void(int64_t)> call;  // one call of the op; the argument counts calls
  cuda::Graph graph{};                // or, of a CUDA variant, its calls
};

struct Result {
  double median_us, error_pct, min_us;
  int epochs;
  int64_t batch;
};

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t m = v.size() / 2;
  return v.size() % 2 ? v[m] : (v[m - 1] + v[m]) / 2;
}

inline Result summarize(const std::vector<double>& samples, int64_t batch) {
  const double middle = median(samples);
  std::vector<double> deviation;
  for (const double s : samples) deviation.push_back(std::abs(s - middle));
  return {middle, 100 * median(deviation) / middle, *std::min_element(samples.begin(), samples.end()),
          static_cast<int>(samples.size()), batch};
}

// One case on its way through the protocol.
class Sampler {
 public:
  Sampler(const Case& c, const Options& o) : case_(c), batch_(c.graph.us ? c.graph.calls : 1) {
    call();     // page faults, first use of scratch
    double us;  // the shorter of two: a stall must not pass for a full sample. This is the warm-up, too.
    while ((us = std::min(time(), time())) < o.sample_us && !case_.graph.us)
      batch_ = std::max(batch_ + 1, static_cast<int64_t>(1.2 * batch_ * std::min(10.0, o.sample_us / std::max(us, 0.01))));
    const double fit = o.case_seconds * 1e6 / us;
    epochs_ = std::max(std::min(5, o.epochs), static_cast<int>(std::min<double>(o.epochs, fit)));
  }
  int epochs() const { return epochs_; }
  void sample() {
    call();
    samples_.push_back(time() / batch_);
  }
  Result result() const { return summarize(samples_, batch_); }

 private:
  void call() {
    if (case_.call) case_.call(calls_++);
  }
  double time() {
    if (case_.graph.us) return case_.graph.us();
    const double start = now_us();
    for (int64_t i = 0; i < batch_; ++i) call();
    return now_us() - start;
  }

  const Case& case_;
  int64_t batch_, calls_ = 0;
  int epochs_ = 0;
  std::vector<double> samples_;
};

inline std::vector<Result> measure(const std::vector<Case>& cases, const Options& o) {
  std::vector<Sampler> samplers;
  for (const Case& c : cases) samplers.emplace_back(c, o);
  int epochs = 0;
  for (const Sampler& s : samplers) epochs = std::max(epochs, s.epochs());
  for (int e = 0; e < epochs; ++e)
    for (size_t k = 0; k < samplers.size(); ++k) {
      Sampler& s = samplers[(k + e) % samplers.size()];
      // A slow case sits out some epochs, evenly spread.
      if (int64_t{e} * s.epochs() / epochs != int64_t{e + 1} * s.epochs() / epochs) s.sample();
    }
  std::vector<Result> results;
  for (const Sampler& s : samplers) results.push_back(s.result());
  return results;
}

// What one binary does: reads the options, prints the machine line, then a line for each variant of each shape.
class Session {
 public:
  Session(const char* op, int argc, char** argv) : op_(op) {
    parse(argc, argv);
    print_machine();
  }
  const Options& options() const { return options_; }
  bool selected(const std::string& shape) const { return shape.find(options_.shape) != std::string::npos; }

  // `params(i)` gives the parameters of call number i; bytes and flops are what the op must move and compute.
  template <class Params, class MakeParams>
  void run(const std::string& shape, double bytes, double flops, std::span<const specpilot::Variant<Params>> table,
           MakeParams params) {
    if (!selected(shape)) return;
    std::vector<Case> cases;
    for (const auto& v : table) {
      if (!options_.variant.empty() && options_.variant != v.name) continue;
      if (!specpilot::runs_here(v, params(0), v.cuda) || (v.cuda && gpu_.empty())) continue;
      // The scalar reference is no contender: left out where a call would take most of a second.
      const bool reference = std::string_view(v.name) == "cpu_ref";
      if (reference && flops > kReferenceFlops && table.size() > 1 && options_.variant.empty()) continue;
      if (!v.cuda) cases.push_back({v.name, [run = v.run, params](int64_t i) { run(params(i)); }});
      if constexpr (cuda::kBuilt)
        if (v.cuda) cases.push_back({v.name, {}, cuda::capture(v.run, params)});
    }
    const std::vector<Result> results = measure(cases, options_);
    for (size_t i = 0; i < cases.size(); ++i) print(shape, cases[i], results[i], bytes, flops);
  }

 private:
  static constexpr double kReferenceFlops = 2e8;

  void parse(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view key = argv[i];
      if (key == "--cold") {
        options_.cold = true;
        continue;
      }
      const char* value = i + 1 < argc ? argv[++i] : "";
      if (key == "--epochs" && std::atoi(value) > 0)
        options_.epochs = std::atoi(value);
      else if (key == "--threads" && std::atoi(value) > 0)
        specpilot::ThreadPool::instance().set_threads(std::atoi(value));
      else if (key == "--variant" && *value)
        options_.variant = value;
      else if (key == "--shape" && *value)
        options_.shape = value;
      else
        usage(argv[i]);
    }
  }
  [[noreturn]] void usage(const char* what) const {
    std::fprintf(stderr, "%s: cannot use %s\noptions: --cold  --epochs N  --threads N  --variant NAME  --shape TEXT\n", op_,
                 what);
    std::exit(2);
  }

  static std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown";
  }
  void print_machine() const {
    const char* commit = std::getenv("SPECPILOT_COMMIT");  // set by bench/run in a git checkout
    std::printf(
        "{\"cpu\": \"%s\", \"tier\": \"%s\", \"threads\": %d, \"cores\": %d, \"compiler\": \"%s\", \"commit\": \"%s\", "
        "\"cold\": %s, \"gpu\": \"%s\"}\n",
        cpu_model().c_str(), specpilot::isa_name(specpilot::machine_isa()), specpilot::ThreadPool::instance().threads(),
        specpilot::usable_cores(), __VERSION__, commit ? commit : "", options_.cold ? "true" : "false", gpu_.c_str());
    std::fflush(stdout);
  }
  void print(const std::string& shape, const Case& c, const Result& r, double bytes, double flops) const {
    std::printf(
        "{\"op\": \"%s\", \"shape\": \"%s\", \"variant\": \"%s\", \"median_us\": %.4g, \"error_pct\": %.2f, "
        "\"min_us\": %.4g, \"gbps\": %.4g, \"gflops\": %.4g, \"epochs\": %d, \"batch\": %lld}\n",
        op_, shape.c_str(), c.variant.c_str(), r.median_us, r.error_pct, r.min_us, bytes / r.median_us / 1e3,
        flops / r.median_us / 1e3, r.epochs, static_cast<long long>(r.batch));
    std::fflush(stdout);
  }

  const char* op_;
  Options options_;
  const std::string gpu_ = specpilot::gpus().empty() ? "" : specpilot::gpus()[0].name;
};

// "R=16 K=4096"
inline std::string shape(std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  std::string s;
  for (const auto& [name, size] : sizes) s += (s.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(size);
  return s;
}

// Equal buffers; call i uses number i modulo their count. Cache-line aligned; zero unless filled.
template <class T>
class Operand {
 public:
  enum Residence { kWarm, kStreamed };
  Operand(const Session& session, int64_t size, Residence residence = kWarm)
      : size_((size + kLine - 1) / kLine * kLine),
        streamed_(residence == kStreamed || session.options().cold),
        copies_(streamed_ ? streamed_copies(size_ * sizeof(T)) : 1),
        data_(new (std::align_val_t{64}) T[size_ * copies_]()) {}
  // One copy of these values, whatever the options: for tables of which a call reads little.
  explicit Operand(const std::vector<T>& values)
      : size_(static_cast<int64_t>(values.size())),
        streamed_(false),
        copies_(1),
        data_(new (std::align_val_t{64}) T[std::max<int64_t>(size_, 1)]) {
    std::copy(values.begin(), values.end(), data_.get());
  }
  T* operator[](int64_t call) const {
    if constexpr (cuda::kBuilt)
      if (cuda::OnDevice::active) {
        if (!device_) device_ = cuda::Copies(data_.get(), size_ * sizeof(T), streamed_);
        return static_cast<T*>(device_[call]);
      }
    return data_.get() + call % copies_ * size_;
  }

  // value(i) for element i of every copy.
  template <class Value>
  Operand& fill(Value value) {
    for (int64_t i = 0; i < size_; ++i) data_[i] = value(i);
    for (int64_t c = 1; c < copies_; ++c) std::memcpy(data_.get() + c * size_, data_.get(), size_ * sizeof(T));
    return *this;
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  static int64_t streamed_copies(int64_t bytes) {
    const int64_t cache = std::max<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), int64_t{256} << 20);
    return cache / std::max<int64_t>(bytes, 1) + 2;
  }
  int64_t size_;
  bool streamed_;
  int64_t copies_;
  std::unique_ptr<T[], Free> data_;
  mutable cuda::Copies device_;  // made when first asked for: fill before
};

// Repeatable bf16 values, roughly normal with deviation `scale`.
class Normal {
 public:
  explicit Normal(float scale, uint64_t seed = 1) : scale_(scale), state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint16_t operator()(int64_t) {
    float sum = 0;  // of four uniforms: variance 4 / 12
    for (int i = 0; i < 4; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state_ >> 40) * 0x1p-24f - 0.5f;
    }
    return specpilot::to_bf16(sum * 1.7320508f * scale_);
  }

 private:
  float scale_;
  uint64_t state_;
};
}  // namespace bench
