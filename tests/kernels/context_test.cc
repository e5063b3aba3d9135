#include "kernels/context.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>
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

double cpu_seconds_of_this_process() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Calls that find the workers asleep, half asleep and awake.
TEST(Context, pauses_of_any_length_between_calls_lose_no_call) {
  Context context(3);
  std::int64_t sum = 0;
  for (int call = 0; call < 400; ++call) {
    std::atomic<std::int64_t> of_call = 0;
    context.parallel_for(3, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) of_call += i + 1;
    });
    sum += of_call;
    std::this_thread::sleep_for(std::chrono::microseconds(call % 8 * 20));
  }
  EXPECT_EQ(sum, 400 * 6);
}

TEST(Context, without_calls_it_takes_no_cpu_time) {
  Context context(4);
  context.parallel_for(4, 1, [](std::int64_t, std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // asleep by then
  const double before = cpu_seconds_of_this_process();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_seconds_of_this_process() - before, 0.005);
}

TEST(Context, workers_run_on_their_cpu_only) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<std::int32_t> cpus;
  for (std::int32_t cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  cpus = {cpus.front(), cpus.back()};
  Context context(2, cpus);
  for (int call = 0; call < 50; ++call) {
    context.parallel_for(2, 1, [&](std::int64_t begin, std::int64_t) {
      if (begin == 1) {
        EXPECT_EQ(sched_getcpu(), cpus[1]);
      }
    });
  }
}

TEST(Context, a_cpu_that_is_none_is_refused) {
  for (const std::int32_t cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 30}) {
    const std::vector<std::int32_t> cpus = {0, cpu};
    EXPECT_THROW(Context(2, cpus), std::system_error) << cpu;
  }
}

}  // namespace
}  // namespace cairn::kernels
