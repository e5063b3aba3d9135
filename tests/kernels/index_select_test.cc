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

std::vector<std::byte> packed_normals(Rng& rng, RowFormat format, std::int64_t n,
                                      std::int64_t dim) {
  const std::int64_t bytes = row_bytes(format, dim);
  std::vector<std::byte> rows(static_cast<std::size_t>(n * bytes));
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<float> x = rng.bf16_normals(dim);
    const float size = std::ldexp(1.0f, static_cast<int>(rng.below(9)) - 4);
    for (float& v : x) v *= size;
    encode_row(format, x.data(), dim, rows.data() + i * bytes);
  }
  return rows;
}

TEST_P(IndexSelect, scores_follow_the_formula_whatever_the_neighbours_and_pages) {
  Rng rng(62);
  const KernelTable& k = tested_kernels();
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kQm4}) {
    for (const bool rounded : {false, true}) {
      const std::int64_t heads = 5, dim = 64, n = 600, bytes = row_bytes(format, dim);
      std::vector<float> q(static_cast<std::size_t>(heads * dim));  // as packing leaves them
      const std::vector<float> w = rng.bf16_normals(heads);
      const std::vector<std::byte> queries = packed_normals(rng, format, heads, dim);
      for (std::int64_t head = 0; head < heads; ++head) {
        decode_row(format, queries.data() + head * bytes, dim, q.data() + head * dim);
      }
      const std::vector<std::byte> keys = packed_normals(rng, format, n, dim);
      const auto score = [&](Context& context, const KvRows& table, std::int64_t rows, float* out) {
        k.index_scores(context, {.q = queries.data(),
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
  const std::vector<float> ones(32, 1.0f), key(32, -1.0f), w = {3.0f};
  std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(RowFormat::kQm4, 32))), q = row;
  encode_row(RowFormat::kQm4, ones.data(), 32, q.data());
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

// One query against keys in pages, some blocks of them left out of the pool.
struct Search {
  std::int64_t n_heads = 0, dim = 0, n = 0, rows_per_page = 0, offset = 0, block_size = 0;
  std::vector<std::byte> q{}, keys{};
  std::vector<float> w{};
  std::vector<std::uint8_t> kept{};
  bool rounded = false;

  std::vector<float> scores(const KernelTable& k, int threads) const {
    const PagedRows pages(keys, RowFormat::kQm4, dim, rows_per_page, offset);
    return run_rows(threads, 0, n, 1,
                    [&](Context& context, std::int64_t, std::int64_t, float* out) {
                      k.index_scores(context, {.q = q.data(),
                                               .w = w.data(),
                                               .n_heads = n_heads,
                                               .dim = dim,
                                               .keys = pages.view(),
                                               .n_visible = n,
                                               .kept = kept.empty() ? nullptr : kept.data(),
                                               .block_size = block_size,
                                               .scores = out,
                                               .round_bf16 = rounded});
                    });
  }
};

bool same_bits_or_nan(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

TEST_P(IndexSelect, any_search_has_the_scores_of_the_plain_definition) {
  Rng rng(63);
  const KernelTable scalar = select_kernels(InstructionSet::kScalar);
  for (int trial = 0; trial < 60; ++trial) {
    Search s{.n_heads = 1 + rng.below(35),
             .dim = 32 * (1 + rng.below(6)),
             .n = 1 + rng.below(700),
             .rows_per_page = 1 + rng.below(130),
             .offset = rng.below(9),
             .block_size = 1 + rng.below(9)};
    s.q = packed_normals(rng, RowFormat::kQm4, s.n_heads, s.dim);
    s.keys = packed_normals(rng, RowFormat::kQm4, s.n, s.dim);
    s.w = rng.bf16_normals(s.n_heads);
    s.rounded = rng.below(2) == 0;
    if (rng.below(2) == 0) {
      for (std::int64_t i = 0; i * s.block_size < s.n; ++i) s.kept.push_back(rng.below(3) == 0);
    }
    if (rng.below(3) == 0) {  // scales of any size and NaN, any codes
      for (std::int64_t i = 0; i < 20; ++i) {
        s.keys[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(s.keys.size())))] =
            static_cast<std::byte>(rng.bits());
        s.q[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(s.q.size())))] =
            static_cast<std::byte>(rng.bits());
      }
    }
    const std::vector<float> expected = s.scores(scalar, 1);
    for (int threads = 1; threads <= 4; ++threads) {
      EXPECT_TRUE(same_bits_or_nan(s.scores(tested_kernels(), threads), expected))
          << "trial " << trial << ", " << threads << " threads";
    }
    for (std::size_t j = 0; j < expected.size() && !s.kept.empty(); ++j) {
      if (!s.kept[j / static_cast<std::size_t>(s.block_size)]) {
        EXPECT_EQ(expected[j], kMinusInfinity);
      }
    }
  }
}

TEST_P(IndexSelect, long_lists_are_searched_as_the_plain_definition_does) {
  Rng rng(64);
  const KernelTable scalar = select_kernels(InstructionSet::kScalar);
  for (int trial = 0; trial < 24; ++trial) {
    const std::int64_t n = 20000 + rng.below(120000), k = 1 + rng.below(600);
    const std::int64_t size = trial % 4 == 0 ? 1 + rng.below(9) : 8, top = 1 + rng.below(2500);
    std::vector<float> scores(static_cast<std::size_t>(n));
    for (float& s : scores) {
      switch (trial % 6) {
        case 0:
          s = rng.normal();
          break;  // no ties
        case 1:
          s = round_to_bf16(rng.normal());
          break;  // some
        case 2:
          s = 0;
          break;  // nothing else
        case 3:
          s = rng.below(50) ? kMinusInfinity : rng.normal();
          break;  // a pool
        case 4:
          s = rng.below(3) ? rng.normal() : rng.below(2) ? -0.0f : 0.0f;
          break;
        default:
          s = rng.below(9) ? rng.normal() : std::nanf("");
          break;
      }
    }
    if (trial % 7 == 0) std::sort(scores.begin(), scores.end());  // the sample is far off
    const auto choose = [&](const KernelTable& table, int threads) {
      Context context(threads);
      std::vector<std::int32_t> chosen(static_cast<std::size_t>(k));
      std::vector<std::uint8_t> kept(static_cast<std::size_t>((n + size - 1) / size));
      table.top_k(context, {.scores = scores.data(), .n = n, .k = k, .out = chosen.data()});
      table.candidate_blocks(context, {.scores = scores.data(),
                                       .n = n,
                                       .block_size = size,
                                       .top_blocks = top,
                                       .kept = kept.data()});
      return std::pair(chosen, kept);
    };
    const auto expected = choose(scalar, 1);
    for (int threads = 1; threads <= 4; ++threads) {
      EXPECT_EQ(choose(tested_kernels(), threads), expected)
          << "trial " << trial << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
