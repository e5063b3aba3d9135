// Peaks of AVX-512 with its neural-network instructions. Compiled with their flags; nothing here
// runs on a processor without them.
#include "kernels/cpu/peak_loop.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace cairn::kernels {
namespace {

constexpr int kChains = 24;  // of 32 registers

struct Fma {
  using V = __m512;
  static V start(int i) { return _mm512_set1_ps(static_cast<float>(i)); }
  static V step(V v) { return _mm512_fmadd_ps(v, _mm512_set1_ps(0.5f), _mm512_set1_ps(1.0f)); }
  static std::int64_t low(V v) { return static_cast<std::int64_t>(_mm512_cvtss_f32(v)); }
};
struct Integers {
  using V = __m512i;
  static V start(int i) { return _mm512_set1_epi32(i); }
  static std::int64_t low(V v) { return _mm512_cvtsi512_si32(v); }
};
struct Pmaddwd : Integers {
  static V step(V v) { return _mm512_add_epi32(v, _mm512_madd_epi16(v, _mm512_set1_epi16(3))); }
};
struct Maddubs : Integers {
  static V step(V v) { return _mm512_adds_epi16(v, _mm512_maddubs_epi16(v, _mm512_set1_epi8(3))); }
};
struct Vpdpwssd : Integers {
  static V step(V v) { return _mm512_dpwssd_epi32(v, _mm512_set1_epi16(5), _mm512_set1_epi16(3)); }
};
struct Vpdpbusd : Integers {
  static V step(V v) { return _mm512_dpbusd_epi32(v, _mm512_set1_epi8(5), _mm512_set1_epi8(3)); }
};

constexpr PeakLoop kLoops[] = {
    {"f32_fma", "avx512", "GFLOP/s", 32.0 * kChains, run_chains<Fma, kChains>},
    {"pmaddwd", "avx512", "GMAC/s", 32.0 * kChains, run_chains<Pmaddwd, kChains>},
    {"maddubs", "avx512", "GMAC/s", 64.0 * kChains, run_chains<Maddubs, kChains>},
    {"vpdpwssd", "avx512", "GMAC/s", 32.0 * kChains, run_chains<Vpdpwssd, kChains>},
    {"vpdpbusd", "avx512", "GMAC/s", 64.0 * kChains, run_chains<Vpdpbusd, kChains>},
};

}  // namespace

std::span<const PeakLoop> peak_loops_avx512() {
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vnni")) return {};
  return kLoops;
}

}  // namespace cairn::kernels

#else

namespace cairn::kernels {
std::span<const PeakLoop> peak_loops_avx512() { return {}; }
}  // namespace cairn::kernels

#endif
