// Weights of random words in the CUDA run layouts (formats/w12_cuda.h), for the benches of ops that read them.
#pragma once
#include <optional>
#include <random>

#include "formats/w12_cuda.h"
#include "harness.h"
#include "ops/linear/linear.h"

namespace bench {
// In device memory; nothing where no GPU can be used.
class CudaWeight {
 public:
  CudaWeight(const Session& session, specpilot::linear::Format format, int64_t n, int64_t k,
             Operand<uint8_t>::Residence residence)
      : format_(format), n_(n), k_(k), plan_(specpilot::w12_cuda::plan(n, k)) {
    if (!cuda::kBuilt || specpilot::gpus().empty()) return;
    const int64_t tile =
        format == specpilot::linear::Format::kW12 ? specpilot::w12_cuda::kTileBytes : specpilot::w12_cuda::kBf16TileBytes;
    data_.emplace(session, int64_t{plan_.groups} * plan_.steps * plan_.tiles * tile, residence);
    std::minstd_rand random;
    Normal normal(0.04f);
    uint16_t word = 0;
    uint32_t header[4] = {};
    data_->fill([&](int64_t i) {
      const int64_t at = i % tile;
      if (format == specpilot::linear::Format::kBf16) {
        if (at % 2 == 0) word = normal(i);
        return static_cast<uint8_t>(at % 2 ? word >> 8 : word);
      }
      if (at == 0) {  // three tiles in ten have an exception, as in a trained linear layer
        const uint32_t count = random() % 10 < 3;
        header[0] = 108 | count << 16, header[1] = random() % 1024 | 0x3f00u << 16;
      }
      if (at < specpilot::w12_cuda::kHeaderBytes) return static_cast<uint8_t>(header[at / 4] >> at % 4 * 8);
      return static_cast<uint8_t>(random() >> 8);
    });
  }

  specpilot::linear::Weight operator[](int64_t call) const {
    return {format_, n_, k_, plan_.groups, plan_.steps, (*data_)[call], nullptr, nullptr, nullptr, nullptr};
  }

 private:
  specpilot::linear::Format format_;
  int64_t n_, k_;
  specpilot::w12_cuda::Plan plan_;
  std::optional<Operand<uint8_t>> data_;
};
}  // namespace bench
