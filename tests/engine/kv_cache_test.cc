#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

ModelConfig config_of(const std::string& path) {
  auto config = parse_model_config(test::read_file(path), nullptr);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return *config;
}

const ModelConfig& tiny() {
  static const ModelConfig config =
      config_of(CAIRN_SOURCE_DIR "/examples/models/tiny-a/config.json");
  return config;
}

void fill(std::byte* bytes, std::int64_t n, std::mt19937& random) {
  for (std::int64_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(random());
}

std::vector<std::byte> random_bytes(std::int64_t n, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(n));
  fill(bytes.data(), n, random);
  return bytes;
}

// A cache at `position` with arbitrary content; rings hold their newest `ring_rows` rows.
KvCache cache_at(std::int64_t position, std::int64_t ring_rows, std::mt19937& random) {
  KvCache cache(tiny(), Arithmetic{});
  for (GlobalKv& source : cache.sources()) {
    while (source.n_entries < position / source.ratio) {
      const KvCache::NewEntry entry = cache.append_entry(source);
      fill(entry.main, cache.main_row_bytes(), random);
      fill(entry.index, cache.index_row_bytes(), random);
    }
    source.carry_count = position % source.ratio;
    for (float& v : source.carry_values) v = static_cast<float>(random());
    for (float& v : source.carry_gates) v = static_cast<float>(random());
  }
  for (int l = 0; l < tiny().n_layers + tiny().n_draft_stages; ++l) {
    const std::int64_t n = std::min(position, ring_rows);
    const auto rows = random_bytes(n * cache.window_row_bytes(), random);
    cache.write_window(l, position - n, n, rows.data());
  }
  cache.seal_pages(position);
  return cache;
}

// Whatever pages they lie in.
std::vector<std::byte> contiguous(const kernels::KvRows& rows, std::int64_t n, std::int64_t bytes) {
  std::vector<std::byte> all;
  for (std::int64_t i = 0; i < n; ++i) {
    all.insert(all.end(), rows.row(i, bytes), rows.row(i, bytes) + bytes);
  }
  return all;
}
std::vector<std::byte> main_bytes(const KvCache& cache, const GlobalKv& source) {
  return contiguous(cache.main_rows(source), source.n_entries, cache.main_row_bytes());
}
std::vector<std::byte> index_bytes(const KvCache& cache, const GlobalKv& source) {
  return contiguous(cache.index_rows(source), source.n_entries, cache.index_row_bytes());
}

void expect_equal_sources(const KvCache& a, const KvCache& b) {
  for (std::size_t i = 0; i < a.sources().size(); ++i) {
    const GlobalKv &x = a.sources()[i], &y = b.sources()[i];
    EXPECT_EQ(x.n_entries, y.n_entries);
    EXPECT_EQ(main_bytes(a, x), main_bytes(b, y));
    EXPECT_EQ(index_bytes(a, x), index_bytes(b, y));
    ASSERT_EQ(x.carry_count, y.carry_count);
    const auto n = static_cast<std::ptrdiff_t>(x.carry_count * tiny().head_dim);
    EXPECT_TRUE(
        std::equal(x.carry_values.begin(), x.carry_values.begin() + n, y.carry_values.begin()));
    EXPECT_TRUE(
        std::equal(x.carry_gates.begin(), x.carry_gates.begin() + n, y.carry_gates.begin()));
  }
}

void expect_equal(const KvCache& a, const KvCache& b) {
  expect_equal_sources(a, b);
  for (int l = 0; l < tiny().n_layers; ++l) {
    const WindowRing &x = a.window(l), &y = b.window(l);
    ASSERT_EQ(x.begin, y.begin);
    ASSERT_EQ(x.end, y.end);
    for (std::int64_t p = x.begin; p < x.end; ++p) {
      const std::int64_t at = p % tiny().window * a.window_row_bytes();
      EXPECT_EQ(std::memcmp(x.rows.data() + at, y.rows.data() + at,
                            static_cast<std::size_t>(a.window_row_bytes())),
                0);
    }
  }
}

KvCache with_blocks(const KvCache& from, std::int64_t n_blocks) {
  KvCache cache(tiny(), Arithmetic{});
  for (std::int64_t i = 0; i < n_blocks; ++i) {
    cache.append_page(std::make_shared<const KvPage>(*from.page(i)));
  }
  return cache;
}

TEST(KvCache, sizes_of_the_released_model) {
  const ModelConfig released = config_of(CAIRN_TEST_DATA "/released/config.json");
  const KvCache cache(released, Arithmetic{});
  EXPECT_EQ(cache.block_bytes(), 890 * kBlockTokens);
  EXPECT_EQ(cache.private_bytes(), 43 * 128 * 528 + 3 * 2 * 2 * 512 * 4);  // rings, carries
  EXPECT_EQ(cache.sources().size(), 4u);
}

