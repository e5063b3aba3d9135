// A store that lost something acknowledged says so at its next open: flipped bits and cuts in the
// log, in the MANIFEST and in the mark, older copies of the database.
#include "session/commit_mark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "session/manifest_watch.h"
#include "session/marked_storage.h"
#include "session/storage_key.h"
#include "session/stored_records.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;

using test::TemporaryFolder;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void flip_bit(const fs::path& path, std::mt19937& random) {
  std::string bytes = read_file(path);
  ASSERT_FALSE(bytes.empty()) << path;
  bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
  write_file(path, bytes);
}

void cut(const fs::path& path, std::mt19937& random) {
  fs::resize_file(path, random() % fs::file_size(path));
}

// The newest file in the store's database whose name begins or ends so.
fs::path database_file(const fs::path& store, const std::string& prefix,
                       const std::string& extension) {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(store / "db")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix) || !name.ends_with(extension)) continue;
    if (newest.empty() || newest.filename().string() < name) newest = entry.path();
  }
  return newest;
}

std::unique_ptr<Storage> opened(const std::string& path) {
  auto storage = open_rocksdb_storage(path);
  EXPECT_TRUE(storage.ok()) << storage.status().to_string();
  return std::move(*storage);
}

Result<MarkedStorage> open_marked(const std::string& database, const std::string& mark_path) {
  auto mark = open_mark(mark_path, database);
  if (!mark.ok()) return mark.status();
  return mark_storage(opened(database), std::move(*mark));
}

constexpr int kCommits = 12;

Commit commit_of(const SessionRecord& record, int i) {
  SessionRecord changed = record;
  changed.n_events = changed.head_sequence = static_cast<std::uint64_t>(i);
  return {.session = record.id,
          .events = {test::user_event(static_cast<std::uint64_t>(i), "text " + std::to_string(i))},
          .record = changed,
          .durability = i % 3 == 0 ? Durability::kSynced : Durability::kBuffered};
}

// A store with kCommits acknowledged commits as the death of its process leaves it: in the log, and
// where `flush_at` says also in tables of several flushes.
void make_killed_store(const fs::path& path, const std::vector<int>& flush_at = {}) {
  const TemporaryFolder folder;
  {
    auto directory = StoreDirectory::open(folder / "store", true);
    ASSERT_TRUE(directory.ok());
    auto marked = open_marked(directory->database_path(), directory->mark_path());
    ASSERT_TRUE(marked.ok());
    Storage& storage = *marked->storage;
    auto made = SessionStore::open_on(std::move(*directory), std::move(marked->storage));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const std::unique_ptr<SessionStore> store = std::move(*made);
    const SessionRecord record = test::create(*store, "name");
    for (int i = 1; i <= kCommits; ++i) {
      ASSERT_TRUE(store->commit(commit_of(record, i)).ok());
      if (std::ranges::count(flush_at, i) > 0) {
        ASSERT_TRUE(storage.flush().ok());
      }
    }
    fs::copy(folder / "store", path, fs::copy_options::recursive);
  }
}

// Of the store's only session; -1 where the store does not open or does not read.
int stored_events(const fs::path& path, StoreRecovery& recovery, Status& status) {
  auto store = SessionStore::open(path, {.create_if_missing = false});
  status = store.status();
  if (!store.ok()) return -1;
  recovery = (*store)->recovery();
  const auto record = (*store)->find_by_name("name");
  if (!record.ok()) return record.status().code() == StatusCode::kNotFound ? 0 : -1;
  const auto events = (*store)->read_events(record->id);
  return events.ok() ? static_cast<int>(events->size()) : -1;
}

struct Outcomes {
  int n_whole = 0, n_refused = 0, n_reported = 0;
};

// Damages copies of `original` and opens them. A store must not be older than acknowledged without
// a word.
Outcomes damage_many(const fs::path& original, int n_trials, std::uint32_t seed,
                     const std::function<void(const fs::path&, std::mt19937&)>& damage) {
  std::mt19937 random(seed);
  Outcomes outcomes;
  for (int trial = 0; trial < n_trials; ++trial) {
    const TemporaryFolder folder;
    const fs::path path = fs::path(folder / "store");
    fs::copy(original, path, fs::copy_options::recursive);
    damage(path, random);
    StoreRecovery recovery;
    Status status;
    const int n_events = stored_events(path, recovery, status);
    if (n_events == kCommits) {
      ++outcomes.n_whole;
    } else if (n_events < 0) {
      ++outcomes.n_refused;
    } else {
      ++outcomes.n_reported;
      EXPECT_FALSE(recovery.detail.empty())
          << "silently " << n_events << " of " << kCommits << ", trial " << trial;
      EXPECT_TRUE(recovery.rolled_back) << recovery.detail;
    }
  }
  std::cout << "seed " << seed << ": " << n_trials << " trials, whole " << outcomes.n_whole
            << ", refused " << outcomes.n_refused << ", reported " << outcomes.n_reported << "\n";
  return outcomes;
}

