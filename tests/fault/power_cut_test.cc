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
#include "tests/fault/script.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

// Notes in the record: what was begun, what was acknowledged.
std::int64_t begun(int k) { return 2 * k; }
std::int64_t acknowledged(int k) { return 2 * k + 1; }

// Lives the script in `directory` and saves the record.
std::string live(const Script& script, const std::string& directory, const std::string& record) {
  tap_watch(directory);
  tap_record(true);
  auto store = session::SessionStore::open(directory);
  for (int k = 1; k <= script.n_steps() && store.ok(); ++k) {
    tap_note(begun(k));
    if (script.step(k).kind == Step::Kind::kReopen) {
      store->reset();
      store = session::SessionStore::open(directory);
      if (!store.ok()) break;
    } else if (const Status status = script.run(**store, k); !status.ok()) {
      return "step " + std::to_string(k) + ": " + status.to_string();
    }
    tap_note(acknowledged(k));
  }
  if (!store.ok()) return store.status().to_string();
  store->reset();
  save_record(tap_take_record(), record);
  return {};
}

// What a cut may leave: a state from `first` on, `last` at most.
struct Bounds {
  int first = 0, last = 0;

  void note(const Script& script, std::int64_t value) {
    const int k = static_cast<int>(value / 2);
    if (value % 2 == 0) {
      last = k;
    } else if (script.step(k).durability == session::Durability::kSynced) {
      first = k;
    }
  }
};

// Opens what the cut left. Now and then goes on with the script from there.
std::string check(const Script& script, const std::string& directory, Bounds bounds, bool go_on) {
  std::string why;
  auto store = session::SessionStore::open(directory);
  if (!store.ok()) return "open: " + store.status().to_string();
  const std::optional<int> found = script.find(**store, bounds.first, bounds.last, why);
  if (!found) return why;
  if (!go_on) return {};
  int k = *found;
  while (k < script.n_steps() && k < *found + 5) {
    ++k;
    if (script.step(k).kind == Step::Kind::kReopen) {
      store->reset();
      store = session::SessionStore::open(directory);
      if (!store.ok()) return "open again: " + store.status().to_string();
    } else if (const Status status = script.run(**store, k); !status.ok()) {
      return "step " + std::to_string(k) + " after the cut: " + status.to_string();
    }
  }
  store->reset();
  store = session::SessionStore::open(directory);
  if (!store.ok()) return "open at last: " + store.status().to_string();
  return script.find(**store, k, k, why) ? std::string() : "after going on: " + why;
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
        run_isolated([&] { return live(script, folder / "store", folder / "record"); });
    EXPECT_EQ(ending.problem(), "");
    return load_record(folder / "record");
  }

  void cut(const Script& script, const PowerCut& disk, Bounds bounds, CutStyle style,
           std::mt19937& random, const std::string& where) {
    const std::string target = folder / "cut";
    fs::remove_all(target);
    disk.build(target, style, random);
    const bool go_on = n_cuts++ % 8 == 0;
    const Ending ending = run_isolated([&] { return check(script, target, bounds, go_on); });
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
      bounds.note(script, entry.number);
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
      bounds.note(script, entry.number);
      if (entry.number == acknowledged(script.n_steps())) break;  // closing moves all to tables
    } else if (entry.call != Call::kSync || entry.path.find(".log") == std::string::npos) {
      disk.add(entry);
    }
  }
  disk.build(folder / "cut", CutStyle::kNamesOnly, random);
  EXPECT_NE(run_isolated([&] { return check(script, folder / "cut", bounds, false); }).problem(),
            "");
}

}  // namespace
}  // namespace cairn::test