// The rows that a source layer was given, by entry.
struct GivenRows {
  std::vector<std::byte> main, index;
};

std::vector<std::byte> part(const std::vector<std::byte>& rows, std::int64_t first, std::int64_t n,
                            std::int64_t bytes) {
  return {rows.begin() + first * bytes, rows.begin() + (first + n) * bytes};
}

void append(std::vector<std::byte>& out, const std::vector<std::byte>& bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// The layout of session/FORMAT.md, from its tables and the rows as they were written, whatever the
// order in which the layers come on.
TEST(KvCache, pages_and_tails_are_laid_out_as_documented) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::printf("seed %u\n", seed);
  const std::int64_t main_bytes = tiny().head_dim / 2 + tiny().head_dim / 16;
  const std::int64_t index_bytes = tiny().index_head_dim / 2 + tiny().index_head_dim / 32;
  for (int trial = 0; trial < 40; ++trial) {
    KvCache cache(tiny(), Arithmetic{});
    std::vector<GivenRows> given(cache.sources().size());
    std::int64_t position = 0;
    for (int step = 0; step < 6; ++step) {
      position += 1 + static_cast<std::int64_t>(random() % 2 ? random() % 3 : random() % 300);
      for (std::size_t i = 0; i < given.size(); ++i) {
        GlobalKv& source = cache.sources()[i];
        while (source.n_entries < position / source.ratio) {
          const KvCache::NewEntry entry = cache.append_entry(source);
          const auto main = random_bytes(main_bytes, random);
          const auto index = random_bytes(index_bytes, random);
          std::copy(main.begin(), main.end(), entry.main);
          std::copy(index.begin(), index.end(), entry.index);
          append(given[i].main, main);
          append(given[i].index, index);
        }
        source.carry_count = position % source.ratio;
      }
      cache.seal_pages(position);
    }
    ASSERT_EQ(cache.n_pages(), position / 128);
    for (std::int64_t block = 0; block < cache.n_pages(); ++block) {
      std::vector<std::byte> expected;
      for (std::size_t i = 0; i < given.size(); ++i) {
        const std::int64_t n = 128 / cache.sources()[i].ratio;
        append(expected, part(given[i].main, block * n, n, main_bytes));
        append(expected, part(given[i].index, block * n, n, index_bytes));
      }
      EXPECT_EQ(cache.page(block)->bytes, expected) << block;
      EXPECT_EQ(cache.block_bytes(), static_cast<std::int64_t>(expected.size()));
    }
    const std::int64_t start = position / 128 * 128;
    std::vector<std::byte> expected;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const GlobalKv& source = cache.sources()[i];
      const std::int64_t first = start / source.ratio, n = position / source.ratio - first;
      append(expected, part(given[i].main, first, n, main_bytes));
      append(expected, part(given[i].index, first, n, index_bytes));
      const std::int64_t carry = position % source.ratio * tiny().head_dim * 4;
      expected.resize(expected.size() + static_cast<std::size_t>(2 * carry));  // zeros
    }
    const std::vector<std::byte> tail = cache.export_tail();
    ASSERT_GE(tail.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tail.begin()));
  }
}

TEST(KvCache, a_page_of_another_cache_is_held_instead_of_an_own_one) {
  std::mt19937 random(8);
  KvCache a = cache_at(300, 0, random);
  KvCache b = with_blocks(a, 2);
  EXPECT_NE(a.page(0), b.page(0));
  const std::weak_ptr<const KvPage> own = b.page(0);
  const std::vector<std::byte> rows = main_bytes(b, b.sources()[0]);
  b.replace_page(0, a.page(0));
  EXPECT_TRUE(own.expired());
  EXPECT_EQ(a.page(0), b.page(0));
  EXPECT_EQ(main_bytes(b, b.sources()[0]), rows);
  EXPECT_EQ(a.page(0).use_count(), 2);
}

TEST(KvCache, blocks_survive_export_and_import) {
  std::mt19937 random(1);
  const KvCache cache = cache_at(3 * kBlockTokens, 0, random);
  expect_equal_sources(with_blocks(cache, 3), cache);
}

