// Weights and rows that the benches of linear layers have in common.
#pragma once
#include <cstdint>

namespace bench {
struct LinearShape {
  int64_t n, k;
};
inline constexpr LinearShape kLinearShapes[] = {{960, 576},   {3072, 576},   {576, 1536},
                                                {49152, 576},  // SmolLM2-135M: qkv, gate|up, down, head
                                                {6144, 4096}, {24576, 4096}, {4096, 12288}};  // Qwen3-8B: qkv, gate|up, down
inline constexpr int64_t kLinearRows[] = {1, 4, 8, 16, 64, 512};
}  // namespace bench
