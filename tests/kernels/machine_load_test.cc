#include "kernels/machine_load.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/machine_limits.h"

namespace cairn::kernels {
namespace {

double wait_a_while() {
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  return 1;
}

TEST(MachineLoad, repetitions_beside_another_process_are_dropped_and_counted) {
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    for (std::atomic<unsigned> n = 0;; ++n) {
    }
  }
  const Measured measured = measure(/*n_wanted=*/2, /*n_most=*/3, wait_a_while);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_EQ(measured.n_kept, 0);
  EXPECT_EQ(measured.n_dropped, 3);
  EXPECT_EQ(measured.median, 1) << "of all, where none is clean";
}

TEST(MachineLoad, no_more_repetitions_are_made_than_asked_for) {
  int n = 0;
  const Measured measured = measure(2, 4, [&] {
    wait_a_while();
    return static_cast<double>(++n);
  });
  EXPECT_GE(n, 2);
  EXPECT_LE(n, 4);
  EXPECT_EQ(measured.n_kept + measured.n_dropped, n);
  EXPECT_GE(measured.median, 1);
  EXPECT_LE(measured.median, n);
}

TEST(MachineLimits, the_largest_of_a_name_is_found) {
  const std::vector<MachineLimit> limits = {{"pmaddwd", "sse4", "GMAC/s", 1, {20, 3, 0}},
                                            {"pmaddwd", "avx2", "GMAC/s", 1, {40, 3, 0}},
                                            {"read", "any", "GB/s", 1, {90, 3, 0}}};
  EXPECT_EQ(largest(limits, "pmaddwd"), 40);
  EXPECT_EQ(largest(limits, "f32_fma"), 0);
}

}  // namespace
}  // namespace cairn::kernels
