#include "kernels/kv_row.h"

#include <limits>

#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(KvRow);

struct Encoded {
  std::vector<std::uint8_t> codes, scales;  // one code each
  std::vector<float> values;
};

Encoded encode(RowFormat format, const std::vector<float>& x) {
  const auto dim = static_cast<std::int64_t>(x.size());
  Guarded<std::byte> row(row_bytes(format, dim));
  tested_kernels().encode_row(format, x.data(), dim, row.data());
  EXPECT_TRUE(row.intact());
  Guarded<float> values(dim);
  decode_row(format, row.data(), dim, values.data());
  EXPECT_TRUE(values.intact());
  Encoded out;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row.data());
  const std::int64_t payload = format == RowFormat::kQ8 ? dim : dim / 2;
  for (std::int64_t i = 0; i < dim; ++i) {
    out.codes.push_back(format == RowFormat::kQ8
                            ? bytes[i]
                            : static_cast<std::uint8_t>(bytes[i / 2] >> (4 * (i & 1)) & 15));
  }
  out.scales.assign(bytes + payload, bytes + row_bytes(format, dim));
  out.values = values.values();
  return out;
}

template <class T>
std::vector<std::int64_t> wide(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

// Golden groups of `group` numbers, as many at once as make a row of 32.
void expect_golden(const std::string& name, RowFormat format, std::int64_t group,
                   const std::string& scales) {
  const auto file = unit_file("quantisers");
  const golden::Tensor in = file.tensor(name + "_in"), out = file.tensor(name + "_dequant");
  const auto codes = file.integers(name + "_codes"), golden_scales = file.integers(scales);
  ASSERT_GT(in.values.size(), 0u);
  ASSERT_EQ(in.values.size() % 32, 0u);
  for (std::size_t at = 0; at < in.values.size(); at += 32) {
    const auto slice = [&](const auto& v) {
      return std::vector(v.begin() + static_cast<std::ptrdiff_t>(at),
                         v.begin() + static_cast<std::ptrdiff_t>(at) + 32);
    };
    const Encoded row = encode(format, slice(in.values));
    EXPECT_EQ(wide(row.codes), slice(codes)) << name << " at " << at;
    EXPECT_EQ(row.values, slice(out.values)) << name << " at " << at;
    for (std::size_t s = 0; s < row.scales.size(); ++s) {
      EXPECT_EQ(row.scales[s], golden_scales[at / static_cast<std::size_t>(group) + s]);
    }
  }
}

TEST_P(KvRow, quantisers_give_the_golden_codes_scales_and_values) {
  expect_golden("q8", RowFormat::kQ8, 32, "q8_scale_e8m0");
  expect_golden("qm4", RowFormat::kQm4, 32, "qm4_scale_e8m0");
  expect_golden("qn4", RowFormat::kQn4, 16, "qn4_scale_e4m3");
}

TEST_P(KvRow, main_kv_divides_in_f32_as_the_reference_does) {
  const auto file = unit_file("quantisers");
  const auto in = file.tensor("qn4_div_in").values;
  const auto f32 = file.tensor("qn4_div_fp32_division").values;
  const auto exact = file.tensor("qn4_div_exact_rounding").values;
  const Encoded row = encode(RowFormat::kQn4, in);  // six groups of 16
  EXPECT_EQ(row.values, f32);
  EXPECT_NE(row.values, exact);
}

// Spec appendix A.3.
TEST_P(KvRow, published_vectors) {
  std::vector<float> x;
  for (int i = 0; i < 32; ++i) x.push_back(static_cast<float>(37 * i % 29 - 14) / 8.0f);
  const Encoded q8 = encode(RowFormat::kQ8, x);
  const std::vector<std::uint8_t> q8_codes = {0xfe, 0xf4, 0x68, 0x7a, 0xfb, 0xec, 0x72, 0x7d,
                                              0xf8, 0x00, 0x78, 0xfd, 0xf2, 0x6c, 0x7b, 0xfa,
                                              0xe8, 0x74, 0x7e, 0xf6, 0x60, 0x79, 0xfc, 0xf0,
                                              0x70, 0x7c, 0xf9, 0xe0, 0x76, 0xfe, 0xf4, 0x68};
  EXPECT_EQ(q8.codes, q8_codes);
  EXPECT_EQ(q8.scales, std::vector<std::uint8_t>{119});
  EXPECT_EQ(q8.values, x);  // eighths below 2 are exact

  const Encoded qm4 = encode(RowFormat::kQm4, x);
  const std::vector<std::uint8_t> qm4_codes = {14, 11, 1, 4, 13, 10, 2, 5,  12, 0, 4,
                                               13, 10, 2, 5, 12, 9,  3, 6,  12, 0, 4,
                                               13, 10, 2, 5, 12, 8,  4, 14, 11, 1};
  EXPECT_EQ(qm4.codes, qm4_codes);
  EXPECT_EQ(qm4.scales, std::vector<std::uint8_t>{126});

  const Encoded qn4 = encode(RowFormat::kQn4, x);
  const std::vector<std::uint8_t> qn4_codes = {15, 13, 2, 6, 14, 11, 4, 7,  14, 0, 6,
                                               15, 12, 3, 6, 14, 10, 5, 7,  13, 1, 6,
                                               15, 12, 4, 7, 14, 9,  5, 15, 13, 2};
  EXPECT_EQ(qn4.codes, qn4_codes);
  EXPECT_EQ(qn4.scales, (std::vector<std::uint8_t>{0x29, 0x29}));
  EXPECT_EQ(qn4.values[0], -1.6875f);
}

TEST_P(KvRow, sizes_are_those_of_the_released_model) {
  EXPECT_EQ(row_bytes(RowFormat::kQ8, 512), 528);
  EXPECT_EQ(row_bytes(RowFormat::kQn4, 512), 288);
  EXPECT_EQ(row_bytes(RowFormat::kQm4, 128), 68);
  EXPECT_EQ(row_bytes(RowFormat::kF32, 512), 2048);
}

TEST_P(KvRow, zero_groups_have_the_floor_scale) {
  const std::vector<float> zero(32, 0.0f);
  EXPECT_EQ(encode(RowFormat::kQ8, zero).scales, std::vector<std::uint8_t>{105});
  EXPECT_EQ(encode(RowFormat::kQm4, zero).scales, std::vector<std::uint8_t>{1});
  EXPECT_EQ(encode(RowFormat::kQn4, zero).scales, (std::vector<std::uint8_t>{1, 1}));
  for (const RowFormat f : {RowFormat::kQ8, RowFormat::kQm4, RowFormat::kQn4}) {
    EXPECT_EQ(encode(f, zero).values, zero);
  }
}

TEST_P(KvRow, power_of_two_scales_are_idempotent) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> x = rng.normals(96);
    const float scale = std::ldexp(1.0f, static_cast<int>(rng.below(40)) - 20);
    for (float& v : x) v = round_to_bf16(v * scale);
    for (const RowFormat f : {RowFormat::kF32, RowFormat::kQ8, RowFormat::kQm4}) {
      const std::vector<float> once = encode(f, x).values;
      EXPECT_EQ(encode(f, once).values, once);
    }
  }
}

