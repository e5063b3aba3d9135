#include "kernels/engram_rows.h"

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(EngramRows);

boost::json::value golden_hash() {
  std::ifstream in(CAIRN_TEST_DATA "/unit/engram_hash.json", std::ios::binary);
  return boost::json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

// A list, or a list of lists, of integers or of their decimal spellings.
void flatten(const boost::json::value& v, std::vector<std::uint64_t>& out) {
  if (v.is_array()) {
    for (const auto& item : v.as_array()) flatten(item, out);
  } else {
    out.push_back(v.is_string() ? std::stoull(std::string(v.as_string()))
                                : v.to_number<std::uint64_t>());
  }
}
std::vector<std::uint64_t> flat(const boost::json::value& v) {
  std::vector<std::uint64_t> out;
  flatten(v, out);
  return out;
}

TEST_P(EngramRows, hash_ids_are_the_golden_ones) {
  const boost::json::value json = golden_hash();
  const KernelTable& k = tested_kernels();
  const std::vector<std::uint64_t> ids = flat(json.at("compressed_ids"));
  for (const bool dead : {false, true}) {
    std::vector<std::int32_t> classes(ids.begin(), ids.end());
    if (dead) {
      for (const auto p : flat(json.at("dead_positions"))) classes[p] = kDeadClass;
    }
    const auto& golden = json.at(dead ? "hash_ids_with_dead" : "hash_ids").as_array();
    ASSERT_EQ(golden.size(), classes.size());
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const auto multipliers = flat(json.at("multipliers").at(layer));
      const auto primes = flat(json.at("primes").at(layer));
      const auto offsets = flat(json.at("offsets").at(layer));
      ASSERT_EQ(primes.size(), 24u);
      const auto rows = static_cast<std::int64_t>(classes.size());
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, rows - 1}) {
        Guarded<std::int64_t> out((rows - first) * 24);
        Context context(2);
        k.engram_hash(context, {.classes = classes.data(),
                                .first = first,
                                .rows = rows - first,
                                .pad_class = 2,
                                .max_ngram = 4,
                                .n_heads = 8,
                                .multipliers = multipliers.data(),
                                .primes = primes.data(),
                                .offsets = offsets.data(),
                                .ids = out.data()});
        EXPECT_TRUE(out.intact());
        for (std::int64_t row = first; row < rows; ++row) {
          const auto expected = flat(golden[static_cast<std::size_t>(row)].at(layer));
          ASSERT_EQ(expected.size(), 24u);
          for (std::int64_t c = 0; c < 24; ++c) {
            EXPECT_EQ(static_cast<std::uint64_t>(out.data()[(row - first) * 24 + c]),
                      expected[static_cast<std::size_t>(c)])
                << "layer " << layer << " row " << row << " column " << c;
          }
        }
      }
    }
  }
}

TEST_P(EngramRows, gather_dequantises_exactly) {
  Rng rng(80);
  const KernelTable& k = tested_kernels();
  const std::int64_t table_rows = 30, width = 64, columns = 3, rows = 11;
  const std::vector<std::uint8_t> codes = rng.e4m3_codes(table_rows * width);
  const std::vector<std::uint8_t> scales = rng.scales(table_rows * width / 32);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows * columns; ++i) ids.push_back(rng.below(table_rows));
  const std::vector<float> out = expect_row_invariant(
      rows, columns * width, [&](Context& context, std::int64_t first, std::int64_t n, float* to) {
        k.engram_gather(context, {.table = {codes.data(), scales.data(), table_rows, width},
                                  .ids = ids.data() + first * columns,
                                  .rows = n,
                                  .n_columns = columns,
                                  .out = to,
                                  .round_bf16 = true});
      });
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto row = static_cast<std::size_t>(ids[i / 64]);
    EXPECT_EQ(out[i],
              e4m3_to_f32(codes[row * 64 + i % 64]) * e8m0_to_f32(scales[row * 2 + i % 64 / 32]));
  }
}

TEST_P(EngramRows, gate_has_the_published_shape) {
  EXPECT_FLOAT_EQ(engram_gate(0.0f), 1 / (1 + std::exp(-1e-3f)));  // the floor, positive
  EXPECT_FLOAT_EQ(engram_gate(4.0f), 1 / (1 + std::exp(-2.0f)));
  EXPECT_FLOAT_EQ(engram_gate(-4.0f), 1 / (1 + std::exp(2.0f)));
}

TEST_P(EngramRows, update_follows_the_formula) {
  Rng rng(81);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t dim : {5, 32, 131}) {
    const std::int64_t streams = 4, rows = 9, width = streams * dim, kv_width = width + dim;
    const std::vector<float> h = rng.bf16_normals(rows * width),
                             kv = rng.bf16_normals(rows * kv_width);
    const std::vector<Bf16> qw = rng.bf16_weights(width), kw = rng.bf16_weights(width);
    // The gates ride along as the last four numbers of a row.
    const std::vector<float> out = expect_row_invariant(
        rows, width + streams,
        [&](Context& context, std::int64_t first, std::int64_t n, float* to) {
          Guarded<float> stream(n * width), gate(n * streams);
          std::copy_n(h.data() + first * width, n * width, stream.data());
          k.engram_update(context, {.kv = kv.data() + first * kv_width,
                                    .rows = n,
                                    .n_streams = streams,
                                    .dim = dim,
                                    .q_weight = qw.data(),
                                    .k_weight = kw.data(),
                                    .eps = 1e-20f,
                                    .h = stream.data(),
                                    .gate = gate.data()});
          EXPECT_TRUE(stream.intact() && gate.intact());
          for (std::int64_t row = 0; row < n; ++row) {
            std::copy_n(stream.data() + row * width, width, to + row * (width + streams));
            std::copy_n(gate.data() + row * streams, streams, to + row * (width + streams) + width);
          }
        });
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t s = 0; s < streams; ++s) {
        const float* stream = h.data() + row * width + s * dim;
        const float* key = kv.data() + row * kv_width + s * dim;
        const float* value = kv.data() + row * kv_width + width;
        double dot = 0, hh = 0, kk = 0;
        for (std::int64_t c = 0; c < dim; ++c) {
          const auto w = static_cast<std::size_t>(s * dim + c);
          dot += double{stream[c]} * double{to_f32(qw[w])} * double{to_f32(kw[w])} * double{key[c]};
          hh += double{stream[c]} * double{stream[c]};
          kk += double{key[c]} * double{key[c]};
        }
        const auto n = static_cast<double>(dim);
        dot *= std::pow(hh / n * (kk / n) * n, -0.5);
        const double root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot);
        const double gate = 1 / (1 + std::exp(-root));
        const float* ours = out.data() + row * (width + streams);
        // The root doubles relative errors at most where |dot| is not tiny; these are not.
        EXPECT_NEAR(ours[width + s], gate, 1e-6);
        for (std::int64_t c = 0; c < dim; ++c) {
          EXPECT_NEAR(ours[s * dim + c], double{stream[c]} + gate * double{value[c]}, 6e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