constexpr int kTrials = 200;

TEST(CommitMark, a_store_that_was_killed_is_whole_and_has_nothing_to_report) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store");
  StoreRecovery recovery;
  Status status;
  EXPECT_EQ(stored_events(folder / "store", recovery, status), kCommits) << status.to_string();
  EXPECT_EQ(recovery.detail, "");
  EXPECT_FALSE(recovery.rolled_back);
}

TEST(CommitMark, a_bit_flipped_in_the_log_is_reported) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store");
  const Outcomes outcomes =
      damage_many(folder / "store", kTrials, 1, [](const fs::path& store, std::mt19937& random) {
        flip_bit(database_file(store, "", ".log"), random);
      });
  EXPECT_GT(outcomes.n_reported, kTrials / 2);
}

TEST(CommitMark, a_log_that_was_cut_is_reported) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store");
  const Outcomes outcomes =
      damage_many(folder / "store", kTrials, 2, [](const fs::path& store, std::mt19937& random) {
        cut(database_file(store, "", ".log"), random);
      });
  EXPECT_GT(outcomes.n_reported, kTrials / 2);
}

TEST(CommitMark, a_bit_flipped_in_the_manifest_never_makes_the_store_silently_older) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store", {3, 6, 9});
  damage_many(folder / "store", kTrials, 3, [](const fs::path& store, std::mt19937& random) {
    flip_bit(database_file(store, "MANIFEST", ""), random);
  });
}

TEST(CommitMark, a_manifest_that_was_cut_never_makes_the_store_silently_older) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store", {3, 6, 9});
  damage_many(folder / "store", kTrials, 4, [](const fs::path& store, std::mt19937& random) {
    cut(database_file(store, "MANIFEST", ""), random);
  });
}

TEST(CommitMark, a_damaged_mark_costs_nothing_but_the_knowledge) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store");
  const Outcomes outcomes = damage_many(
      folder / "store", kTrials, 5,
      [](const fs::path& store, std::mt19937& random) { flip_bit(store / "MARK", random); });
  EXPECT_EQ(outcomes.n_whole, kTrials);
}

TEST(CommitMark, a_missing_mark_is_noted) {
  const TemporaryFolder folder;
  make_killed_store(folder / "store");
  fs::remove(fs::path(folder / "store") / "MARK");
  StoreRecovery recovery;
  Status status;
  EXPECT_EQ(stored_events(folder / "store", recovery, status), kCommits);
  EXPECT_NE(recovery.detail.find("missing"), std::string::npos) << recovery.detail;
  EXPECT_FALSE(recovery.rolled_back);
  recovery = {};
  EXPECT_EQ(stored_events(folder / "store", recovery, status), kCommits);
  EXPECT_EQ(recovery.detail, "") << "said once";
}

TEST(CommitMark, an_older_copy_of_the_database_is_reported_once_and_kept_as_an_incident) {
  const TemporaryFolder folder;
  const fs::path path = fs::path(folder / "store");
  {
    auto store = test::open_store(path);
    const SessionRecord record = test::create(*store, "name");
    ASSERT_TRUE(store->commit(commit_of(record, 1)).ok());
    store.reset();
    fs::copy(path / "db", folder / "older", fs::copy_options::recursive);
    store = test::open_store(path);
    for (int i = 2; i <= 5; ++i) ASSERT_TRUE(store->commit(commit_of(record, i)).ok());
  }
  fs::remove_all(path / "db");
  fs::copy(folder / "older", path / "db", fs::copy_options::recursive);
  StoreRecovery recovery;
  Status status;
  EXPECT_EQ(stored_events(path, recovery, status), 1);
  EXPECT_TRUE(recovery.rolled_back);
  EXPECT_GE(recovery.commits_lost, 4);  // closing may have made one more
  EXPECT_EQ(stored_events(path, recovery, status), 1);
  EXPECT_FALSE(recovery.rolled_back) << "said once";
}

// -- on a storage --

