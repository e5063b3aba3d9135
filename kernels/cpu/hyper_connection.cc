#include "kernels/hyper_connection.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/hc_pass_parts.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

void normalise_columns(float* c, std::int64_t s, float eps) {
  for (std::int64_t j = 0; j < s; ++j) {
    float sum = 0;
    for (std::int64_t i = 0; i < s; ++i) sum += c[i * s + j];
    for (std::int64_t i = 0; i < s; ++i) c[i * s + j] /= sum + eps;
  }
}

void normalise_rows(float* c, std::int64_t s, float eps) {
  for (std::int64_t i = 0; i < s; ++i) {
    float sum = 0;
    for (std::int64_t j = 0; j < s; ++j) sum += c[i * s + j];
    for (std::int64_t j = 0; j < s; ++j) c[i * s + j] /= sum + eps;
  }
}

void softmax_rows(float* c, std::int64_t s, float eps) {
  for (std::int64_t i = 0; i < s; ++i) {
    float* row = c + i * s;
    const float largest = *std::max_element(row, row + s);
    float sum = 0;
    for (std::int64_t j = 0; j < s; ++j) {
      row[j] = exp_f32(row[j] - largest);
      sum += row[j];
    }
    for (std::int64_t j = 0; j < s; ++j) row[j] = row[j] / sum + eps;
  }
}

}  // namespace

void hc_coefficients_scalar(Context&, const HcCoefficientsArgs& a) {
  const std::int64_t s = a.n_streams, n = s * (2 + s);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* m = a.m + row * n;
    float* comb = a.comb + row * s * s;
    for (std::int64_t i = 0; i < s; ++i) {
      a.pre[row * s + i] = sigmoid_f32(m[i] * a.scale[0] + a.base[i]) + a.eps;
      a.post[row * s + i] = 2.0f * sigmoid_f32(m[s + i] * a.scale[1] + a.base[s + i]);
    }
    for (std::int64_t i = 0; i < s * s; ++i) {
      comb[i] = m[2 * s + i] * a.scale[2] + a.base[2 * s + i];
    }
    softmax_rows(comb, s, a.eps);  // iteration 1 of sinkhorn_iterations
    normalise_columns(comb, s, a.eps);
    for (int iteration = 1; iteration < a.sinkhorn_iterations; ++iteration) {
      normalise_rows(comb, s, a.eps);
      normalise_columns(comb, s, a.eps);
    }
  }
}

void hc_mix_scalar(Context& context, const HcMixArgs& a) {
  const std::int64_t n = a.n_streams * (2 + a.n_streams), width = a.n_streams * a.dim;
  std::vector<float> m(static_cast<std::size_t>(a.rows * n));
  context.parallel_for(a.rows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* v = a.h + row * width;
      const float mean_square = dot_f32(v, v, width) / static_cast<float>(width);
      const float r = 1.0f / std::sqrt(mean_square + a.norm_eps);
      for (std::int64_t i = 0; i < n; ++i) {
        m[static_cast<std::size_t>(row * n + i)] = dot_f32(a.fn.data + i * width, v, width) * r;
      }
    }
  });
  hc_coefficients_scalar(context, {.m = m.data(),
                                   .rows = a.rows,
                                   .n_streams = a.n_streams,
                                   .scale = a.scale,
                                   .base = a.base,
                                   .sinkhorn_iterations = a.sinkhorn_iterations,
                                   .eps = a.eps,
                                   .pre = a.pre,
                                   .post = a.post,
                                   .comb = a.comb});
}

void hc_collapse_scalar(Context& context, const HcCollapseArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* weights = a.weights + row * a.n_streams;
      const float* h = a.h + row * a.n_streams * a.dim;
      for (std::int64_t i = 0; i < a.dim; ++i) {
        float sum = 0;
        for (std::int64_t s = 0; s < a.n_streams; ++s) sum += weights[s] * h[s * a.dim + i];
        a.out[row * a.dim + i] = a.round_bf16 ? round_to_bf16(sum) : sum;
      }
    }
  });
}

void hc_expand_scalar(Context& context, const HcExpandArgs& a) {
  const std::int64_t n = a.n_streams;
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> mixed(static_cast<std::size_t>(n));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* post = a.post + row * n;
      const float* comb = a.comb + row * n * n;
      float* h = a.h + row * n * a.dim;
      for (std::int64_t c = 0; c < a.dim; ++c) {
        const float y = a.y[row * a.dim + c];
        for (std::int64_t j = 0; j < n; ++j) {
          float sum = 0;
          for (std::int64_t i = 0; i < n; ++i) sum += comb[i * n + j] * h[i * a.dim + c];
          mixed[static_cast<std::size_t>(j)] = post[j] * y + sum;
        }
        for (std::int64_t j = 0; j < n; ++j) {
          const float value = mixed[static_cast<std::size_t>(j)];
          h[j * a.dim + c] = a.round_bf16 ? round_to_bf16(value) : value;
        }
      }
    }
  });
}

void hc_pass_scalar(Context& context, const HcPassArgs& a) {
  const HcPassParts parts = hc_pass_parts(a, 0, a.expand.rows);
  if (parts.expand.y) hc_expand_scalar(context, parts.expand);
  hc_collapse_scalar(context, parts.collapse);
  rms_norm_scalar(context, parts.norm);
  hc_mix_scalar(context, parts.mix);
}

}  // namespace cairn::kernels
