// Peaks of the instruction set that the whole library is compiled for.
#include "kernels/cpu/peak_loop.h"

#if defined(__SSSE3__)
#include <tmmintrin.h>
#endif

namespace cairn::kernels {
namespace {

constexpr int kChains = 13;

struct MultiplyAdd {
  typedef float V __attribute__((vector_size(16)));
  static V start(int i) { return V{} + static_cast<float>(i); }
  static V step(V v) { return v * V{0.5f, 0.5f, 0.5f, 0.5f} + V{1, 1, 1, 1}; }
  static std::int64_t low(V v) { return static_cast<std::int64_t>(v[0]); }
};

#if defined(__SSSE3__)
struct Integers {
  using V = __m128i;
  static V start(int i) { return _mm_set1_epi32(i); }
  static std::int64_t low(V v) { return _mm_cvtsi128_si32(v); }
};
struct Pmaddwd : Integers {
  static V step(V v) { return _mm_add_epi32(v, _mm_madd_epi16(v, _mm_set1_epi16(3))); }
};
struct Maddubs : Integers {
  static V step(V v) { return _mm_adds_epi16(v, _mm_maddubs_epi16(v, _mm_set1_epi8(3))); }
};
#endif

constexpr PeakLoop kLoops[] = {
#if defined(__SSSE3__)
    {"pmaddwd", "sse4", "GMAC/s", 8.0 * kChains, run_chains<Pmaddwd, kChains>},
    {"maddubs", "sse4", "GMAC/s", 16.0 * kChains, run_chains<Maddubs, kChains>},
    {"f32_fma", "sse4", "GFLOP/s", 8.0 * kChains, run_chains<MultiplyAdd, kChains>},
#else
    {"f32_fma", "baseline", "GFLOP/s", 8.0 * kChains, run_chains<MultiplyAdd, kChains>},
#endif
};

}  // namespace

std::span<const PeakLoop> peak_loops_baseline() { return kLoops; }

}  // namespace cairn::kernels
