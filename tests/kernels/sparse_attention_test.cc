#include "kernels/sparse_attention.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(SparseAttention);

std::vector<std::byte> packed(RowFormat format, const std::vector<float>& x, std::int64_t dim) {
  const std::int64_t bytes = row_bytes(format, dim);
  std::vector<std::byte> rows(x.size() / static_cast<std::size_t>(dim) *
                              static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < x.size() / static_cast<std::size_t>(dim); ++i) {
    encode_row(format, x.data() + i * static_cast<std::size_t>(dim), dim,
               rows.data() + i * static_cast<std::size_t>(bytes));
  }
  return rows;
}

// The two tables and lists of one call.
struct Problem {
  std::int64_t rows = 0, n_heads = 0, dim = 0, n_window = 0, n_main = 0;
  std::vector<float> q{}, sink{};
  RowFormat window_format = RowFormat::kF32, main_format = RowFormat::kF32;
  std::vector<std::byte> window{}, main{};
  std::int64_t main_rows_per_page = 64;
  std::vector<std::int32_t> window_slots{}, main_rows{};
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(dim)); }
};

std::vector<float> attend(const Problem& p, bool rounded) {
  const KernelTable& k = tested_kernels();
  const std::int64_t width = p.n_heads * p.dim;
  const std::byte* window_page = p.window.data();
  const PagedRows main(p.main, p.main_format, p.dim, p.main_rows_per_page, /*offset=*/10);
  return expect_row_invariant(
      p.rows, width, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
        k.sparse_attention(context,
                           {.q = p.q.data() + first * width,
                            .rows = n,
                            .n_heads = p.n_heads,
                            .head_dim = p.dim,
                            .window = {&window_page, p.window_format},
                            .window_slots = p.window_slots.data() + first * p.n_window,
                            .n_window = p.n_window,
                            .main = main.view(),
                            .main_rows = p.n_main ? p.main_rows.data() + first * p.n_main : nullptr,
                            .n_main = p.n_main,
                            .sink = p.sink.data(),
                            .scale = p.scale(),
                            .out = out,
                            .round_bf16 = rounded});
      });
}

TEST_P(SparseAttention, agrees_with_the_golden_vectors) {
  const auto file = unit_file("sparse_attn");
  Problem p{.rows = 6, .n_heads = 4, .dim = 64, .n_window = 100};
  p.q = file.tensor("q").values;
  p.sink = file.tensor("sink").values;
  p.window = packed(RowFormat::kF32, file.tensor("kv").values, p.dim);
  for (const std::int64_t i : file.integers("idxs")) {
    p.window_slots.push_back(static_cast<std::int32_t>(i));
  }
  const std::vector<float> golden = file.tensor("out").values, ours = attend(p, true);
  const std::vector<float> exact_golden = file.tensor("out_f32").values, exact = attend(p, false);
  std::int64_t equal = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    equal += ours[i] == golden[i];
    EXPECT_NEAR(ours[i], golden[i], 0x1p-7 * std::fabs(golden[i]));  // one bf16 ulp
    // Exponentials, weights and sums of up to 100 numbers of magnitude about 1 in f32.
    EXPECT_NEAR(exact[i], exact_golden[i], 4 * 0x1p-24 * (1 + std::sqrt(50.0)));
  }
  EXPECT_GE(equal, static_cast<std::int64_t>(0.999 * static_cast<double>(golden.size())));

  // The same list, its tail taken from the second table.
  Problem split = p;
  split.main = p.window;
  split.n_window = 37;
  split.n_main = 63;
  split.window_slots.clear();
  for (std::size_t i = 0; i < p.window_slots.size(); ++i) {
    (i % 100 < 37 ? split.window_slots : split.main_rows).push_back(p.window_slots[i]);
  }
  EXPECT_EQ(attend(split, true), ours);
}

