// Cuts the power at every call of a store's life. What the store says was synced is there after
// the cut, and what is there is a beginning of what was done.
#include "tests/fault/power_cut.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/fault/script.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

// Lives the script in `directory` and saves the record.
std::string record_life(const Script& script, const std::string& directory,
                        const std::string& record) {
  Progress progress;
  tap_watch(directory);
  tap_record(true);
  const Status status = live(script, directory, 0, script.n_steps(), progress);
  save_record(tap_take_record(), record);
  return status.ok() ? std::string() : status.to_string();
}

// RocksDB refuses a manifest whose unsynced end has holes. It says so, and the file systems that
// Cairn is made for do not leave such.
bool is_refusal(const Ending& ending) {
  return ending.signal == 0 && ending.complaint.starts_with("open: CORRUPT") &&
         ending.complaint.find("MANIFEST-") != std::string::npos;
}

struct PowerCutTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::int64_t n_cuts = 0, n_refused = 0, n_failures = 0;

  std::vector<TapEntry> record(const Script& script) {
    const Ending ending =
        run_isolated([&] { return record_life(script, folder / "store", folder / "record"); });
    EXPECT_EQ(ending.problem(), "");
    return load_record(folder / "record");
  }

  void cut(const Script& script, const PowerCut& disk, Bounds bounds, CutStyle style,
           std::mt19937& random, const std::string& where) {
    const std::string target = folder / "cut";
    fs::remove_all(target);
    disk.build(target, style, random);
    const int n_more = n_cuts++ % 8 == 0 ? 5 : 0;
    const Ending ending = run_isolated([&] {
      tap_reboot();
      return check(script, target, bounds, n_more);
    });
    if (ending.problem().empty()) return;
    if (is_reordered(style) && is_refusal(ending)) {
      ++n_refused;
      return;
    }
    ++n_failures;
    EXPECT_EQ(ending.problem(), "") << where << ", style " << static_cast<int>(style) << ", states "
                                    << bounds.first << ".." << bounds.last;
  }
};

std::string describe(const TapEntry& entry, std::size_t i) {
  return "after call " + std::to_string(i) + " (kind " +
         std::to_string(static_cast<int>(entry.call)) + ", " + entry.path + ")";
}

TEST_F(PowerCutTest, at_any_call_loses_nothing_that_was_synced) {
  constexpr std::uint32_t kSeed = 20260601;
  const Script script({.seed = kSeed});
  const std::vector<TapEntry> entries = record(script);
  std::mt19937 random(kSeed);
  PowerCut disk(folder / "store");
  Bounds bounds;
  for (std::size_t i = 0; i < entries.size() && n_failures < 10; ++i) {
    const TapEntry& entry = entries[i];
    if (entry.call == Call::kNote) {
      read_note(script, entry.number, bounds);
      continue;
    }
    disk.add(entry);
    if (entry.call == Call::kSyncRange) continue;
    for (int s = 0; s < 2 * fault_scale(); ++s) {
      const auto style = static_cast<CutStyle>((i + 3 * static_cast<std::size_t>(s)) % kCutStyles);
      cut(script, disk, bounds, style, random, describe(entry, i));
    }
  }
  std::printf("seed %u: %zu calls, %d steps, %lld power cuts, %lld refused, %lld failures\n", kSeed,
              entries.size(), script.n_steps(), static_cast<long long>(n_cuts),
              static_cast<long long>(n_refused), static_cast<long long>(n_failures));
}

// A test of the test: what no sync ever reached is found missing.
TEST_F(PowerCutTest, a_disk_that_ignores_syncs_is_noticed) {
  const Script script({.seed = 7, .n_steps = 12, .reopens = false});
  std::mt19937 random(7);
  PowerCut disk(folder / "store");
  Bounds bounds;
  for (const TapEntry& entry : record(script)) {
    if (entry.call == Call::kNote) {
      read_note(script, entry.number, bounds);
      if (entry.number == acknowledged_note(script.n_steps()))
        break;  // closing moves all to tables
    } else if (entry.call != Call::kSync || entry.path.find(".log") == std::string::npos) {
      disk.add(entry);
    }
  }
  disk.build(folder / "cut", CutStyle::kNamesOnly, random);
  const Ending lost = run_isolated([&] {
    tap_reboot();
    const auto store = session::SessionStore::open(folder / "cut");
    // A header that was never written into a table is gone with the log.
    if (store.status().code() == StatusCode::kCorrupt) return std::string();
    if (!store.ok()) return store.status().to_string();
    const StoreRecovery& recovery = (*store)->recovery();
    return recovery.rolled_back && recovery.commits_lost > 0 ? std::string()
                                                             : "no report: " + recovery.detail;
  });
  EXPECT_EQ(lost.problem(), "");
  EXPECT_NE(run_isolated([&] { return check(script, folder / "cut", bounds); }).problem(), "");
}

}  // namespace
}  // namespace cairn::test
