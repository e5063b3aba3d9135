#include "kernels/index_select.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(IndexSelect);

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::vector<std::int32_t> top_k(const std::vector<float>& scores, std::int64_t k) {
  Context context(1);
  Guarded<std::int32_t> out(k);
  tested_kernels().top_k(context, {.scores = scores.data(),
                                   .n = static_cast<std::int64_t>(scores.size()),
                                   .k = k,
                                   .out = out.data()});
  EXPECT_TRUE(out.intact());
  return out.values();
}

std::vector<std::uint8_t> kept_blocks(const std::vector<float>& scores, std::int64_t block_size,
                                      std::int64_t top_blocks) {
  Context context(1);
  const auto n = static_cast<std::int64_t>(scores.size());
  Guarded<std::uint8_t> kept((n + block_size - 1) / block_size);
  tested_kernels().candidate_blocks(context, {.scores = scores.data(),
                                              .n = n,
                                              .block_size = block_size,
                                              .top_blocks = top_blocks,
                                              .kept = kept.data()});
  EXPECT_TRUE(kept.intact());
  return kept.values();
}

TEST_P(IndexSelect, golden_selections) {
  const auto file = unit_file("selection");
  const golden::Tensor scores = file.tensor("score");
  const std::vector<std::int64_t> lens = file.integers("lens");
  for (std::int64_t row = 0; row < scores.rows(); ++row) {
    const auto n = lens[static_cast<std::size_t>(row)];
    std::vector<float> visible(scores.row(row), scores.row(row) + n);
    const auto list = [&](const std::string& name) {
      const golden::Tensor t = file.tensor(name);
      return std::vector<std::int32_t>(t.row(row), t.row(row) + t.row_size());
    };
    EXPECT_EQ(top_k(visible, 16), list("topk_no_candidates")) << row;
    const std::vector<std::uint8_t> kept = kept_blocks(visible, 8, 4);
    const golden::Tensor mask = file.tensor("candidate_mask");
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(kept[static_cast<std::size_t>(i / 8)], mask.row(row)[i]) << row << " " << i;
      if (!kept[static_cast<std::size_t>(i / 8)])
        visible[static_cast<std::size_t>(i)] = kMinusInfinity;
    }
    EXPECT_EQ(top_k(visible, 16), list("topk_within_candidates")) << row;
  }
}

// Scores with many ties, some of them minus infinity.
std::vector<float> tied_scores(Rng& rng, std::int64_t n) {
  std::vector<float> scores(static_cast<std::size_t>(n));
  for (float& s : scores) {
    const std::int64_t level = rng.below(7);
    s = level == 0 ? kMinusInfinity : static_cast<float>(level);
  }
  return scores;
}

