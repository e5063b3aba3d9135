// Damages the files of a store: flipped bits, cut ends, garbage behind them, older copies, missing
// and foreign files. What is read is what was written or an error; a store that is older than what
// it acknowledged says so; nothing ends the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/fault/script.h"
#include "tests/fault/syscall_tap.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using session::SessionStore;

constexpr std::uint32_t kSeed = 20260607;

// What became of a damaged store.
enum class Outcome : int { kHarmless, kPartsLost, kRolledBack, kRefused, kFalseAlarm };
constexpr std::array<const char*, 5> kOutcomeNames = {"harmless", "parts reported", "rolled back",
                                                      "refused", "false alarm"};

struct Shared {
  Progress progress;
  std::atomic<int> outcome = 0;
  std::atomic<std::int64_t> log_bytes = 0;
  std::atomic<bool> foreign = false;  // the damage is a file of another store
};

// The kind of a file: its name without numbers.
std::string kind_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (path.extension() == ".sst" || path.extension() == ".log") return path.extension().string();
  const bool in_database = path.parent_path().filename() == "db";
  return (in_database ? "db/" : "") + name.substr(0, name.find('-'));
}

std::vector<std::string> files_in(const std::string& store) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(store)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), store).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Reads everything that `expected` has. Counts errors; complains about what is wrong or missing
// without an error.
std::string compare(SessionStore& store, const StoreContents& expected, int& n_errors) {
  const auto is_error = [&](const Status& status, std::string& why, const std::string& what) {
    if (status.code() == StatusCode::kNotFound) why = what + " is gone without a report";
    n_errors += !status.ok();
    return !status.ok();
  };
  std::string why;
  for (const auto& [name, state] : expected) {
    const auto record = store.find_by_name(name);
    if (is_error(record.status(), why, name)) {
      if (!why.empty()) return why;
      continue;
    }
    const auto events = store.read_events(record->id);
    if (!is_error(events.status(), why, "log of " + name)) {
      bool same = events->size() == state.events.size();
      for (std::size_t i = 0; same && i < events->size(); ++i) {
        same = *encode((*events)[i]) == *encode(state.events[i]);
      }
      if (!same) return "log of " + name + ": other events, without a report";
    }
    for (const auto& [slot, wanted] : state.tails) {
      const auto tail = store.get_tail(record->id, slot);
      if (is_error(tail.status(), why, "tail of " + name)) continue;
      if (!same_bytes(tail->payload(), *wanted.payload)) return "tail of " + name + ": another";
    }
    for (const SharedBlock& block : state.chain) {
      const auto found = store.get_block(block->key, block->tokens);
      if (is_error(found.status(), why, "block of " + name)) continue;
      if (!same_bytes(found->payload(), block->payload))
        return "block of " + name + ": other bytes";
    }
    if (!why.empty()) return why;
  }
  const auto listed = store.list();
  n_errors += !listed.ok();
  if (listed.ok() && listed->size() != expected.size()) return "the list has other sessions";
  return {};
}

// Opens a store whose last acknowledged step is the last of the script.
std::string look_at(const Script& script, const std::string& directory, Shared& told) {
  auto store = SessionStore::open(directory);
  if (!store.ok()) {
    told.outcome = static_cast<int>(Outcome::kRefused);
    const bool bad = store.status().code() == StatusCode::kInternal;
    return bad ? store.status().to_string() : std::string();
  }
  const int last = script.n_steps();
  if ((*store)->recovery().rolled_back) {
    std::string why;
    const auto k = script.find(**store, 0, last, why);
    told.outcome = static_cast<int>(k == last ? Outcome::kFalseAlarm : Outcome::kRolledBack);
    // Rolled back and damaged besides: what can be read must still be right. With another store's
    // log in its place it is that one's.
    // What went with the rollback is told by an error.
    const bool told_by_error = why.find("CORRUPT: ") != std::string::npos;
    return k || told_by_error || told.foreign ? std::string() : "rolled back: " + why;
  }
  int n_errors = 0;
  const std::string why = compare(**store, script.contents(last), n_errors);
  told.outcome = static_cast<int>(n_errors > 0 ? Outcome::kPartsLost : Outcome::kHarmless);
  return why;
}

using Damage = std::function<void(const std::string& file)>;

