#include "kernels/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace cairn::kernels {
namespace {

TEST(Context, ranges_cover_every_index_once) {
  for (const int threads : {1, 2, 3, 4, 7}) {
    Context context(threads);
    EXPECT_EQ(context.n_threads(), threads);
    for (const std::int64_t n : {0, 1, 2, 3, 15, 16, 17, 100, 1000}) {
      for (const std::int64_t grain : {0, 1, 7, 16, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
        std::atomic<bool> short_range = false;
        context.parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          short_range = short_range || (end - begin < std::min(grain, n));
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (const auto& count : seen) EXPECT_EQ(count, 1);
        EXPECT_FALSE(short_range) << n << " by " << grain;
      }
    }
  }
}

TEST(Context, many_calls_in_a_row_keep_their_bodies_apart) {
  Context context(4);
  for (int call = 0; call < 3000; ++call) {
    std::atomic<std::int64_t> sum = 0;
    context.parallel_for(call % 9, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sum += call + i;
    });
    const std::int64_t n = call % 9;
    ASSERT_EQ(sum, n * call + n * (n - 1) / 2);
  }
}

// Whichever share throws, the others come to their end before the caller hears of it.
TEST(Context, an_exception_reaches_the_caller_when_all_are_done) {
  constexpr std::int64_t kShares = 4;
  Context context(kShares);
  for (std::int64_t thrower = 0; thrower < kShares; ++thrower) {
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> n_done = 0;
      const auto body = [&](std::int64_t begin, std::int64_t) {
        if (begin == thrower) throw std::runtime_error("no memory");
        ++n_done;
      };
      EXPECT_THROW(context.parallel_for(kShares, 1, body), std::runtime_error);
      EXPECT_EQ(n_done, kShares - 1);
      n_done = 0;
      context.parallel_for(kShares, 1, [&](std::int64_t, std::int64_t) { ++n_done; });
      EXPECT_EQ(n_done, kShares);
    }
  }
}

}  // namespace
}  // namespace cairn::kernels