TEST_P(KvRow, values_are_bf16_and_near_the_input) {
  Rng rng(4);
  for (int i = 0; i < 200; ++i) {
    const std::vector<float> x = rng.bf16_normals(64);
    const std::vector<float> q8 = encode(RowFormat::kQ8, x).values;
    for (std::size_t c = 0; c < x.size(); ++c) {
      EXPECT_EQ(round_to_bf16(q8[c]), q8[c]);
      // Half a step of 3 mantissa bits, or half of the least step: 2^-9 of a scale at most
      // 2 * amax / 448.
      EXPECT_LE(std::fabs(q8[c] - x[c]), std::max(std::fabs(x[c]) / 16, 5.0f / 224 / 1024));
    }
  }
}

TEST_P(KvRow, rows_of_activations_are_quantised_as_cache_rows) {
  Rng rng(5);
  const std::vector<float> x = rng.bf16_normals(160);
  Guarded<std::uint8_t> codes(160), scales(5);
  quantise_q8(x.data(), 160, codes.data(), scales.data());
  EXPECT_TRUE(codes.intact() && scales.intact());
  const Encoded row = encode(RowFormat::kQ8, x);
  EXPECT_EQ(codes.values(), row.codes);
  EXPECT_EQ(scales.values(), row.scales);
}

TEST_P(KvRow, any_numbers_have_the_codes_of_the_plain_definition) {
  Rng rng(31);
  for (int trial = 0; trial < 4000; ++trial) {
    const std::int64_t dim = 32 * (1 + rng.below(5));
    std::vector<float> x(static_cast<std::size_t>(dim));
    const float size = std::ldexp(1.0f, static_cast<int>(rng.below(trial % 2 ? 12 : 240)) -
                                            static_cast<int>(trial % 2 ? 6 : 130));
    for (float& v : x) {
      v = rng.normal() * size;
      if (trial % 4 == 2) v = round_to_bf16(v);
      if (trial % 4 == 3) v = static_cast<float>(rng.below(33) - 16) * 0.25f * size;  // ties
      if (trial % 50 == 0 && rng.below(20) == 0) {
        v = std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits()));  // NaN, infinities
      }
    }
    if (trial % 100 == 1) x[3] = -std::numeric_limits<float>::infinity();
    for (const RowFormat format :
         {RowFormat::kF32, RowFormat::kQ8, RowFormat::kQm4, RowFormat::kQn4}) {
      Guarded<std::byte> ours(row_bytes(format, dim)), expected(row_bytes(format, dim));
      tested_kernels().encode_row(format, x.data(), dim, ours.data());
      encode_row(format, x.data(), dim, expected.data());
      EXPECT_TRUE(ours.intact());
      ASSERT_EQ(ours.values(), expected.values())
          << "trial " << trial << ", format " << static_cast<int>(format);
    }
  }
}

TEST_P(KvRow, activations_are_quantised_as_rows_are) {
  Rng rng(32);
  for (const std::int64_t n : {32, 64, 5120, 40000, 96000}) {
    const std::vector<float> x = rng.normals(n);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n)), scales(codes.size() / 32);
    quantise_q8(x.data(), n, codes.data(), scales.data());
    for (int threads = 1; threads <= 4; ++threads) {
      Context context(threads);
      Guarded<std::uint8_t> our_codes(n), our_scales(n / 32);
      tested_kernels().quantise_q8(
          context, {.x = x.data(), .n = n, .codes = our_codes.data(), .scales = our_scales.data()});
      EXPECT_TRUE(our_codes.intact() && our_scales.intact());
      EXPECT_EQ(our_codes.values(), codes);
      EXPECT_EQ(our_scales.values(), scales);
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
