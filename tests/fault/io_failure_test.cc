// Lets calls of the kernel fail beneath a store: each one once, from each one on, syncs in three
// ways, a disk that is full. The store reports it or gets over it; it never hangs, never ends the
// process, never acknowledges what is not there; opened on a healthy disk it goes on.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/fault/power_cut.h"
#include "tests/fault/script.h"
#include "tests/fault/syscall_tap.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

struct Shared {
  Progress progress;
  std::atomic<std::int64_t> n_calls = 0, n_failed = 0;
  std::atomic<int> code = 0;  // of the life's status
  std::array<char, 500> text{};
};

struct IoFailureTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::string store = folder / "store";
  Shared& told = shared<Shared>();
  int n_trials = 0, n_bad = 0;
  std::map<StatusCode, int> outcomes;

  void start_anew() {
    fs::remove_all(store);
    told.progress.begun = told.progress.acknowledged = told.progress.synced = 0;
  }

  // A life in which `fault` happens. Any status is fine, but the process must come to its end.
  Ending live_with(const Script& script, const Fault& fault, std::int64_t space = -1,
                   const std::string& record = {}) {
    return run_isolated([&, fault, space] {
      tap_watch(store);
      tap_record(!record.empty());
      tap_fault(fault);
      tap_limit_space(space);
      const Status status = live(script, store, 0, script.n_steps(), told.progress);
      told.code = static_cast<int>(status.code());
      const std::string text = status.to_string();
      text.copy(told.text.data(), told.text.size() - 1);
      const TapCounts counts = tap_counts();
      told.n_calls = counts.of(fault.kinds);
      told.n_failed = counts.n_failed;
      if (!record.empty()) save_record(tap_take_record(), record);
      return std::string();
    });
  }

  void expect_good(const std::string& problem, const std::string& where) {
    EXPECT_EQ(problem, "") << where;
    n_bad += !problem.empty();
  }

  // One trial: live with the fault, then open without and go on.
  void trial(const Script& script, const Fault& fault, const std::string& where) {
    ++n_trials;
    start_anew();
    told.text = {};
    const Ending ending = live_with(script, fault);
    expect_good(ending.problem(), where);
    const auto code = static_cast<StatusCode>(told.code.load());
    ++outcomes[code];
    const StatusCode expected = fault.effect == Effect::kShortWrite || fault.error == ENOSPC
                                    ? StatusCode::kOutOfDisk
                                    : StatusCode::kIoError;
    if (code != StatusCode::kOk && code != expected) expect_good(told.text.data(), where);
    const Bounds bounds = {.first = told.progress.acknowledged,
                           .last = told.progress.begun,
                           .acknowledged = told.progress.acknowledged};
    expect_good(run_isolated([&] {
                  return check(script, store, bounds, n_trials % 4 == 0 ? 4 : 0);
                }).problem(),
                where + ", opened again");
  }

  // Each call of these kinds, or `n_trials_max` of them, evenly.
  void fail_each(const Script& script, Fault fault, int n_trials_max, const std::string& what) {
    start_anew();
    Fault none = fault;
    none.at = 0;
    expect_good(live_with(script, none).problem(), what + ", without a fault");
    const std::int64_t n_calls = told.n_calls;
    EXPECT_GT(n_calls, 0) << what;
    const std::int64_t step = std::max<std::int64_t>(1, n_calls / (n_trials_max * fault_scale()));
    for (fault.at = 1; fault.at <= n_calls && n_bad < 10; fault.at += step) {
      trial(script, fault, what + ", call " + std::to_string(fault.at));
    }
    std::printf("%s: %lld calls", what.c_str(), static_cast<long long>(n_calls));
    report();
  }

  void report() {
    std::printf(", %d trials, %d bad; lives ended with", n_trials, n_bad);
    for (const auto& [code, n] : outcomes) {
      std::printf(" %s %d", std::string(status_code_name(code)).c_str(), n);
    }
    std::printf("\n");
    n_trials = 0;
    outcomes.clear();
  }
};

const Script& short_script() {
  static const Script kScript({.seed = 20260605, .n_steps = 24});
  return kScript;
}

TEST_F(IoFailureTest, each_change_fails_once) {
  fail_each(short_script(), {.kinds = kChanges}, 180, "a change fails once");
}

