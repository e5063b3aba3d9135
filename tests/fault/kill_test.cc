// Kills the owner of a store: at every call that changes a file, at random instants, and again
// while it recovers. What was acknowledged is there, what was not is there whole or not at all.
//
// SIGKILL keeps the page cache, so this is about the death of the process; power_cut_test is about
// that of the machine.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/fault/script.h"
#include "tests/fault/syscall_tap.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Status& status) {
  return status.ok() ? std::string() : status.to_string();
}

struct Shared {
  Progress progress;
  std::atomic<std::int64_t> n_changes = 0;
  int found = 0;
};

struct KillTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::string store = folder / "store";
  Shared& told = shared<Shared>();
  int n_kills = 0, n_failures = 0;

  // Lives on from step `from`, and is killed at the n-th change; 0 = not at all.
  Ending live_until(const Script& script, int from, std::int64_t n, Effect effect) {
    return run_isolated([&, from, n, effect] {
      tap_watch(store);
      tap_fault({.kinds = kChanges, .at = n, .effect = effect});
      const Status status = live(script, store, from, script.n_steps(), told.progress);
      told.n_changes = tap_counts().of(kChanges);
      return text_of(status);
    });
  }

  // Opens the store and is killed at the n-th change.
  Ending open_until(std::int64_t n) {
    return run_isolated([&, n] {
      tap_watch(store);
      tap_fault({.kinds = kChanges, .at = n, .effect = Effect::kKill});
      return text_of(session::SessionStore::open(store).status());
    });
  }

  void start_anew() {
    fs::remove_all(store);
    told.progress.begun = told.progress.acknowledged = told.progress.synced = 0;
    told.found = 0;
  }

  // The store is in one of the states that the last life may have left; told.found is which.
  void expect_kept(const Script& script, const std::string& where, int n_more = 0) {
    const Bounds bounds = {.first = told.progress.acknowledged,
                           .last = told.progress.begun,
                           .acknowledged = told.progress.acknowledged};
    const Ending ending =
        run_isolated([&] { return check(script, store, bounds, n_more, &told.found); });
    EXPECT_EQ(ending.problem(), "") << where << ", states " << bounds.first << ".." << bounds.last;
    n_failures += !ending.problem().empty();
  }
};

TEST_F(KillTest, at_every_change_of_a_file) {
  constexpr std::uint32_t kSeed = 20260602;
  const Script script({.seed = kSeed});
  std::int64_t n_points = 0;
  EXPECT_EQ(live_until(script, 0, 0, Effect::kKill).problem(), "");
  n_points = told.n_changes;
  EXPECT_GT(n_points, 250);
  for (const Effect effect : {Effect::kKill, Effect::kKillInside}) {
    for (std::int64_t n = 1; n <= n_points && n_failures < 5; ++n) {
      start_anew();
      const Ending ending = live_until(script, 0, n, effect);
      // Background work makes the number of changes differ a little from life to life.
      if (!ending.killed()) {
        EXPECT_EQ(ending.problem(), "");
      }
      n_kills += ending.killed();
      expect_kept(script, "killed at change " + std::to_string(n), n % 8 == 0 ? 4 : 0);
    }
  }
  std::printf("seed %u: %lld changes, %d kills, %d failures\n", kSeed,
              static_cast<long long>(n_points), n_kills, n_failures);
}

TEST_F(KillTest, at_random_instants_again_and_again) {
  constexpr std::uint32_t kSeed = 20260603;
  std::mt19937 random(kSeed);
  int n_lives = 0;
  for (std::uint32_t seed = kSeed; n_kills < 300 * fault_scale() && n_failures < 5; ++seed) {
    const Script script({.seed = seed, .n_steps = 80, .tail_bytes = 100'000});
    start_anew();
    for (bool over = false; !over && n_failures < 5;) {
      ++n_lives;
      Child child([&] {
        return text_of(live(script, store, told.found, script.n_steps(), told.progress));
      });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      child.kill_now();
      const Ending ending = child.wait();
      over = !ending.killed();
      n_kills += ending.killed();
      expect_kept(script, "seed " + std::to_string(seed) + ", life " + std::to_string(n_lives));
      // A step that was under way and is there counts as done.
      told.progress.begun = told.progress.acknowledged = told.found;
      over = over || told.found == script.n_steps();
    }
  }
  std::printf("seed %u: %d lives, %d kills, %d failures\n", kSeed, n_lives, n_kills, n_failures);
}

TEST_F(KillTest, again_while_it_recovers) {
  constexpr std::uint32_t kSeed = 20260604;
  std::mt19937 random(kSeed);
  const Script script({.seed = kSeed});
  int n_in_recovery = 0;
  while (n_in_recovery < 200 * fault_scale() && n_failures < 5) {
    start_anew();
    const std::int64_t n = 40 + static_cast<std::int64_t>(random() % 250);
    n_kills += live_until(script, 0, n, Effect::kKillInside).killed();
    // Every change of the opening, one after the other, each on what the one before left.
    bool killed = true;
    for (std::int64_t m = 1; killed && m <= 60; m += 1 + random() % 5) {
      killed = open_until(m).killed();
      n_in_recovery += killed;
      if (random() % 4 == 0) {
        expect_kept(script,
                    "killed at " + std::to_string(n) + " and in recovery at " + std::to_string(m));
        break;
      }
    }
    expect_kept(script, "killed at " + std::to_string(n) + " and in recovery", 3);
  }
  std::printf("seed %u: %d kills, %d of them in recovery, %d failures\n", kSeed,
              n_kills + n_in_recovery, n_in_recovery, n_failures);
}

}  // namespace
}  // namespace cairn::test
