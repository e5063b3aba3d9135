#include "kernels/rope.h"

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(Rope);

struct Setting {
  const char* name;
  int rope_dim;
  double theta;
  YarnParams yarn;
};

const Setting kSettings[] = {
    {"real_window", 64, 10000, {}},
    {"real_compress", 64, 160000, {16, 32, 1, 65536}},
    {"tiny_a_window", 16, 10000, {}},
    {"tiny_a_compress", 16, 160000, {16, 32, 1, 256}},
};

TEST_P(Rope, frequencies_and_angles_are_the_golden_ones) {
  const auto file = unit_file("rope");
  const std::vector<std::int64_t> positions = file.integers("positions");
  for (const Setting& s : kSettings) {
    const std::string name = s.name;
    const std::vector<float> golden = file.tensor(name + ".freqs").values;
    const std::vector<float> ours = rope_frequencies(s.rope_dim, s.theta, s.yarn);
    ASSERT_EQ(ours.size(), golden.size());
    // The last digit belongs to the implementation of pow.
    for (std::size_t i = 0; i < golden.size(); ++i) {
      EXPECT_LE(ulps(ours[i], golden[i]), 2) << name << " " << i;
    }
    const std::vector<float> cosines = file.tensor(name + ".cos").values;
    const std::vector<float> sines = file.tensor(name + ".sin").values;
    for (std::size_t p = 0; p < positions.size(); ++p) {
      for (std::size_t i = 0; i < golden.size(); ++i) {
        float c = 0, sine = 0;
        rope_angle(positions[p], golden[i], &c, &sine);
        EXPECT_LE(ulps(c, cosines[p * golden.size() + i]), 1) << name << " " << positions[p];
        EXPECT_LE(ulps(sine, sines[p * golden.size() + i]), 1) << name << " " << positions[p];
      }
    }
  }
}

// Spec appendix A.5.
TEST_P(Rope, published_frequencies) {
  const std::vector<float> plain = rope_frequencies(64, 10000, {});
  EXPECT_FLOAT_EQ(plain[1], 0.749894202f);
  EXPECT_FLOAT_EQ(plain[7], 0.133352146f);
  EXPECT_FLOAT_EQ(plain[31], 0.000133352146f);
  const std::vector<float> yarn = rope_frequencies(64, 160000, {16, 32, 1, 65536});
  EXPECT_FLOAT_EQ(yarn[15], 0.00363553851f);  // the last without interpolation
  EXPECT_FLOAT_EQ(yarn[16], 0.00226562493f);
  EXPECT_FLOAT_EQ(yarn[24], 1.95312532e-05f);
  EXPECT_FLOAT_EQ(yarn[31], 5.6805294e-07f);
}

TEST_P(Rope, rotates_as_the_golden_vectors_and_back) {
  const auto file = unit_file("rope");
  const std::vector<std::int64_t> positions = file.integers("positions");
  const std::vector<float> frequencies = file.tensor("real_compress.freqs").values;
  const KernelTable& k = tested_kernels();
  Context context(1);
  std::vector<float> x = file.tensor("apply_in").values;
  RopeArgs args{.x = x.data(),
                .rows = static_cast<std::int64_t>(positions.size()),
                .n_vectors = 4,
                .dim = 64,
                .rope_dim = 64,
                .frequencies = frequencies.data(),
                .positions = positions.data(),
                .round_bf16 = true};
  k.rope(context, args);
  EXPECT_EQ(x, file.tensor("apply_out").values);
  args.inverse = true;
  k.rope(context, args);
  EXPECT_EQ(x, file.tensor("apply_inverse_of_out").values);
}

TEST_P(Rope, touches_the_last_channels_only_and_is_row_invariant) {
  Rng rng(22);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t rope_dim : {2, 16, 64}) {
    const std::int64_t dim = 80, n_vectors = 3, rows = 37, width = n_vectors * dim;
    const std::vector<float> x = rng.normals(rows * width);
    const std::vector<float> frequencies = rope_frequencies(static_cast<int>(rope_dim), 10000, {});
    std::vector<std::int64_t> positions;
    for (std::int64_t row = 0; row < rows; ++row) positions.push_back(rng.below(1 << 20));
    const std::vector<float> y = expect_row_invariant(
        rows, width, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
          std::copy_n(x.data() + first * width, n * width, out);
          k.rope(context, {.x = out,
                           .rows = n,
                           .n_vectors = n_vectors,
                           .dim = dim,
                           .rope_dim = rope_dim,
                           .frequencies = frequencies.data(),
                           .positions = positions.data() + first});
        });
    for (std::size_t i = 0; i < x.size(); i += 2) {
      if (static_cast<std::int64_t>(i) % dim < dim - rope_dim) {
        EXPECT_EQ(y[i], x[i]);
        EXPECT_EQ(y[i + 1], x[i + 1]);
      } else {  // a rotation keeps the length
        EXPECT_NEAR(std::hypot(y[i], y[i + 1]), std::hypot(x[i], x[i + 1]),
                    8 * 0x1p-24 * std::hypot(x[i], x[i + 1]));
      }
    }
  }
}

TEST_P(Rope, position_zero_changes_nothing) {
  const KernelTable& k = tested_kernels();
  Context context(1);
  Rng rng(23);
  const std::vector<float> x = rng.bf16_normals(64), f = rope_frequencies(64, 10000, {});
  std::vector<float> y = x;
  const std::int64_t position = 0;
  k.rope(context, {.x = y.data(),
                   .rows = 1,
                   .dim = 64,
                   .rope_dim = 64,
                   .frequencies = f.data(),
                   .positions = &position,
                   .round_bf16 = true});
  EXPECT_EQ(x, y);
}

}  // namespace
}  // namespace cairn::kernels::test
