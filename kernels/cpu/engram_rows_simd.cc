// Engram rows and updates in vectors, operation by operation those of engram_rows.cc.
#include <cmath>
#include <vector>

#include "kernels/engram_rows.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/engram_rows_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/decode_row_simd.h"
#include "kernels/cpu/lane_sum_simd.h"
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

void engram_gather(Context& context, const EngramGatherArgs& a) {
  const std::int64_t width = a.table.cols;
  context.parallel_for(a.rows * a.n_columns, 256, [&](std::int64_t begin, std::int64_t end) {
    const DF d;
    for (std::int64_t i = begin; i < end; ++i) {
      float* out = a.out + i * width;
      decode_q8(d, a.table.codes + a.ids[i] * width, a.table.scales + a.ids[i] * (width / 32),
                width, out);
      if (!a.round_bf16) continue;
      for (std::int64_t c = 0; c < width; c += kN) {
        hn::StoreU(round_to_bf16(d, hn::LoadU(d, out + c)), d, out + c);
      }
    }
  });
}

// h += gate * value, the gate from the normalised product of h and key. All [dim].
float update_stream(const EngramUpdateArgs& a, const float* key, const float* value,
                    std::int64_t stream, float* h, float* weighted) {
  const DF d;
  const Bf16* q_weight = a.q_weight + stream * a.dim;
  const Bf16* k_weight = a.k_weight + stream * a.dim;
  for (std::int64_t c = 0; c < a.dim; c += kN) {
    const VF weight = hn::Mul(load_bf16(d, q_weight + c), load_bf16(d, k_weight + c));
    hn::StoreU(hn::Mul(hn::LoadU(d, h + c), weight), d, weighted + c);
  }
  const auto dim = static_cast<float>(a.dim);
  const float scale = static_cast<float>(std::pow(static_cast<double>(a.dim), -0.5));
  const float h_root = 1.0f / std::sqrt(dot_f32(h, h, a.dim) / dim + a.eps);
  const float key_root = 1.0f / std::sqrt(dot_f32(key, key, a.dim) / dim + a.eps);
  const float gate = engram_gate(dot_f32(weighted, key, a.dim) * h_root * key_root * scale);
  for (std::int64_t c = 0; c < a.dim; c += kN) {
    const VF updated =
        hn::Add(hn::LoadU(d, h + c), hn::Mul(hn::Set(d, gate), hn::LoadU(d, value + c)));
    hn::StoreU(a.round_bf16 ? round_to_bf16(d, updated) : updated, d, h + c);
  }
  return gate;
}

void engram_update(Context& context, const EngramUpdateArgs& a) {
  if (a.dim % kN != 0) return engram_update_scalar(context, a);
  context.parallel_for(a.rows, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weighted(static_cast<std::size_t>(a.dim));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* kv = a.kv + row * (a.n_streams + 1) * a.dim;
      for (std::int64_t s = 0; s < a.n_streams; ++s) {
        a.gate[row * a.n_streams + s] =
            update_stream(a, kv + s * a.dim, kv + a.n_streams * a.dim, s,
                          a.h + (row * a.n_streams + s) * a.dim, weighted.data());
      }
    }
  });
}

}  // namespace

void use_engram_rows(KernelTable& table) {
  table.engram_gather = engram_gather;
  table.engram_update = engram_update;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_engram_rows(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_engram_rows, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