struct DamageTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  Shared& told = shared<Shared>();
  std::mt19937 random{kSeed};
  int n_bad = 0;
  std::map<std::string, std::array<int, 5>> outcomes;  // by kind of file

  // A store in which the steps behind `from` were done. Killed: its last commits are in the log.
  void make_store(const Script& script, const std::string& path, int from, int to, bool killed) {
    const Ending ending = run_isolated([&] {
      tap_watch(path);
      told.progress.acknowledged = from;
      // The close after the last step begins with a change of a file.
      const Status status = live(script, path, from, to, told.progress, killed);
      return status.ok() ? std::string() : status.to_string();
    });
    EXPECT_EQ(ending.killed(), killed) << ending.problem();
    EXPECT_EQ(told.progress.acknowledged, to);
  }

  // Damages one file of a copy and looks.
  void trial(const Script& script, const std::string& good, const std::string& file,
             const Damage& damage, const std::string& what) {
    const std::string bad = folder / "bad";
    fs::remove_all(bad);
    fs::copy(good, bad, fs::copy_options::recursive);
    damage(bad + "/" + file);
    told.outcome = 0;
    const Ending ending = run_isolated([&] { return look_at(script, bad, told); });
    EXPECT_EQ(ending.problem(), "") << what << ", " << file;
    n_bad += !ending.problem().empty();
    ++outcomes[kind_of(file)][static_cast<std::size_t>(told.outcome.load())];
  }

  // `n` trials on each kind of file of both stores. `change` gets the file's bytes.
  void damage_each_kind(int n, const std::string& what,
                        const std::function<void(std::string& bytes)>& change) {
    const Script script({.seed = kSeed, .n_steps = 30});
    make_store(script, folder / "closed", 0, script.n_steps(), false);
    make_store(script, folder / "killed", 0, script.n_steps(), true);
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> files;  // by kind
    for (const char* const store : {"closed", "killed"}) {
      for (const std::string& file : files_in(folder / store)) {
        if (fs::file_size(folder.path() / store / file) == 0) continue;
        files[kind_of(file)].emplace_back(folder / store, file);
      }
    }
    for (const auto& [kind, places] : files) {
      for (int i = 0; i < n * fault_scale() && n_bad < 20; ++i) {
        const auto& [store, file] = places[random() % places.size()];
        std::string bytes = read_file(store + "/" + file);
        change(bytes);
        trial(
            script, store, file, [&](const std::string& path) { write_file(path, bytes); },
            what + " " + std::to_string(i));
      }
    }
    report(what);
  }

  void report(const std::string& what) {
    std::printf("%s, seed %u:\n", what.c_str(), kSeed);
    for (const auto& [kind, counts] : outcomes) {
      std::printf("  %-12s", kind.c_str());
      for (std::size_t i = 0; i < counts.size(); ++i) {
        std::printf(" %s %d", kOutcomeNames[i], counts[i]);
      }
      std::printf("\n");
    }
    std::printf("  bad: %d\n", n_bad);
  }
};

TEST_F(DamageTest, a_flipped_bit_is_reported_or_harmless) {
  damage_each_kind(200, "a flipped bit", [&](std::string& bytes) {
    const std::size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
  });
}

TEST_F(DamageTest, a_file_that_was_cut_is_reported_or_harmless) {
  damage_each_kind(40, "a cut", [&](std::string& bytes) { bytes.resize(random() % bytes.size()); });
}

TEST_F(DamageTest, garbage_behind_a_file_is_reported_or_harmless) {
  damage_each_kind(25, "garbage", [&](std::string& bytes) {
    const std::size_t n = std::size_t{1} << random() % 21;
    const Bytes garbage = random_bytes(static_cast<std::uint32_t>(random()), n);
    bytes.append(reinterpret_cast<const char*>(garbage.data()), garbage.size());
  });
}

TEST_F(DamageTest, a_lost_page_is_reported_or_harmless) {
  damage_each_kind(40, "a page of zeros", [&](std::string& bytes) {
    const std::size_t page = random() % (bytes.size() / 4096 + 1) * 4096;
    for (std::size_t i = page; i < std::min(bytes.size(), page + 4096); ++i) bytes[i] = '\0';
  });
}

TEST_F(DamageTest, missing_and_foreign_files_are_reported_or_harmless) {
  const Script script({.seed = kSeed, .n_steps = 30}), other({.seed = kSeed + 1, .n_steps = 30});
  make_store(other, folder / "other", 0, other.n_steps(), true);
  for (const bool killed : {false, true}) {
    const std::string good = folder / (killed ? "killed" : "closed");
    make_store(script, good, 0, script.n_steps(), killed);
    for (const std::string& file : files_in(good)) {
      trial(
          script, good, file, [](const std::string& path) { fs::remove(path); }, "missing");
      for (const std::string& foreign : files_in(folder / "other")) {
        if (kind_of(foreign) != kind_of(file)) continue;
        const std::string bytes = read_file(folder / "other/" + foreign);
        told.foreign = true;
        trial(
            script, good, file, [&](const std::string& path) { write_file(path, bytes); },
            "of another store");
        told.foreign = false;
        if (kind_of(file) == ".sst") break;  // one of the many
      }
    }
  }
  report("missing and foreign files");
}

TEST_F(DamageTest, older_copies_of_files_are_reported_or_harmless) {
  const Script script({.seed = kSeed, .n_steps = 30, .reopens = false});
  const std::string good = folder / "good";
  std::vector<std::string> older;
  int done = 0;
  for (const int to : {6, 12, 18, 24, 29, 30}) {
    make_store(script, good, done, to, true);
    done = to;
    older.push_back(folder / ("after " + std::to_string(to)));
    fs::copy(good, older.back(), fs::copy_options::recursive);
  }
  older.pop_back();
  for (const std::string& old : older) {
    for (const std::string& file : files_in(good)) {
      if (!fs::exists(old + "/" + file)) continue;
      const std::string bytes = read_file(old + "/" + file);
      if (bytes == read_file(good + "/" + file)) continue;
      trial(
          script, good, file, [&](const std::string& path) { write_file(path, bytes); }, old);
    }
    // The whole database, as somebody would restore it from a copy.
    const auto put_back = [&](const std::string& path) {
      fs::remove_all(path);
      fs::copy(old + "/db", path, fs::copy_options::recursive);
    };
    trial(script, good, "db", put_back, old);
    EXPECT_EQ(told.outcome, static_cast<int>(Outcome::kRolledBack)) << old;
  }
  report("older copies");
}

}  // namespace
}  // namespace cairn::test
