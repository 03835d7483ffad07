// Scalar arithmetic that every variant reproduces: bf16 rounding, the flush-to-zero mode, exp, and the 16-lane fold.
//
// These are the executable definitions (docs/numerics.md); core/simd.h holds the same formulas for vector registers.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#ifdef __CUDACC__
#define SP_HD __host__ __device__
#else
#define SP_HD  // for a CPU compiler every function is the host's
#endif

namespace specpilot {
SP_HD inline float to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; a NaN becomes the quiet NaN 0x7fc0 with its sign, as torch does.
SP_HD inline uint16_t to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

SP_HD inline float round_bf16(float x) { return to_f32(to_bf16(x)); }

// Subnormal inputs and results are zero, as in the AMX unit. Scoped: the caller's threads keep their own mode.
class FlushToZero {
 public:
#if defined(__x86_64__)
  FlushToZero() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#endif
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;
#if !defined(__x86_64__)
  FlushToZero() = default;
#endif
};

// exp(x): Cody-Waite reduction by ln 2 and a degree-7 Taylor polynomial in fma form; < 2 ulp. x < -87 gives 0; x is clamped
// at 88. NaN stays NaN.
inline constexpr float kExpLow = -87.0f, kExpHigh = 88.0f, kLog2e = 1.44269504f;
inline constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
inline constexpr std::array<float, 8> kExpPoly = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                                  1.0f / 6,    0.5f,       1.0f,       1.0f};
SP_HD inline float exp_f32(float x) {
  if (x != x) return x;
  if (x < kExpLow) return 0.0f;
  x = x > kExpHigh ? kExpHigh : x;
  const float n = std::nearbyint(x * kLog2e);
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  constexpr std::array<float, 8> poly = kExpPoly;  // a copy, which device code may read
  float p = poly[0];
  for (int i = 1; i < 8; ++i) p = std::fma(p, r, poly[i]);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (static_cast<uint32_t>(static_cast<int32_t>(n)) << 23));
}

SP_HD inline float silu_f32(float g) { return g / (1.0f + exp_f32(-g)); }

// The one fold of 16 strided fp32 partials: halves added until one is left.
inline float fold16(const float* p) {
  float t[16];
  for (int i = 0; i < 16; ++i) t[i] = p[i];
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
  return t[0];
}
}  // namespace specpilot
