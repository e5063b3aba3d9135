// Hyper-connections in vectors. Channels are the lanes of collapse and expand; the projections of
// hc_mix are the eight f64 lanes of lane_sum.h, a few rows and outputs at a time so that a number
// is widened once for several products. One row's projections are shared out among threads by
// outputs: they read two megabytes of weights at released shapes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/hc_pass_parts.h"
#include "kernels/hyper_connection.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper_connection_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/lane_sum_simd.h"
#include "kernels/cpu/normalise_row_simd.h"
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
constexpr std::int64_t kStreams = 4;  // of the model family; other counts are the scalar version's

// --- hc_mix --------------------------------------------------------------------------------------

using D64 = hn::CappedTag<double, 8>;
using D32 = hn::Rebind<float, D64>;
using V64 = hn::Vec<D64>;
constexpr std::int64_t kPer = static_cast<std::int64_t>(hn::MaxLanes(D64()));
constexpr std::int64_t kParts = 8 / kPer;  // vectors of one sum's lanes
constexpr int kOutputs = 4;                // at a time; divides 24
constexpr int kRows = kParts == 1 ? 2 : 1;

float tree(const V64 (&lanes)[kParts]) {
  HWY_ALIGN double l[8];
  for (std::int64_t i = 0; i < kParts; ++i) hn::Store(lanes[i], D64(), l + i * kPer);
  return static_cast<float>(((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
}

// out[r * stride + o] = weights[o] . rows[r], both `width` long, a multiple of 8.
template <int n_rows, int n_outputs>
HWY_NOINLINE void project(const float* HWY_RESTRICT rows, const float* HWY_RESTRICT weights,
                          std::int64_t width, float* out, std::int64_t stride) {
  const D64 d;
  const D32 d32;
  V64 sums[n_rows][n_outputs][kParts];
  for (auto& row : sums) {
    for (auto& output : row) {
      for (V64& part : output) part = hn::Zero(d);
    }
  }
  for (std::int64_t k = 0; k < width; k += 8) {
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t at = k + part * kPer;
      V64 x[n_rows];
      for (int r = 0; r < n_rows; ++r) {
        x[r] = hn::PromoteTo(d, hn::LoadU(d32, rows + r * width + at));
      }
      for (int o = 0; o < n_outputs; ++o) {
        const V64 weight = hn::PromoteTo(d, hn::LoadU(d32, weights + o * width + at));
        for (int r = 0; r < n_rows; ++r) {
          sums[r][o][part] = hn::MulAdd(weight, x[r], sums[r][o][part]);
        }
      }
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int o = 0; o < n_outputs; ++o) out[r * stride + o] = tree(sums[r][o]);
  }
}

// Outputs [begin, end) of all rows.
void project_outputs(const HcMixArgs& a, std::int64_t begin, std::int64_t end, std::int64_t n,
                     float* out) {
  const std::int64_t width = a.n_streams * a.dim;
  std::int64_t o = begin;
  const auto rows = [&]<int n_outputs>() {
    const float* weights = a.fn.data + o * width;
    std::int64_t row = 0;
    for (; row + kRows <= a.rows; row += kRows) {
      project<kRows, n_outputs>(a.h + row * width, weights, width, out + row * n + o, n);
    }
    for (; row < a.rows; ++row) {
      project<1, n_outputs>(a.h + row * width, weights, width, out + row * n + o, n);
    }
  };
  for (; o + kOutputs <= end; o += kOutputs) rows.template operator()<kOutputs>();
  for (; o < end; ++o) rows.template operator()<1>();
}

// Coefficients of the row at `row` from its raw projections m.
void finish_mix(Context& context, const HcMixArgs& a, std::int64_t row, float* m) {
  const std::int64_t s = a.n_streams, n = s * (2 + s), width = s * a.dim;
  const float* v = a.h + row * width;
  const float mean_square = dot_f32(v, v, width) / static_cast<float>(width);
  const float r = 1.0f / std::sqrt(mean_square + a.norm_eps);
  for (std::int64_t i = 0; i < n; ++i) m[i] *= r;
  hc_coefficients_scalar(context, {.m = m,
                                   .rows = 1,
                                   .n_streams = s,
                                   .scale = a.scale,
                                   .base = a.base,
                                   .sinkhorn_iterations = a.sinkhorn_iterations,
                                   .eps = a.eps,
                                   .pre = a.pre + row * s,
                                   .post = a.post + row * s,
                                   .comb = a.comb + row * s * s});
}

void hc_mix(Context& context, const HcMixArgs& a) {
  const std::int64_t n = a.n_streams * (2 + a.n_streams);
  if (a.n_streams * a.dim % 8 != 0) return hc_mix_scalar(context, a);
  std::vector<float> m(static_cast<std::size_t>(a.rows * n));
  // Shared out by outputs: each reads its weights once for all rows of a piece.
  context.parallel_for(n, kOutputs, [&](std::int64_t begin, std::int64_t end) {
    project_outputs(a, begin, end, n, m.data());
  });
  context.parallel_for(a.rows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      finish_mix(context, a, row, m.data() + row * n);
    }
  });
}

// --- hc_collapse
// -----------------------------------------------------------------------------------

