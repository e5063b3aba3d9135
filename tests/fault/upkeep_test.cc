// Kills the owner of a store at every call that changes a file while it gives up what is of little
// use, while it removes a session and erases what was its own, and while it brings a store of the
// release before to this format. What is no cache stays; of the cache a beginning of each chain.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "session/collection.h"
#include "tests/fault/isolated.h"
#include "tests/fault/script.h"
#include "tests/fault/syscall_tap.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using session::SessionStore;

// What was to be done to an open store.
using Upkeep = std::function<Status(SessionStore& store)>;

bool go_on(std::int64_t) { return true; }

Result<CollectReport> make_room(SessionStore& store, std::int64_t target_bytes) {
  return session::Collection(store, go_on).make_room(target_bytes);
}

// Blocks of the chain that are there, all before those that are not.
std::string check_chain(SessionStore& store, const SessionState& state) {
  bool ended = false;
  for (const SharedBlock& block : state.chain) {
    const Result<session::Block> found = store.get_block(block->key, block->tokens);
    if (found.status().code() == StatusCode::kNotFound) {
      ended = true;
      continue;
    }
    if (!found.ok()) return found.status().to_string();
    if (ended) return "a chain with a gap";
    if (!same_bytes(found->payload(), block->payload)) return "a block of other bytes";
  }
  return {};
}

std::string check_session(SessionStore& store, const std::string& name, const SessionState& state) {
  const auto record = store.find_by_name(name);
  if (!record.ok()) return record.status().to_string();
  const auto events = store.read_events(record->id);
  if (!events.ok()) return events.status().to_string();
  if (events->size() != state.events.size()) return "events are missing";
  for (std::size_t i = 0; i < events->size(); ++i) {
    if (*encode((*events)[i]) != *encode(state.events[i])) return "another event";
  }
  for (const auto& [slot, wanted] : state.tails) {
    const auto tail = store.get_tail(record->id, slot);
    if (tail.status().code() == StatusCode::kNotFound) continue;
    if (!tail.ok()) return tail.status().to_string();
    if (!same_bytes(tail->payload(), *wanted.payload)) return "another tail";
  }
  return check_chain(store, state);
}

// `removed` may be there or not, and is not where it was acknowledged as removed.
std::string check_contents(SessionStore& store, const StoreContents& contents,
                           const std::string& removed, bool acknowledged) {
  if (store.recovery().rolled_back || !store.recovery().detail.empty()) {
    return "a false alarm: " + store.recovery().detail;
  }
  std::size_t n_found = 0;
  for (const auto& [name, state] : contents) {
    if (name == removed) {
      const bool there = store.find_by_name(name).ok();
      if (there && acknowledged) return name + " is back";
      if (!there) continue;
    }
    ++n_found;
    if (const std::string why = check_session(store, name, state); !why.empty()) {
      return name + ": " + why;
    }
  }
  const auto listed = store.list();
  if (!listed.ok()) return listed.status().to_string();
  return listed->size() == n_found ? std::string() : "the list has other sessions";
}

struct Shared {
  std::atomic<std::int64_t> n_changes = 0;
  std::atomic<bool> acknowledged = false;
};

struct UpkeepTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::string good = folder / "good", store = folder / "store";
  Shared& told = shared<Shared>();
  int n_kills = 0, n_bad = 0;

  // Opens a copy of the good store and works on it; killed at the n-th change, 0 = not at all.
  // Changes count from the opening on, or from the work on.
  Ending upkeep_until(const Upkeep& work, std::int64_t n, Effect effect, bool with_opening) {
    fs::remove_all(store);
    fs::copy(good, store, fs::copy_options::recursive);
    told.acknowledged = false;
    return run_isolated([&, n, effect]() -> std::string {
      const Fault fault = {.kinds = kChanges, .at = n, .effect = effect};
      tap_watch(store);
      if (with_opening) tap_fault(fault);
      const auto opened = SessionStore::open(store);
      if (!opened.ok()) return opened.status().to_string();
      const std::int64_t n_before = with_opening ? 0 : tap_counts().of(kChanges);
      if (!with_opening) tap_fault(fault);
      const Status status = work(**opened);
      told.acknowledged = status.ok();
      told.n_changes = tap_counts().of(kChanges) - n_before;
      return status.ok() ? std::string() : status.to_string();
    });
  }

  // Kills at each of at most `n_max` changes, and looks with `check`, given the opened store.
  void kill_at_each(const std::string& what, const Upkeep& work, bool with_opening, int n_max,
                    const std::function<std::string(SessionStore&)>& check) {
    EXPECT_EQ(upkeep_until(work, 0, Effect::kKill, with_opening).problem(), "");
    const std::int64_t n_changes = told.n_changes;
    EXPECT_GT(n_changes, 10) << what;
    const std::int64_t step = std::max<std::int64_t>(1, 2 * n_changes / (n_max * fault_scale()));
    for (const Effect effect : {Effect::kKill, Effect::kKillInside}) {
      for (std::int64_t n = 1; n <= n_changes && n_bad < 5; n += step) {
        n_kills += upkeep_until(work, n, effect, with_opening).killed();
        const Ending ending = run_isolated([&]() -> std::string {
          const auto opened = SessionStore::open(store);
          return opened.ok() ? check(**opened) : opened.status().to_string();
        });
        EXPECT_EQ(ending.problem(), "") << what << ", killed at change " << n;
        n_bad += !ending.problem().empty();
      }
    }
    std::printf("%s: %lld changes, %d kills, %d bad\n", what.c_str(),
                static_cast<long long>(n_changes), n_kills, n_bad);
    n_kills = 0;
  }

  void make_good(const Script& script) {
    const Ending ending = run_isolated([&]() -> std::string {
      const auto opened = SessionStore::open(good);
      if (!opened.ok()) return opened.status().to_string();
      for (int k = 1; k <= script.n_steps(); ++k) {
        if (const Status status = script.run(**opened, k); !status.ok()) return status.to_string();
      }
      return {};
    });
    EXPECT_EQ(ending.problem(), "");
  }
};

