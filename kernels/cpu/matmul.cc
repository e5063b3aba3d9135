// Scalar matrix products. Each output column decodes its weight row once and is then dotted with
// every activation row, so weights are read once per call. Threads share out output columns.
#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/lane_sum.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

// Multiply-adds below which another thread costs more to wake than it saves (about 20 us).
constexpr std::int64_t kWorkGrain = 1 << 17;

// The least number of output columns for one thread.
std::int64_t column_grain(std::int64_t rows, std::int64_t cols) {
  return std::max<std::int64_t>(1, kWorkGrain / std::max<std::int64_t>(1, rows * cols));
}

void store(const MatmulOut& out, std::int64_t row, std::int64_t column, float value) {
  out.y[row * out.y_stride + column] = out.round_bf16 ? round_to_bf16(value) : value;
}

std::uint8_t fp4_code(const Fp4View& w, std::int64_t row, std::int64_t column) {
  const std::uint8_t pair = w.codes[row * (w.cols / 2) + column / 2];
  return static_cast<std::uint8_t>((pair >> (4 * (column & 1))) & 15);
}

// decode(row, buffer) fills [cols] f32 of one weight row.
template <class Args, class Decode>
void matmul_decoded(Context& context, const Args& a, const Decode& decode) {
  context.parallel_for(
      a.w.rows, column_grain(a.rows, a.w.cols), [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> weights(static_cast<std::size_t>(a.w.cols));
        for (std::int64_t column = begin; column < end; ++column) {
          decode(column, weights.data());
          for (std::int64_t row = 0; row < a.rows; ++row) {
            store(a.out, row, column, dot_f32(a.x + row * a.x_stride, weights.data(), a.w.cols));
          }
        }
      });
}

// Calls dot(row, column, block) for a float and adds it up as matmul.h says: fused, times the
// product of scales.
template <class Args, class Dot, class Scale>
void add_blocks(const Args& a, std::int64_t column, float x_scale_unit, const Scale& w_scale,
                const Dot& dot) {
  const std::int64_t n_blocks = a.w.cols / 32;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    float sum = 0;
    for (std::int64_t block = 0; block < n_blocks; ++block) {
      const float x_scale = e8m0_to_f32(a.x.scales[row * n_blocks + block]) * x_scale_unit;
      sum = std::fma(dot(row, block), x_scale * w_scale(block), sum);
    }
    store(a.out, row, column, sum);
  }
}

}  // namespace

void matmul_fp8_q8_scalar(Context& context, const MatmulFp8Q8Args& a) {
  const std::int64_t cols = a.w.cols;
  context.parallel_for(
      a.w.rows, column_grain(a.rows, cols), [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> weights(static_cast<std::size_t>(cols));
        for (std::int64_t column = begin; column < end; ++column) {
          for (std::int64_t k = 0; k < cols; ++k) {
            weights[static_cast<std::size_t>(k)] = e4m3_to_f32(a.w.codes[column * cols + k]);
          }
          const auto scale = [&](std::int64_t block) {
            return e8m0_to_f32(a.w.scales[(column / 32) * (cols / 32) + block]);
          };
          add_blocks(a, column, 1.0f, scale, [&](std::int64_t row, std::int64_t block) {
            const std::uint8_t* x = a.x.codes + row * cols + 32 * block;
            const float* w = weights.data() + 32 * block;
            float sum = 0;
            for (int k = 0; k < 32; ++k) sum += e4m3_to_f32(x[k]) * w[k];  // the product is exact
            return sum;
          });
        }
      });
}

void matmul_fp4_q8_scalar(Context& context, const MatmulFp4Q8Args& a) {
  const std::int64_t cols = a.w.cols;
  context.parallel_for(
      a.w.rows, column_grain(a.rows, cols), [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> weights(static_cast<std::size_t>(cols));
        for (std::int64_t column = begin; column < end; ++column) {
          for (std::int64_t k = 0; k < cols; ++k) {
            weights[static_cast<std::size_t>(k)] =
                static_cast<double>(e2m1_to_f32(fp4_code(a.w, column, k)));
          }
          const auto scale = [&](std::int64_t block) {
            return e8m0_to_f32(a.w.scales[column * (cols / 32) + block]);
          };
          add_blocks(a, column, 0x1p-10f, scale, [&](std::int64_t row, std::int64_t block) {
            const std::uint8_t* x = a.x.codes + row * cols + 32 * block;
            const double* w = weights.data() + 32 * block;
            double sum = 0;  // exact
            for (int k = 0; k < 32; ++k) sum += static_cast<double>(e4m3_to_f32(x[k])) * w[k];
            return static_cast<float>(sum * 0x1p10);
          });
        }
      });
}

void matmul_fp8_scalar(Context& context, const MatmulFp8Args& a) {
  matmul_decoded(context, a, [&](std::int64_t row, float* weights) {
    for (std::int64_t k = 0; k < a.w.cols; ++k) {
      weights[k] = e4m3_to_f32(a.w.codes[row * a.w.cols + k]) *
                   e8m0_to_f32(a.w.scales[(row / 32) * (a.w.cols / 32) + k / 32]);
    }
  });
}

void matmul_fp4_scalar(Context& context, const MatmulFp4Args& a) {
  matmul_decoded(context, a, [&](std::int64_t row, float* weights) {
    for (std::int64_t k = 0; k < a.w.cols; ++k) {
      weights[k] = e2m1_to_f32(fp4_code(a.w, row, k)) *
                   e8m0_to_f32(a.w.scales[row * (a.w.cols / 32) + k / 32]);
    }
  });
}

void matmul_bf16_scalar(Context& context, const MatmulBf16Args& a) {
  matmul_decoded(context, a, [&](std::int64_t row, float* weights) {
    for (std::int64_t k = 0; k < a.w.cols; ++k) weights[k] = to_f32(a.w.data[row * a.w.cols + k]);
  });
}

void matmul_f32_scalar(Context& context, const MatmulF32Args& a) {
  context.parallel_for(
      a.w.rows, column_grain(a.rows, a.w.cols), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin; column < end; ++column) {
          for (std::int64_t row = 0; row < a.rows; ++row) {
            store(a.out, row, column,
                  dot_f32(a.x + row * a.x_stride, a.w.data + column * a.w.cols, a.w.cols));
          }
        }
      });
}

}  // namespace cairn::kernels
