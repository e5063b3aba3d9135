#include "kernels/compressor_pool.h"

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(CompressorPool);

TEST_P(CompressorPool, agrees_with_the_golden_vectors) {
  const auto file = unit_file("pool_router");
  const KernelTable& k = tested_kernels();
  Context context(1);
  const std::vector<float> values = file.tensor("pool_kv").values;
  const std::vector<float> gates = file.tensor("pool_score").values;
  const std::vector<float> golden = file.tensor("pool_out").values;
  Guarded<float> out(5 * 64);
  CompressorPoolArgs args{.values = values.data(),
                          .gates = gates.data(),
                          .groups = 5,
                          .ratio = 2,
                          .dim = 64,
                          .out = out.data()};
  k.compressor_pool(context, args);
  EXPECT_TRUE(out.intact());
  for (std::size_t i = 0; i < golden.size(); ++i) {
    // Two exponentials, a sum, two quotients, two products, a sum of values of this size.
    const std::size_t at = i / 64 * 128 + i % 64;
    const float size = std::fabs(values[at]) + std::fabs(values[at + 64]);
    EXPECT_NEAR(out.data()[i], golden[i], 6 * 0x1p-24 * size);
  }

  std::vector<Bf16> weight;
  for (const float w : file.tensor("pool_norm_weight").values) weight.push_back(to_bf16(w));
  args.round_bf16 = true;
  k.compressor_pool(context, args);
  k.rms_norm(context, {.x = out.data(),
                       .rows = 5,
                       .dim = 64,
                       .x_stride = 64,
                       .weight = weight.data(),
                       .eps = 1e-20f,
                       .out = out.data(),
                       .out_stride = 64,
                       .round_bf16 = true});
  EXPECT_EQ(out.values(), file.tensor("pool_latent").values);
}

TEST_P(CompressorPool, pools_any_ratio_and_is_row_invariant) {
  Rng rng(50);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t ratio : {1, 2, 4}) {
    for (const std::int64_t dim : {1, 9, 64}) {
      const std::int64_t groups = 11, width = ratio * dim;
      const std::vector<float> values = rng.normals(groups * width);
      std::vector<float> gates = rng.normals(groups * width);
      for (float& g : gates) g *= 40;  // a plain exponential of these overflows
      const std::vector<float> pooled = expect_row_invariant(
          groups, dim, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            k.compressor_pool(context, {.values = values.data() + first * width,
                                        .gates = gates.data() + first * width,
                                        .groups = n,
                                        .ratio = ratio,
                                        .dim = dim,
                                        .out = out});
          });
      for (std::int64_t i = 0; i < groups * dim; ++i) {
        double sum = 0, weights = 0;
        const std::int64_t first = i / dim * width + i % dim;
        double largest = -1e9;
        for (std::int64_t r = 0; r < ratio; ++r) {
          largest = std::max(largest, double{gates[static_cast<std::size_t>(first + r * dim)]});
        }
        for (std::int64_t r = 0; r < ratio; ++r) {
          const auto at = static_cast<std::size_t>(first + r * dim);
          const double w = std::exp(double{gates[at]} - largest);
          sum += w * double{values[at]};
          weights += w;
        }
        EXPECT_NEAR(pooled[static_cast<std::size_t>(i)], sum / weights, 4e-6);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