TEST_P(SparseAttention, an_empty_list_gives_zero) {
  Problem p{.rows = 2, .n_heads = 2, .dim = 32, .n_window = 70};
  Rng rng(40);
  p.q = rng.normals(2 * 2 * 32);
  p.sink = {-3, 80};
  p.window_slots.assign(140, -1);
  EXPECT_EQ(attend(p, false), std::vector<float>(2 * 2 * 32, 0.0f));
}

TEST_P(SparseAttention, agrees_with_exact_softmax_on_packed_tables) {
  Rng rng(41);
  for (const std::int64_t dim : {32, 96}) {
    for (const std::int64_t n_main : {0, 5, 64, 130}) {
      Problem p{.rows = 7, .n_heads = 3, .dim = dim, .n_window = 17, .n_main = n_main};
      p.q = rng.normals(p.rows * p.n_heads * dim);
      p.sink = rng.normals(p.n_heads);
      p.window_format = RowFormat::kQ8;
      p.main_format = RowFormat::kQn4;
      const std::int64_t table = 40;
      p.window = packed(p.window_format, rng.bf16_normals(table * dim), dim);
      p.main = packed(p.main_format, rng.bf16_normals(table * dim), dim);
      const auto place = [&] { return static_cast<std::int32_t>(rng.below(table + 10)) - 10; };
      for (std::int64_t i = 0; i < p.rows * p.n_window; ++i) {
        p.window_slots.push_back(std::max(place(), -1));
      }
      for (std::int64_t i = 0; i < p.rows * n_main; ++i) {
        p.main_rows.push_back(std::max(place(), -1));
      }
      const std::vector<float> ours = attend(p, false);
      for (const std::int64_t rows_per_page : {1, 16}) {
        p.main_rows_per_page = rows_per_page;
        EXPECT_EQ(attend(p, false), ours) << rows_per_page;
      }

      for (std::int64_t row = 0; row < p.rows; ++row) {
        std::vector<std::vector<float>> values;
        const auto add = [&](const std::vector<std::byte>& rows, RowFormat format,
                             const std::int32_t* list, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) {
            if (list[i] < 0) continue;
            values.emplace_back(static_cast<std::size_t>(dim));
            decode_row(format, rows.data() + list[i] * row_bytes(format, dim), dim,
                       values.back().data());
          }
        };
        add(p.window, p.window_format, p.window_slots.data() + row * p.n_window, p.n_window);
        add(p.main, p.main_format, p.main_rows.data() + row * n_main, n_main);
        for (std::int64_t head = 0; head < p.n_heads; ++head) {
          const float* q = p.q.data() + (row * p.n_heads + head) * dim;
          double denominator = std::exp(double{p.sink[static_cast<std::size_t>(head)]});
          std::vector<double> o(static_cast<std::size_t>(dim));
          for (const auto& v : values) {
            double dot = 0;
            for (std::size_t c = 0; c < v.size(); ++c) dot += double{q[c]} * double{v[c]};
            const double weight = std::exp(dot * double{p.scale()});
            denominator += weight;
            for (std::size_t c = 0; c < v.size(); ++c) o[c] += weight * double{v[c]};
          }
          for (std::size_t c = 0; c < o.size(); ++c) {
            // f32 sums over the list of values below 6, weighted; exponents below 8 in f32.
            EXPECT_NEAR(ours[static_cast<std::size_t>((row * p.n_heads + head) * dim) + c],
                        o[c] / denominator, 2e-5);
          }
        }
      }
    }
  }
}

TEST_P(SparseAttention, very_large_logits_do_not_overflow) {
  Problem p{.rows = 1, .n_heads = 1, .dim = 32, .n_window = 3};
  p.q.assign(32, 1000.0f);
  p.sink = {50};
  std::vector<float> kv(3 * 32, 1.0f);
  std::fill(kv.begin() + 32, kv.begin() + 64, -1.0f);
  p.window = packed(RowFormat::kF32, kv, 32);
  p.window_slots = {0, 1, 2};
  for (const float v : attend(p, false)) EXPECT_EQ(v, 1.0f);  // rows 0 and 2 outweigh all else
}