void collapse_row(const HcCollapseArgs& a, const float* h, const float* weights, float* out) {
  const DF d;
  std::int64_t c = 0;
  for (; c + kN <= a.dim; c += kN) {
    VF sum = hn::Zero(d);
    for (std::int64_t s = 0; s < a.n_streams; ++s) {
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[s]), hn::LoadU(d, h + s * a.dim + c)));
    }
    hn::StoreU(a.round_bf16 ? round_to_bf16(d, sum) : sum, d, out + c);
  }
  for (; c < a.dim; ++c) {
    float sum = 0;
    for (std::int64_t s = 0; s < a.n_streams; ++s) sum += weights[s] * h[s * a.dim + c];
    out[c] = a.round_bf16 ? kernels::round_to_bf16(sum) : sum;
  }
}

void hc_collapse(Context& context, const HcCollapseArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      collapse_row(a, a.h + row * a.n_streams * a.dim, a.weights + row * a.n_streams,
                   a.out + row * a.dim);
    }
  });
}

// --- hc_expand
// -------------------------------------------------------------------------------------

template <bool kRounded>
void expand_row(const float* HWY_RESTRICT y, const float* post, const float* comb, std::int64_t dim,
                float* HWY_RESTRICT h) {
  const DF d;
  const VF zero = hn::Zero(d);
  VF posts[kStreams], combs[kStreams][kStreams];
  for (std::int64_t j = 0; j < kStreams; ++j) {
    posts[j] = hn::Set(d, post[j]);
    for (std::int64_t i = 0; i < kStreams; ++i) combs[i][j] = hn::Set(d, comb[i * kStreams + j]);
  }
  for (std::int64_t c = 0; c < dim; c += kN) {
    VF stream[kStreams];
    for (std::int64_t i = 0; i < kStreams; ++i) stream[i] = hn::LoadU(d, h + i * dim + c);
    const VF value = hn::LoadU(d, y + c);
    for (std::int64_t j = 0; j < kStreams; ++j) {
      VF sum = zero;
      for (std::int64_t i = 0; i < kStreams; ++i) {
        sum = hn::Add(sum, hn::Mul(combs[i][j], stream[i]));
      }
      const VF mixed = hn::Add(hn::Mul(posts[j], value), sum);
      hn::StoreU(kRounded ? round_to_bf16(d, mixed) : mixed, d, h + j * dim + c);
    }
  }
}

void expand_one(const HcExpandArgs& a, std::int64_t row) {
  const float* y = a.y + row * a.dim;
  const float* post = a.post + row * kStreams;
  const float* comb = a.comb + row * kStreams * kStreams;
  float* h = a.h + row * kStreams * a.dim;
  a.round_bf16 ? expand_row<true>(y, post, comb, a.dim, h)
               : expand_row<false>(y, post, comb, a.dim, h);
}

bool expands(const HcExpandArgs& a) { return a.n_streams == kStreams && a.dim % kN == 0; }

void hc_expand(Context& context, const HcExpandArgs& a) {
  if (!expands(a)) return hc_expand_scalar(context, a);
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) expand_one(a, row);
  });
}

// --- hc_pass
// ---------------------------------------------------------------------------------------

// Rows whose streams stay in a core's cache between the parts of a pass: 320 KB at released shapes.
constexpr std::int64_t kPassRows = 4;

// All but the coefficients of one row.
void pass_row(const HcPassParts& parts, std::int64_t row) {
  const HcCollapseArgs& c = parts.collapse;
  if (parts.expand.y) expand_one(parts.expand, row);
  collapse_row(c, c.h + row * c.n_streams * c.dim, c.weights + row * c.n_streams,
               c.out + row * c.dim);
  normalise_row(parts.norm, parts.norm.x + row * c.dim, parts.norm.out + row * c.dim);
}

void hc_pass(Context& context, const HcPassArgs& a) {
  if (!expands(a.expand)) return hc_pass_scalar(context, a);
  const std::int64_t rows = a.expand.rows, blocks = (rows + kPassRows - 1) / kPassRows;
  if (blocks < context.n_threads()) {  // a few rows: in cache anyway, and shared out by outputs
    const HcPassParts parts = hc_pass_parts(a, 0, rows);
    for (std::int64_t row = 0; row < rows; ++row) pass_row(parts, row);
    return hc_mix(context, parts.mix);
  }
  const std::int64_t n = kStreams * (2 + kStreams);
  context.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    float m[kPassRows * kStreams * (2 + kStreams)];
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kPassRows;
      const HcPassParts parts = hc_pass_parts(a, first, std::min(rows, first + kPassRows));
      for (std::int64_t row = 0; row < parts.mix.rows; ++row) pass_row(parts, row);
      project_outputs(parts.mix, 0, n, n, m);
      for (std::int64_t row = 0; row < parts.mix.rows; ++row) {
        finish_mix(context, parts.mix, row, m + row * n);
      }
    }
  });
}

}  // namespace

void use_hyper_connection(KernelTable& table) {
  table.hc_mix = hc_mix;
  table.hc_collapse = hc_collapse;
  table.hc_expand = hc_expand;
  table.hc_pass = hc_pass;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_hyper_connection(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_hyper_connection, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
