// What a commit and an opening of a store sync, and in which order.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "session/session_store.h"
#include "tests/fault/isolated.h"
#include "tests/fault/power_cut.h"
#include "tests/fault/syscall_tap.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

using session::SessionStore;

constexpr std::int64_t kCommitBegins = 1, kCommitEnds = 2;

// "table", "db" (the database's directory), "MANIFEST", "log", "MARK", or the path.
std::string kind_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".sst")) return "table";
  if (name.ends_with(".log")) return "log";
  if (name.starts_with("MANIFEST-")) return "MANIFEST";
  return name == "db" || name == "MARK" ? name : path;
}

struct SyncOrder : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;

  // The entries between the notes, of a commit with these payloads after one like it.
  std::vector<TapEntry> record_commit(std::uint32_t n_blocks, std::size_t tail_bytes) {
    const Ending ending = run_isolated([&]() -> std::string {
      tap_watch(folder / "store");
      tap_record(true);
      auto store = SessionStore::open(folder / "store");
      if (!store.ok()) return store.status().to_string();
      session::SessionRecord record = create(**store, "s");
      record.kv_namespace = *(*store)->open_namespace(kSampleNamespace);
      const std::vector<SampleBlock> chain = sample_chain(1, 2 * n_blocks, 100'000);
      for (std::uint32_t i = 0; i < 2; ++i) {
        session::Commit commit;
        commit.session = record.id;
        commit.kv_namespace = record.kv_namespace;
        commit.events.push_back(user_event(++record.head_sequence, "go on"));
        for (std::uint32_t n = 0; n < n_blocks; ++n) {
          commit.blocks.push_back(chain[i * n_blocks + n].view());
        }
        const Bytes tail = random_bytes(i, tail_bytes);
        if (tail_bytes > 0) commit.tail = session::NewTail{.position = 128, .payload = tail};
        ++record.n_events;
        commit.record = record;
        if (i == 1) tap_note(kCommitBegins);
        const Status status = (*store)->commit(commit).status();
        if (!status.ok()) return status.to_string();
        if (i == 1) tap_note(kCommitEnds);
      }
      save_record(tap_take_record(), folder / "record");
      return "";
    });
    EXPECT_EQ(ending.problem(), "");
    const std::vector<TapEntry> all = load_record(folder / "record");
    const auto is_note = [](std::int64_t number) {
      return [number](const TapEntry& e) { return e.call == Call::kNote && e.number == number; };
    };
    const auto begin = std::ranges::find_if(all, is_note(kCommitBegins));
    const auto end = std::ranges::find_if(all, is_note(kCommitEnds));
    EXPECT_TRUE(begin < end && end != all.end());
    return {begin, end};
  }
};

std::vector<std::string> syncs_of(const std::vector<TapEntry>& entries) {
  std::vector<std::string> kinds;
  for (const TapEntry& entry : entries) {
    if (entry.call == Call::kSync) kinds.push_back(kind_of(entry.path));
  }
  return kinds;
}

// Position of the last entry that `matches`, or -1.
template <class Matches>
std::ptrdiff_t last_of(const std::vector<TapEntry>& entries, const Matches& matches) {
  const auto found = std::find_if(entries.rbegin(), entries.rend(), matches);
  return found == entries.rend() ? -1 : std::distance(found, entries.rend()) - 1;
}

// Each table is whole, has its name and is synced, and so is the directory, before the MANIFEST
// that names it is written to; and each step is on the disk before the next is begun.
void expect_safe_order(const std::vector<TapEntry>& entries, std::ptrdiff_t n_tables) {
  const auto is = [](Call call, const std::string& kind) {
    return [=](const TapEntry& e) { return e.call == call && kind_of(e.path) == kind; };
  };
  const std::ptrdiff_t named = last_of(entries, is(Call::kWrite, "MANIFEST"));
  const std::ptrdiff_t directory = last_of(entries, is(Call::kSync, "db"));
  EXPECT_EQ(std::ranges::count_if(entries, is(Call::kLink, "table")), n_tables);
  std::ptrdiff_t n_synced = 0;
  for (const TapEntry& table : entries) {
    if (table.call != Call::kLink) continue;
    const auto of_it = [&](Call call) {
      return
          [&table, call](const TapEntry& e) { return e.call == call && e.number == table.number; };
    };
    const std::ptrdiff_t written = last_of(entries, of_it(Call::kWrite));
    const std::ptrdiff_t synced = last_of(entries, of_it(Call::kSync));
    EXPECT_EQ(std::ranges::count_if(entries, of_it(Call::kSync)), 1) << table.target;
    EXPECT_LT(written, synced) << table.target;
    EXPECT_LT(synced, named) << table.target;
    EXPECT_LT(last_of(entries, of_it(Call::kLink)), directory) << table.target;
    ++n_synced;
  }
  EXPECT_EQ(n_synced, n_tables);
  EXPECT_LT(directory, named);
  EXPECT_LT(named, last_of(entries, is(Call::kSync, "MANIFEST")));
  EXPECT_LT(last_of(entries, is(Call::kSync, "MANIFEST")),
            last_of(entries, is(Call::kWrite, "log")));
  EXPECT_LT(last_of(entries, is(Call::kWrite, "log")), last_of(entries, is(Call::kSync, "log")));
  EXPECT_LT(last_of(entries, is(Call::kSync, "log")), last_of(entries, is(Call::kWrite, "MARK")));
  EXPECT_LT(last_of(entries, is(Call::kWrite, "MARK")), last_of(entries, is(Call::kSync, "MARK")));
}

TEST_F(SyncOrder, of_a_commit_with_blocks_and_a_tail_is_six_syncs) {
  const std::vector<TapEntry> entries = record_commit(4, 700'000);
  EXPECT_EQ(syncs_of(entries),
            (std::vector<std::string>{"table", "table", "db", "MANIFEST", "log", "MARK"}));
  expect_safe_order(entries, 2);
}

TEST_F(SyncOrder, of_a_commit_with_blocks_is_five_syncs) {
  const std::vector<TapEntry> entries = record_commit(4, 0);
  EXPECT_EQ(syncs_of(entries),
            (std::vector<std::string>{"table", "db", "MANIFEST", "log", "MARK"}));
  expect_safe_order(entries, 1);
}

TEST_F(SyncOrder, of_a_commit_without_payload_is_the_log_and_the_mark) {
  EXPECT_EQ(syncs_of(record_commit(0, 0)), (std::vector<std::string>{"log", "MARK"}));
}

}  // namespace
}  // namespace cairn::test