TEST_F(IoFailureTest, each_change_and_all_after_it_fail) {
  fail_each(short_script(), {.kinds = kChanges, .for_ever = true}, 120, "changes fail for ever");
}

TEST_F(IoFailureTest, each_change_is_done_and_fails) {
  fail_each(short_script(), {.kinds = kChanges, .effect = Effect::kFailDone}, 90,
            "a change is done and fails");
}

TEST_F(IoFailureTest, each_open_read_or_close_fails) {
  const Calls kinds = calls(Call::kOpen, Call::kRead, Call::kClose);
  fail_each(short_script(), {.kinds = kinds}, 100, "an open, read or close fails once");
  fail_each(short_script(), {.kinds = kinds, .for_ever = true}, 60, "they fail for ever");
}

TEST_F(IoFailureTest, each_write_is_short) {
  fail_each(short_script(), {.kinds = calls(Call::kWrite), .effect = Effect::kShortWrite}, 60,
            "a write is short");
}

TEST_F(IoFailureTest, each_write_finds_no_space) {
  const Calls kinds = calls(Call::kWrite, Call::kCreate, Call::kTruncate, Call::kMakeDirectory);
  fail_each(short_script(), {.kinds = kinds, .error = ENOSPC}, 100, "no space once");
  fail_each(short_script(), {.kinds = kinds, .for_ever = true, .error = ENOSPC}, 100,
            "no space for ever");
}

// A sync that fails leaves the bytes it was for on the disk, or in memory only, or half of them; in
// memory they look written. After it the machine dies: what was acknowledged as synced is there.
TEST_F(IoFailureTest, each_sync_fails_and_then_the_machine) {
  const Script& script = short_script();
  const Calls syncs = calls(Call::kSync);
  start_anew();
  expect_good(live_with(script, {.kinds = syncs}).problem(), "without a fault");
  const std::int64_t n_syncs = told.n_calls;
  std::mt19937 random(20260606);
  const std::string record = folder / "record", dead = folder / "dead";
  for (std::int64_t n = 1; n <= n_syncs && n_bad < 10; ++n) {
    start_anew();
    fs::remove(record);
    const std::string where = "sync " + std::to_string(n);
    expect_good(live_with(script, {.kinds = syncs, .at = n}, -1, record).problem(), where);
    ++outcomes[static_cast<StatusCode>(told.code.load())];
    const std::vector<TapEntry> entries = load_record(record);
    const Bounds bounds = {.first = told.progress.synced,
                           .last = told.progress.begun,
                           .acknowledged = told.progress.acknowledged};
    for (const FailedSync left : {FailedSync::kKept, FailedSync::kDropped, FailedSync::kHalf}) {
      ++n_trials;
      PowerCut disk(store, left);
      for (const TapEntry& entry : entries) disk.add(entry);
      fs::remove_all(dead);
      disk.build(dead, n % 2 == 0 ? CutStyle::kNothing : CutStyle::kBeginnings, random);
      expect_good(run_isolated([&] {
                    tap_reboot();
                    return check(script, dead, bounds);
                  }).problem(),
                  where + ", bytes left: " + std::to_string(static_cast<int>(left)));
    }
  }
  std::printf("%lld syncs", static_cast<long long>(n_syncs));
  report();
}

// The disk fills up at any byte, by others as well, so no look at the free space helps. With space
// again all goes on.
TEST_F(IoFailureTest, a_disk_fills_up_and_is_freed) {
  const Script& script = short_script();
  constexpr int kCycles = 50;
  std::mt19937 random(20260608);
  for (int i = 0; i < kCycles * fault_scale() && n_bad < 10; ++i) {
    ++n_trials;
    start_anew();
    const std::int64_t space = static_cast<std::int64_t>(random() % 3'000'000);
    const std::string where = "space for " + std::to_string(space);
    expect_good(live_with(script, {}, space).problem(), where);
    const auto code = static_cast<StatusCode>(told.code.load());
    ++outcomes[code];
    EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kOutOfDisk) << told.text.data();
    const Bounds bounds = {.first = told.progress.acknowledged,
                           .last = told.progress.begun,
                           .acknowledged = told.progress.acknowledged};
    expect_good(
        run_isolated([&] { return check(script, store, bounds, script.n_steps()); }).problem(),
        where + ", freed");
  }
  std::printf("a disk fills up");
  report();
}

}  // namespace
}  // namespace cairn::test
