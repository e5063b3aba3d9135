// The operations that make up hc_pass, for the rows of a block.
#ifndef CAIRN_KERNELS_CPU_HC_PASS_PARTS_H_
#define CAIRN_KERNELS_CPU_HC_PASS_PARTS_H_

#include <cstdint>

#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"

namespace cairn::kernels {

struct HcPassParts {
  HcExpandArgs expand;
  HcCollapseArgs collapse;
  RmsNormArgs norm;
  HcMixArgs mix;
};

// Rows [begin, end) of a pass.
inline HcPassParts hc_pass_parts(const HcPassArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t s = a.expand.n_streams, dim = a.expand.dim, rows = end - begin;
  HcPassParts parts;
  HcExpandArgs& expand = parts.expand = a.expand;
  expand.rows = rows;
  expand.h += begin * s * dim;
  if (expand.y) {
    expand.y += begin * dim;
    expand.post += begin * s;
    expand.comb += begin * s * s;
  }
  parts.collapse = {.h = expand.h,
                    .weights = a.weights + begin * s,
                    .rows = rows,
                    .n_streams = s,
                    .dim = dim,
                    .out = a.collapsed + begin * dim,
                    .round_bf16 = expand.round_bf16};
  parts.norm = {.x = parts.collapse.out,
                .rows = rows,
                .dim = dim,
                .x_stride = dim,
                .weight = a.norm,
                .eps = a.mix.norm_eps,
                .out = a.normed + begin * dim,
                .out_stride = dim,
                .round_bf16 = expand.round_bf16};
  HcMixArgs& mix = parts.mix = a.mix;
  mix.h = expand.h;
  mix.rows = rows;
  mix.n_streams = s;
  mix.dim = dim;
  mix.pre += begin * s;
  mix.post += begin * s;
  mix.comb += begin * s * s;
  return parts;
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_HC_PASS_PARTS_H_