TEST_P(IndexSelect, top_k_is_the_sorted_head_whatever_the_ties) {
  Rng rng(60);
  for (int trial = 0; trial < 400; ++trial) {
    const std::int64_t n = rng.below(70), k = 1 + rng.below(40);
    const std::vector<float> scores = tied_scores(rng, n);
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    std::erase_if(order, [&](std::int32_t i) {
      return scores[static_cast<std::size_t>(i)] == kMinusInfinity;
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<std::size_t>(k), -1);
    EXPECT_EQ(top_k(scores, k), order);
  }
}

TEST_P(IndexSelect, pool_keeps_the_best_blocks_and_the_newest) {
  Rng rng(61);
  for (int trial = 0; trial < 400; ++trial) {
    const std::int64_t n = 1 + rng.below(100), size = 1 + rng.below(9), top = 1 + rng.below(6);
    std::vector<float> scores(static_cast<std::size_t>(n));
    for (float& s : scores) s = static_cast<float>(rng.below(5));
    const std::int64_t n_blocks = (n + size - 1) / size;
    std::vector<std::pair<float, std::int64_t>> blocks;  // (-score, block)
    for (std::int64_t b = 0; b < n_blocks; ++b) {
      float best = kMinusInfinity;
      for (std::int64_t i = b * size; i < std::min(n, b * size + size); ++i) {
        best = std::max(best, scores[static_cast<std::size_t>(i)]);
      }
      if (b + 1 == n_blocks) best = std::numeric_limits<float>::infinity();
      blocks.emplace_back(-best, b);
    }
    std::sort(blocks.begin(), blocks.end());
    std::vector<std::uint8_t> expected(static_cast<std::size_t>(n_blocks));
    for (std::int64_t i = 0; i < std::min(top, n_blocks); ++i) {
      expected[static_cast<std::size_t>(blocks[static_cast<std::size_t>(i)].second)] = 1;
    }
    const std::vector<std::uint8_t> kept = kept_blocks(scores, size, top);
    EXPECT_EQ(kept, expected);
    EXPECT_EQ(kept.back(), 1);
  }
}

TEST_P(IndexSelect, scores_follow_the_formula_whatever_the_neighbours_and_pages) {
  Rng rng(62);
  const KernelTable& k = tested_kernels();
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kQm4}) {
    for (const bool rounded : {false, true}) {
      const std::int64_t heads = 5, dim = 64, n = 600, bytes = row_bytes(format, dim);
      const std::vector<float> q = rng.bf16_normals(heads * dim), w = rng.bf16_normals(heads);
      std::vector<std::byte> keys(static_cast<std::size_t>(n * bytes));
      for (std::int64_t j = 0; j < n; ++j) {
        encode_row(format, rng.bf16_normals(dim).data(), dim, keys.data() + j * bytes);
      }
      const auto score = [&](Context& context, const KvRows& table, std::int64_t rows, float* out) {
        k.index_scores(context, {.q = q.data(),
                                 .w = w.data(),
                                 .n_heads = heads,
                                 .dim = dim,
                                 .keys = table,
                                 .n_visible = rows,
                                 .scores = out,
                                 .round_bf16 = rounded});
      };
      // A key is a row of this kernel.
      const std::vector<float> scores = expect_row_invariant(
          n, 1, [&](Context& context, std::int64_t first, std::int64_t rows, float* out) {
            const std::byte* page = keys.data() + first * bytes;
            score(context, {&page, format}, rows, out);
          });
      for (const std::int64_t rows_per_page : {1, 7, 64, 600}) {
        const PagedRows pages(keys, format, dim, rows_per_page, /*offset=*/3 * rows_per_page);
        EXPECT_EQ(run_rows(3, 0, n, 1,
                           [&](Context& context, std::int64_t, std::int64_t rows, float* out) {
                             score(context, pages.view(), rows, out);
                           }),
                  scores)
            << rows_per_page;
      }
      const auto bf16 = [&](double x) {
        return rounded ? double{round_to_bf16(static_cast<float>(x))} : x;
      };
      for (std::int64_t j = 0; j < n; ++j) {
        std::vector<float> key(dim);
        decode_row(format, keys.data() + j * bytes, dim, key.data());
        double sum = 0, size = 0;
        for (std::int64_t head = 0; head < heads; ++head) {
          double dot = 0;
          for (std::int64_t c = 0; c < dim; ++c) {
            dot += double{q[static_cast<std::size_t>(head * dim + c)]} *
                   double{key[static_cast<std::size_t>(c)]};
          }
          const double term =
              bf16(std::max(bf16(dot), 0.0) * double{w[static_cast<std::size_t>(head)]});
          sum += term;
          size += std::fabs(term);
        }
        // Each term may go the other way at a rounding boundary only; sums of five in f32.
        EXPECT_NEAR(scores[static_cast<std::size_t>(j)], bf16(sum),
                    rounded ? 0x1p-8 * std::fabs(sum) + 1e-6 * size : 1e-6 * size);
      }
    }
  }
}

TEST_P(IndexSelect, rectified_scores_are_exactly_zero) {
  Context context(1);
  const std::vector<float> q(32, 1.0f), key(32, -1.0f), w = {3.0f};
  std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(RowFormat::kQm4, 32)));
  encode_row(RowFormat::kQm4, key.data(), 32, row.data());
  const std::byte* page = row.data();
  float score = 1;
  tested_kernels().index_scores(context, {.q = q.data(),
                                          .w = w.data(),
                                          .n_heads = 1,
                                          .dim = 32,
                                          .keys = {&page, RowFormat::kQm4},
                                          .n_visible = 1,
                                          .scores = &score,
                                          .round_bf16 = true});
  EXPECT_EQ(score, 0.0f);
}

}  // namespace
}  // namespace cairn::kernels::test
