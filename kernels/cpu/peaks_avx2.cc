// Peaks of AVX2. Compiled with its flags; nothing here runs on a processor without it.
#include "kernels/cpu/peak_loop.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace cairn::kernels {
namespace {

// As many chains as registers allow beside the operands: latency x throughput is 8 to 12.
constexpr int kChains = 13;

struct Fma {
  using V = __m256;
  static V start(int i) { return _mm256_set1_ps(static_cast<float>(i)); }
  static V step(V v) { return _mm256_fmadd_ps(v, _mm256_set1_ps(0.5f), _mm256_set1_ps(1.0f)); }
  static std::int64_t low(V v) { return static_cast<std::int64_t>(_mm256_cvtss_f32(v)); }
};
struct Integers {
  using V = __m256i;
  static V start(int i) { return _mm256_set1_epi32(i); }
  static std::int64_t low(V v) { return _mm256_extract_epi32(v, 0); }
};
struct Pmaddwd : Integers {
  static V step(V v) { return _mm256_add_epi32(v, _mm256_madd_epi16(v, _mm256_set1_epi16(3))); }
};
struct Maddubs : Integers {
  static V step(V v) { return _mm256_adds_epi16(v, _mm256_maddubs_epi16(v, _mm256_set1_epi8(3))); }
};

constexpr PeakLoop kLoops[] = {
    {"f32_fma", "avx2", "GFLOP/s", 16.0 * kChains, run_chains<Fma, kChains>},
    {"pmaddwd", "avx2", "GMAC/s", 16.0 * kChains, run_chains<Pmaddwd, kChains>},
    {"maddubs", "avx2", "GMAC/s", 32.0 * kChains, run_chains<Maddubs, kChains>},
};

}  // namespace

std::span<const PeakLoop> peak_loops_avx2() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return {};
  return kLoops;
}

}  // namespace cairn::kernels

#else

namespace cairn::kernels {
std::span<const PeakLoop> peak_loops_avx2() { return {}; }
}  // namespace cairn::kernels

#endif
