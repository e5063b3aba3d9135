// The rotation in vectors: pairs stay where they are, their halves swapped for the second product.
#include <vector>

#include "kernels/kernels.h"
#include "kernels/number_formats.h"
#include "kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));

// x <- x * cosines + swapped pairs of x * sines, `n` channels.
void rotate(float* x, std::int64_t n, const float* cosines, const float* sines, bool round_bf16) {
  const DF d;
  std::int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const VF pairs = hn::LoadU(d, x + i);
    const VF rotated = hn::Add(hn::Mul(pairs, hn::LoadU(d, cosines + i)),
                               hn::Mul(hn::Shuffle2301(pairs), hn::LoadU(d, sines + i)));
    hn::StoreU(round_bf16 ? round_to_bf16(d, rotated) : rotated, d, x + i);
  }
  for (; i < n; i += 2) {
    const float x0 = x[i], x1 = x[i + 1];
    const float y0 = x0 * cosines[i] + x1 * sines[i], y1 = x0 * sines[i + 1] + x1 * cosines[i];
    x[i] = round_bf16 ? kernels::round_to_bf16(y0) : y0;
    x[i + 1] = round_bf16 ? kernels::round_to_bf16(y1) : y1;
  }
}

void rope(Context& context, const RopeArgs& a) {
  context.parallel_for(a.rows, 4, [&](std::int64_t begin, std::int64_t end) {
    // Of each channel: the factor of itself, and that of its neighbour.
    std::vector<float> cosines(static_cast<std::size_t>(a.rope_dim)), sines(cosines.size());
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::size_t i = 0; i < cosines.size(); i += 2) {
        float c = 0, s = 0;
        rope_angle(a.positions[row], a.frequencies[i / 2], &c, &s);
        if (a.inverse) s = -s;
        cosines[i] = cosines[i + 1] = c;
        sines[i] = -s;
        sines[i + 1] = s;
      }
      for (std::int64_t v = 0; v < a.n_vectors; ++v) {
        rotate(a.x + (row * a.n_vectors + v) * a.dim + (a.dim - a.rope_dim), a.rope_dim,
               cosines.data(), sines.data(), a.round_bf16);
      }
    }
  });
}

}  // namespace

void use_rope(KernelTable& table) { table.rope = rope; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_rope(InstructionSet set, KernelTable& table) { CAIRN_USE(use_rope, set, table); }

}  // namespace cairn::kernels
#endif  // HWY_ONCE
