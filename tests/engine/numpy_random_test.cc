#include "engine/numpy_random.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn::engine {
namespace {

using Words = std::vector<std::uint64_t>;

Words words(std::uint64_t seed, std::size_t n) {
  NumpyRandom random(seed);
  Words out(n);
  for (auto& word : out) word = random.next();
  return out;
}

// First raw words of the two seeds the release uses.
TEST(NumpyRandom, raw_words_of_the_released_seeds) {
  EXPECT_EQ(words(10007, 4), (Words{0xd2c3f84026661e33, 0x0d4fb6969eb57435, 0x62e6e1c58c3bd72b,
                                    0xcb7dd1a94ca96343}));
  EXPECT_EQ(words(14 * 10007, 4), (Words{0xba3ecc29cf07c111, 0x8dac4bbe10610b7c, 0x550b7148777ff213,
                                         0xe33b7455bc98449e}));
}

// default_rng(42).random(3), as NumPy's documentation prints it: the top 53 bits of a word.
TEST(NumpyRandom, doubles_of_the_documentation) {
  const double expected[] = {0.7739560485559633, 0.4388784397520523, 0.8585979199113825};
  NumpyRandom random(42);
  for (const double value : expected) {
    EXPECT_EQ(static_cast<double>(random.next() >> 11) * 0x1.0p-53, value);
  }
}

TEST(NumpyRandom, bounded_draws_scale_the_raw_word) {
  NumpyRandom random(10007);
  EXPECT_EQ(random.below(46539438283891), (76632096046245u - 1) / 2);
  EXPECT_EQ(random.below(46539438283891), (4839876093313u - 1) / 2);
}

// Just above 2^63 nearly every second word is rejected; the accepted ones are those whose product
// with the bound leaves a low half of at least 2^64 mod bound.
TEST(NumpyRandom, biased_words_are_rejected) {
  const std::uint64_t bound = (std::uint64_t{1} << 63) + 1;
  const std::uint64_t remainder = bound - 2;  // 2^64 mod bound
  Words expected;
  const std::size_t n_raw = 1000;
  for (const std::uint64_t word : words(7, n_raw)) {
    const std::uint64_t low = word * bound;
    if (low >= remainder) expected.push_back((word >> 1) + (low < word ? 1 : 0));
  }
  ASSERT_GT(expected.size(), n_raw / 3);
  ASSERT_LT(expected.size(), n_raw * 2 / 3);
  NumpyRandom random(7);
  for (const std::uint64_t value : expected) {
    const std::uint64_t drawn = random.below(bound);
    EXPECT_EQ(drawn, value);
    EXPECT_LT(drawn, bound);
  }
}

}  // namespace
}  // namespace cairn::engine
