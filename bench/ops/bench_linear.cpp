#include <algorithm>
#include <random>

#include "formats/w12.h"
#include "harness.h"
#include "linear_cuda_layout.h"
#include "linear_shapes.h"
#include "ops/linear/linear.h"

using namespace specpilot;

namespace {
// Random words of full range; w12 with the exception rate of a real linear layer.
void run(bench::Session& session, const bench::LinearShape& s, linear::Format format) {
  const bool w12 = format == linear::Format::kW12;
  const auto name = [&](int64_t rows) {
    return bench::shape({{"R", rows}, {"N", s.n}, {"K", s.k}}) + (w12 ? " w12" : " bf16");
  };
  // Filling the weights takes longer than a measurement.
  if (std::ranges::none_of(bench::kLinearRows, [&](int64_t rows) { return session.selected(name(rows)); })) return;
  const int64_t bands = s.n / w12::kBand, tiles = s.k / w12::kTileK;
  const int64_t bytes = bands * tiles * (w12 ? w12::kTileBytes : w12::kTileWeights * 2);
  bench::Operand<uint8_t> data(session, bytes, bench::Operand<uint8_t>::kStreamed);
  bench::Normal normal(0.04f);
  std::minstd_rand random;
  uint16_t word = 0;
  data.fill([&](int64_t i) {
    if (w12) return static_cast<uint8_t>(random() >> 8);
    if (i % 2 == 0) word = normal(i);
    return static_cast<uint8_t>(i % 2 ? word >> 8 : word);
  });
  std::vector<uint32_t> begins(1, 0), places;
  constexpr int64_t kWeightsAnException = 30000;
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t weights = w12::kBand * s.k;
    for (int64_t at = random() % kWeightsAnException; at < weights; at += kWeightsAnException)
      places.push_back(static_cast<uint32_t>(at));
    begins.push_back(static_cast<uint32_t>(places.size()));
  }
  const bench::Operand<uint8_t> base(std::vector<uint8_t>(bands, 108));
  const bench::Operand<uint32_t> exc_begin(begins), exc_pos(places);
  const bench::Operand<bf16> exc_val(std::vector<bf16>(places.size(), to_bf16(0.5f)));
  const bench::CudaWeight on_cuda(session, format, s.n, s.k, bench::Operand<uint8_t>::kStreamed);
  for (const int64_t rows : bench::kLinearRows) {
    bench::Operand<bf16> x(session, rows * s.k), y(session, rows * s.n);
    x.fill(bench::Normal(1));
    session.run(name(rows), static_cast<double>(bytes) + 2.0 * rows * (s.n + s.k), 2.0 * rows * s.n * s.k,
                linear::variants(), [&, rows](int64_t i) {
                  const linear::Weight w = bench::cuda::OnDevice::active
                                               ? on_cuda[i]
                                               : linear::Weight{format,  s.n,     s.k,          bands,      tiles,
                                                                data[i], base[i], exc_begin[i], exc_pos[i], exc_val[i]};
                  return linear::Params{x[i], rows, s.k, w, nullptr, nullptr, 0, y[i], s.n, nullptr};
                });
  }
}
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("linear", argc, argv);
  for (const bench::LinearShape& s : bench::kLinearShapes)
    for (const auto format : {linear::Format::kBf16, linear::Format::kW12}) run(session, s, format);
}
