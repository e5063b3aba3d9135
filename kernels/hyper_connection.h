// Manifold-constrained hyper-connections: coefficients, collapse, expand
// (spec/architecture.md sections 5.2 and 5.3).
#ifndef CAIRN_KERNELS_HYPER_CONNECTION_H_
#define CAIRN_KERNELS_HYPER_CONNECTION_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor_view.h"

namespace cairn::kernels {

// From the raw projections m: [rows, s*(2+s)] (already times the inverse root mean square) to
// coefficients. Split from hc_mix so that it can be checked on its own.
struct HcCoefficientsArgs {
  const float* m = nullptr;
  std::int64_t rows = 0, n_streams = 0;
  const float* scale = nullptr;  // [3]: pre, post, comb
  const float* base = nullptr;   // [s*(2+s)]
  int sinkhorn_iterations = 0;
  float eps = 0;          // added in pre and in every normalisation step
  float* pre = nullptr;   // [rows, s]
  float* post = nullptr;  // [rows, s]
  float* comb = nullptr;  // [rows, s, s], [source][destination]
};
using HcCoefficientsFn = void(Context&, const HcCoefficientsArgs&);

struct HcMixArgs {
  const float* h = nullptr;  // [rows, s, dim]
  std::int64_t rows = 0, n_streams = 0, dim = 0;
  F32View fn;  // [s*(2+s), s*dim]
  const float* scale = nullptr;
  const float* base = nullptr;
  int sinkhorn_iterations = 0;
  float eps = 0, norm_eps = 0;
  float* pre = nullptr;
  float* post = nullptr;
  float* comb = nullptr;
};
using HcMixFn = void(Context&, const HcMixArgs&);

// out = sum_s weights[s] * h[s]
struct HcCollapseArgs {
  const float* h = nullptr;        // [rows, s, dim]
  const float* weights = nullptr;  // [rows, s]
  std::int64_t rows = 0, n_streams = 0, dim = 0;
  float* out = nullptr;  // [rows, dim]
  bool round_bf16 = false;
};
using HcCollapseFn = void(Context&, const HcCollapseArgs&);

// h[j] <- post[j] * y + sum_i comb[i][j] * h[i], in place.
struct HcExpandArgs {
  const float* y = nullptr;     // [rows, dim]
  const float* post = nullptr;  // [rows, s]
  const float* comb = nullptr;  // [rows, s, s]
  std::int64_t rows = 0, n_streams = 0, dim = 0;
  float* h = nullptr;  // [rows, s, dim]
  bool round_bf16 = false;
};
using HcExpandFn = void(Context&, const HcExpandArgs&);

// What lies between two sublayers, in one pass over the streams: expansion of the last output,
// collapse and RMSNorm to the next input, and the next coefficients. Each row's streams are read
// from memory once and written once; the result is that of hc_expand, hc_collapse, rms_norm and
// hc_mix one after the other. expand.y may be null: the streams stay as they are.
struct HcPassArgs {
  HcExpandArgs expand;             // also the streams, their shape and the rounding of all parts
  const float* weights = nullptr;  // [rows, s] of the collapse
  const Bf16* norm = nullptr;      // [dim]
  float* collapsed = nullptr;      // [rows, dim]
  float* normed = nullptr;         // [rows, dim]
  HcMixArgs mix;  // of the streams in `expand`: h and the shape in here are not read. May write
                  // over expand.post and expand.comb, not over `weights`
};
using HcPassFn = void(Context&, const HcPassArgs&);

HcCoefficientsFn hc_coefficients_scalar;
HcMixFn hc_mix_scalar;
HcCollapseFn hc_collapse_scalar;
HcExpandFn hc_expand_scalar;
HcPassFn hc_pass_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_HYPER_CONNECTION_H_