const Script& upkept_script() {
  static const Script kScript({.seed = 20260609, .n_steps = 40, .reopens = false});
  return kScript;
}

TEST_F(UpkeepTest, killed_while_everything_is_given_up) {
  const Script& script = upkept_script();
  const StoreContents& contents = script.contents(script.n_steps());
  make_good(script);
  const Upkeep give_up = [](SessionStore& opened) { return make_room(opened, 1).status(); };
  kill_at_each("collection", give_up, false, 120, [&](SessionStore& opened) -> std::string {
    if (const std::string why = check_contents(opened, contents, {}, false); !why.empty()) {
      return why;
    }
    const auto again = make_room(opened, 1);
    if (!again.ok()) return again.status().to_string();
    const auto stats = opened.stats();
    if (!stats.ok() || stats->n_blocks != 0) return "blocks stay for ever";
    return check_contents(opened, contents, {}, false);
  });
}

TEST_F(UpkeepTest, killed_while_a_session_is_removed_and_erased) {
  const Script& script = upkept_script();
  const StoreContents& contents = script.contents(script.n_steps());
  const std::string& name = contents.begin()->first;
  make_good(script);
  const Upkeep remove = [&](SessionStore& opened) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const session::SessionRecord record, opened.find_by_name(name));
    return session::Collection(opened, go_on).remove_session(record.id).status();
  };
  kill_at_each("removal", remove, false, 120, [&](SessionStore& opened) {
    return check_contents(opened, contents, name, told.acknowledged);
  });
}

// What a store of any format holds, as text.
Result<std::map<std::string, std::string>> everything_in(SessionStore& store) {
  std::map<std::string, std::string> all;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<session::SessionRecord> records, store.list());
  for (const session::SessionRecord& record : records) {
    all[record.name] = encode(record);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<session::LogEvent> events,
                           store.read_events(record.id));
    for (const session::LogEvent& event : events) all[record.name] += *encode(event);
    CAIRN_ASSIGN_OR_RETURN(const session::FoundTails tails, store.find_tails(record.id));
    for (const session::TailRecord& found : tails.tails) {
      CAIRN_ASSIGN_OR_RETURN(const session::Tail tail, store.get_tail(record.id, found.slot));
      const std::string key = record.name + ", tail " + std::to_string(found.slot);
      const auto payload = tail.payload();
      all[key].assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    }
  }
  return all;
}

TEST_F(UpkeepTest, killed_while_a_store_of_format_1_is_migrated) {
  fs::copy(fs::path(CAIRN_TEST_DATA) / "store-v1", good, fs::copy_options::recursive);
  const std::string expected = folder / "expected";
  const auto digest_of = [](SessionStore& opened) -> std::string {
    const auto all = everything_in(opened);
    if (!all.ok()) return all.status().to_string();
    std::string text;
    for (const auto& [name, bytes] : *all) text += name + "\n" + bytes + "\n";
    return text;
  };
  const Upkeep note = [&](SessionStore& opened) -> Status {
    if (!fs::exists(expected)) write_file(expected, digest_of(opened));
    return {};
  };
  kill_at_each("migration", note, true, 120, [&](SessionStore& opened) -> std::string {
    if (opened.recovery().rolled_back || !opened.recovery().detail.empty()) {
      return "a false alarm: " + opened.recovery().detail;
    }
    if (opened.header().format_version != session::kFormatVersion) return "not migrated";
    return digest_of(opened) == read_file(expected) ? std::string() : "other contents";
  });
  EXPECT_GT(fs::file_size(expected), 1000u);
}

}  // namespace
}  // namespace cairn::test