bool same_bits_or_nan(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

TEST_P(SparseAttention, any_call_has_the_bits_of_the_plain_definition) {
  Rng rng(42);
  const std::vector<RowFormat> formats = {RowFormat::kQ8, RowFormat::kQn4, RowFormat::kQm4,
                                          RowFormat::kF32};
  for (int trial = 0; trial < 80; ++trial) {
    Problem p{.rows = 1 + rng.below(4),
              .n_heads = 1 + rng.below(trial % 8 == 0 ? 70 : 20),
              .dim = 32 * (1 + rng.below(16)),
              .n_window = rng.below(90),
              .n_main = rng.below(150)};
    if (trial % 2 == 0) {  // the model's
      p.window_format = RowFormat::kQ8;
      p.main_format = RowFormat::kQn4;
    } else {
      p.window_format = formats[static_cast<std::size_t>(rng.below(4))];
      p.main_format = formats[static_cast<std::size_t>(rng.below(4))];
    }
    p.main_rows_per_page = 1 + rng.below(70);
    p.q = rng.below(4) ? rng.bf16_normals(p.rows * p.n_heads * p.dim)
                       : rng.normals(p.rows * p.n_heads * p.dim);
    // Logits from nearly equal to far apart, where weights vanish.
    const float size = std::ldexp(1.0f, static_cast<int>(rng.below(12)) - 4);
    for (float& v : p.q) v *= size;
    p.sink = rng.normals(p.n_heads);
    const std::int64_t table = 50;
    p.window = packed(p.window_format, rng.bf16_normals(table * p.dim), p.dim);
    p.main = packed(p.main_format, rng.bf16_normals(table * p.dim), p.dim);
    const auto list = [&](std::int64_t n) {
      std::vector<std::int32_t> places;
      for (std::int64_t i = 0; i < n; ++i) {
        places.push_back(static_cast<std::int32_t>(rng.below(4) ? rng.below(table) : -1));
      }
      return places;
    };
    p.window_slots = list(p.rows * p.n_window);
    p.main_rows = list(p.rows * p.n_main);
    const bool rounded = rng.below(3) != 0;
    if (trial % 5 == 0) {  // NaN codes and scales, scales of any size
      for (int i = 0; i < 6; ++i) {
        const auto at =
            static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(p.main.size())));
        if (p.main_format != RowFormat::kF32) p.main[at] = static_cast<std::byte>(rng.bits());
      }
      p.q[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(p.q.size())))] =
          std::numeric_limits<float>::infinity();
    }
    const auto run = [&](int threads) {
      const std::int64_t width = p.n_heads * p.dim;
      const std::byte* window_page = p.window.data();
      const PagedRows main(p.main, p.main_format, p.dim, p.main_rows_per_page, /*offset=*/7);
      return run_rows(threads, 0, p.rows, width,
                      [&](Context& context, std::int64_t, std::int64_t n, float* out) {
                        tested_kernels().sparse_attention(
                            context, {.q = p.q.data(),
                                      .rows = n,
                                      .n_heads = p.n_heads,
                                      .head_dim = p.dim,
                                      .window = {&window_page, p.window_format},
                                      .window_slots = p.window_slots.data(),
                                      .n_window = p.n_window,
                                      .main = main.view(),
                                      .main_rows = p.main_rows.data(),
                                      .n_main = p.n_main,
                                      .sink = p.sink.data(),
                                      .scale = p.scale(),
                                      .out = out,
                                      .round_bf16 = rounded});
                      });
    };
    const std::vector<float> expected = by_scalar_kernels([&] { return run(1); });
    for (int threads = 1; threads <= 4; ++threads) {
      EXPECT_TRUE(same_bits_or_nan(run(threads), expected))
          << "trial " << trial << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
