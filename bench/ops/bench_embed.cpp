#include "formats/w12.h"
#include "harness.h"
#include "linear_cuda_layout.h"
#include "ops/embed/embed.h"

using namespace specpilot;

namespace {
struct Model {
  int64_t hidden, vocab;
};
constexpr Model kModels[] = {{576, 49152}, {4096, 151936}};  // SmolLM2-135M, Qwen3-8B

// Rows lie all over the table, so it is its size, not a rotation of copies, that makes them come from memory.
void run(bench::Session& session, const Model& m, linear::Format format) {
  const bool w12 = format == linear::Format::kW12;
  const int64_t bands = m.vocab / w12::kBand, tiles = m.hidden / w12::kTileK;
  const int64_t tile_bytes = w12 ? w12::kTileBytes : w12::kTileWeights * 2;
  const bench::Operand<uint8_t> data(std::vector<uint8_t>(bands * tiles * tile_bytes, 0x11));
  const bench::Operand<uint8_t> base(std::vector<uint8_t>(bands, 110));
  const bench::Operand<uint32_t> exc_begin(std::vector<uint32_t>(bands + 1, 0));
  const bench::CudaWeight on_cuda(session, format, m.vocab, m.hidden, bench::Operand<uint8_t>::kWarm);
  for (const int64_t rows : {1, 16, 64}) {
    constexpr int64_t kSteps = 512;
    std::vector<int32_t> steps(rows * kSteps);
    for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<int32_t>(i * 2654435761u % m.vocab);
    const bench::Operand<int32_t> ids(steps);
    bench::Operand<bf16> out(session, rows * m.hidden);
    session.run(bench::shape({{"R", rows}, {"K", m.hidden}, {"N", m.vocab}}) + (w12 ? " w12" : " bf16"),
                (w12 ? 3.5 : 4.0) * rows * m.hidden, 0, embed::variants(), [&, rows](int64_t i) {
                  const linear::Weight table = bench::cuda::OnDevice::active
                                                   ? on_cuda[i]
                                                   : linear::Weight{format,  m.vocab, m.hidden,     bands,   tiles,
                                                                    data[i], base[i], exc_begin[i], nullptr, nullptr};
                  return embed::Params{ids[i] + i % kSteps * rows, rows, table, out[i], m.hidden, nullptr};
                });
  }
}
}  // namespace

int main(int argc, char** argv) {
  bench::Session session("embed", argc, argv);
  for (const Model& m : kModels)
    for (const auto format : {linear::Format::kBf16, linear::Format::kW12}) run(session, m, format);
}