TEST(KvCache, blocks_and_tail_survive_at_every_position) {
  std::mt19937 random(2);
  for (std::int64_t position = 0; position <= 2 * kBlockTokens + 3; ++position) {
    SCOPED_TRACE(position);
    // Full rings, and rings that a bounded replay has cut.
    for (const std::int64_t ring_rows : {std::int64_t{tiny().window}, std::int64_t{5}}) {
      const KvCache cache = cache_at(position, ring_rows, random);
      KvCache copy = with_blocks(cache, position / kBlockTokens);
      ASSERT_TRUE(copy.import_tail(position, cache.export_tail()));
      expect_equal(cache, copy);
      EXPECT_EQ(copy.export_tail(), cache.export_tail());
    }
  }
}

TEST(KvCache, a_tail_of_another_size_is_refused) {
  std::mt19937 random(3);
  for (const std::int64_t position : {1, 7, 128, 129}) {
    const KvCache cache = cache_at(position, tiny().window, random);
    const std::vector<std::byte> tail = cache.export_tail();
    for (std::size_t n = 0; n < tail.size(); n += 1 + n / 64) {
      KvCache copy = with_blocks(cache, position / kBlockTokens);
      EXPECT_FALSE(copy.import_tail(position, std::span(tail).first(n))) << n;
    }
    std::vector<std::byte> longer = tail;
    longer.push_back(std::byte{0});
    KvCache copy = with_blocks(cache, position / kBlockTokens);
    EXPECT_FALSE(copy.import_tail(position, longer));
  }
}

TEST(KvCache, a_tail_of_another_position_is_refused) {
  std::mt19937 random(4);
  const KvCache cache = cache_at(200, tiny().window, random);
  for (const std::int64_t position : {0, 128, 199, 201, 255}) {
    KvCache copy = with_blocks(cache, 1);
    EXPECT_FALSE(copy.import_tail(position, cache.export_tail())) << position;
  }
  KvCache too_many = with_blocks(cache_at(256, 0, random), 2);
  EXPECT_FALSE(too_many.import_tail(200, cache.export_tail()));
}

TEST(KvCache, impossible_ring_starts_are_refused) {
  std::mt19937 random(5);
  const std::int64_t position = 60;
  const KvCache cache = cache_at(position, tiny().window, random);
  const std::vector<std::byte> tail = cache.export_tail();
  // The rings are the end of a tail, each its start and then its rows.
  const std::size_t last_ring = tail.size() - sizeof(std::int64_t) -
                                static_cast<std::size_t>(tiny().window * cache.window_row_bytes());
  for (const std::int64_t begin :
       {std::int64_t{-1}, position - tiny().window - 1, position + 1, INT64_MAX, INT64_MIN}) {
    std::vector<std::byte> wrong = tail;
    std::memcpy(wrong.data() + last_ring, &begin, sizeof begin);
    KvCache copy(tiny(), Arithmetic{});
    EXPECT_FALSE(copy.import_tail(position, wrong)) << begin;
  }
}

TEST(KvCache, rings_wrap_whatever_the_pieces) {
  std::mt19937 random(6);
  const std::int64_t window = tiny().window, n = 5 * window + 3;
  KvCache at_once(tiny(), Arithmetic{});
  const std::int64_t bytes = at_once.window_row_bytes();
  const std::vector<std::byte> rows = random_bytes(n * bytes, random);
  at_once.write_window(0, 0, n, rows.data());
  for (int trial = 0; trial < 50; ++trial) {
    KvCache pieces(tiny(), Arithmetic{});
    for (std::int64_t first = 0; first < n;) {
      const std::int64_t part = std::min<std::int64_t>(n - first, 1 + random() % 40);
      pieces.write_window(0, first, part, rows.data() + first * bytes);
      first += part;
      const WindowRing& ring = pieces.window(0);
      EXPECT_EQ(ring.end, first);
      EXPECT_EQ(ring.begin, std::max<std::int64_t>(0, first - window));
      for (std::int64_t p = ring.begin; p < ring.end; ++p) {
        EXPECT_EQ(std::memcmp(ring.rows.data() + p % window * bytes, rows.data() + p * bytes,
                              static_cast<std::size_t>(bytes)),
                  0);
      }
    }
    EXPECT_EQ(pieces.window(0).rows, at_once.window(0).rows);
  }
}

TEST(KvCache, rows_that_do_not_follow_replace_the_ring) {
  std::mt19937 random(7);
  KvCache cache(tiny(), Arithmetic{});
  const auto rows = random_bytes(8 * cache.window_row_bytes(), random);
  cache.write_window(3, 0, 8, rows.data());
  cache.write_window(3, 40, 2, rows.data());
  EXPECT_EQ(cache.window(3).begin, 40);
  EXPECT_EQ(cache.window(3).end, 42);
}

}  // namespace
}  // namespace cairn::engine