// A database whose batches can be lost, and with them what they put.
TEST(CommitMark, equal_numbers_with_other_sessions_are_a_rollback) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& value, bool with_mark) {
    WriteBatch batch;
    batch.put(Family::kSessions, "session", value);
    if (!with_mark) {
      ASSERT_TRUE(opened(folder / "db")->write(batch, Durability::kSynced).ok());
      return;
    }
    auto storage = open_marked(folder / "db", folder / "MARK");
    ASSERT_TRUE(storage.ok());
    EXPECT_EQ(storage->recovery.detail, "");
    ASSERT_TRUE(storage->storage->write(batch, Durability::kSynced).ok());
  };
  write("one", true);
  write("two", true);
  write("one", false);  // what losing a table would leave
  auto storage = open_marked(folder / "db", folder / "MARK");
  ASSERT_TRUE(storage.ok());
  EXPECT_TRUE(storage->recovery.rolled_back);
}

TEST(CommitMark, concurrent_batches_are_all_there_and_numbered_without_gaps) {
  const TemporaryFolder folder;
  constexpr int kThreads = 6, kBatches = 40;
  {
    auto marked = open_marked(folder / "db", folder / "MARK");
    ASSERT_TRUE(marked.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const test::Bytes large = test::random_bytes(static_cast<std::uint32_t>(t), 300'000);
        for (int i = 0; i < kBatches; ++i) {
          WriteBatch batch;
          const std::string key = std::to_string(t) + "/" + std::to_string(100 + i);
          batch.put(Family::kSessions, key, "value " + key);
          if (i % 10 == 0) {
            const auto number = static_cast<std::uint64_t>(t * kBatches + i);
            batch.put_bulk(Family::kBlocks, block_number_key(1, number), "", large);
          }
          EXPECT_TRUE(marked->storage
                          ->write(batch, i % 4 == 0 ? Durability::kSynced : Durability::kBuffered)
                          .ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  auto marked = open_marked(folder / "db", folder / "MARK");
  ASSERT_TRUE(marked.ok());
  EXPECT_EQ(marked->recovery.detail, "");
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kBatches; ++i) {
      const std::string key = std::to_string(t) + "/" + std::to_string(100 + i);
      EXPECT_EQ(*marked->storage->get(Family::kSessions, key), "value " + key);
    }
  }
  const auto number =
      decode_number(*get_record(*marked->storage, Family::kMeta, std::string(kCommitKey)));
  EXPECT_GT(*number, 0u);
  EXPECT_LE(*number, static_cast<std::uint64_t>(kThreads * kBatches));
}

TEST(CommitMark, a_refused_batch_has_no_number_and_the_next_goes_on) {
  const TemporaryFolder folder;
  auto probed = std::make_unique<test::ProbedStorage>(opened(folder / "db"));
  test::ProbedStorage& probe = *probed;
  {
    auto marked =
        mark_storage(std::move(probed), std::move(*open_mark(folder / "MARK", folder / "db")));
    ASSERT_TRUE(marked.ok());
    WriteBatch batch;
    batch.put(Family::kSessions, "a", "1");
    probe.fail_writes_after = 0;
    EXPECT_EQ(marked->storage->write(batch, Durability::kSynced).code(), StatusCode::kOutOfDisk);
    probe.fail_writes_after = -1;
    WriteBatch other;
    other.put(Family::kSessions, "b", "2");
    EXPECT_TRUE(marked->storage->write(other, Durability::kSynced).ok());
  }
  auto marked = open_marked(folder / "db", folder / "MARK");
  ASSERT_TRUE(marked.ok());
  EXPECT_EQ(marked->recovery.detail, "");
}

// A MANIFEST that is being written counts as far as its writer says that it was synced.
TEST(ManifestWatch, notes_only_what_was_synced) {
  const TemporaryFolder folder;
  const std::string path = folder / "MANIFEST-000007";
  write_file(folder / "CURRENT", "MANIFEST-000007\n");
  write_file(path, std::string(60, 'a') + std::string(40, 'b'));
  ManifestWatch watch(folder.path().string());
  note_manifest_synced(path, 60);
  const ManifestPoint point = watch.look();
  EXPECT_EQ(point.number, 7u);
  EXPECT_EQ(point.n_bytes, 60u);
  forget_manifest(path);
  EXPECT_EQ(watch.look().n_bytes, 100u);  // and synced by the call

  ManifestWatch next(folder.path().string());
  EXPECT_TRUE(next.still_has(point));
  fs::resize_file(path, 59);
  EXPECT_FALSE(ManifestWatch(folder.path().string()).still_has(point));
}

}  // namespace
}  // namespace cairn::session
