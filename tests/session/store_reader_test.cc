// A store seen from outside: while nobody has it, while an owner works on it, after the owner was
// killed; and what verification finds.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <list>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/sha256.h"
#include "session/session_import.h"
#include "session/session_store.h"
#include "session/storage_key.h"
#include "tests/session/session_author.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;
using test::Author;
using test::code_of;
using test::SampleBlock;
using test::TemporaryFolder;

struct ReadStore : testing::Test {
  TemporaryFolder folder;
  std::string path = folder / "store";

  StoreReader reader() {
    Result<StoreReader> opened = StoreReader::open(path);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(*opened);
  }
  VerifyReport verify() {
    Result<VerifyReport> report = reader().verify();
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return std::move(*report);
  }
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

testing::AssertionResult is_clean(const VerifyReport& report) {
  if (report.problems.empty() && report.notes.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << joined(report.problems) << joined(report.notes);
}

// -- reading --

TEST_F(ReadStore, shows_sessions_trees_and_sizes) {
  auto store = test::open_store(path);
  Author a(*store, "first", 1), b(*store, "second", 2);
  a.take_turn(3, 17, 900);
  a.take_turn(2, 5, 900);
  b.take_turn(1, 0, 900);
  const StoreReader from_outside = reader();
  const auto list = from_outside.list();
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 2u);

  const auto tree = from_outside.show("first");
  ASSERT_TRUE(tree.ok()) << tree.status().to_string();
  ASSERT_EQ(tree->events.size(), 8u);
  EXPECT_EQ(tree->head, 8u);
  EXPECT_EQ(tree->events[0].kind, "message");
  EXPECT_EQ(tree->events[0].summary, "user: do it [2J again");
  EXPECT_EQ(tree->events[7].summary, "stop: done");
  EXPECT_TRUE(tree->events[0].on_path && tree->events[7].on_path);
  EXPECT_EQ(tree->n_blocks, 5);
  EXPECT_EQ(tree->bytes_blocks, 5 * 900);
  EXPECT_EQ(tree->n_blocks_shared, 0);
  EXPECT_EQ(tree->tail_position, 5 * 128 + 5);
  EXPECT_EQ(from_outside.show("third").status().code(), StatusCode::kNotFound);

  const auto stats = from_outside.stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->n_sessions, 2);
  EXPECT_EQ(stats->n_blocks, 6);
  EXPECT_EQ(stats->n_tails, 2);
  EXPECT_GT(stats->bytes_on_disk, 0);
  EXPECT_EQ(from_outside.owner(), "this process (pid " + std::to_string(getpid()) + ")");
  EXPECT_TRUE(is_clean(verify()));
}

TEST_F(ReadStore, the_view_stays_as_of_its_opening) {
  test::ProbedStore probed = test::open_probed(path);
  Author author(*probed.store, "name", 1);
  author.take_turn(4, 9, 5000);
  const StoreReader before = reader();
  author.take_turn(2, 3, 5000);
  ASSERT_TRUE(probed.store->remove_session(author.record().id).ok());
  for (const SampleBlock& block : author.chain()) {
    ASSERT_TRUE(probed.store->blocks().drop(block.key).ok());
  }
  ASSERT_TRUE(probed.storage->flush().ok());
  ASSERT_TRUE(
      probed.storage->reclaim(Family::kBlocks, block_number_key(0, 0), block_number_key(9, 0))
          .ok());
  EXPECT_EQ(before.show("name")->n_blocks, 4);
  const auto report = before.verify();
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(is_clean(*report));
  EXPECT_EQ(report->n_blocks, 4);
  EXPECT_EQ(reader().list()->size(), 0u);
}

TEST_F(ReadStore, what_is_no_store_is_said_so) {
  EXPECT_EQ(code_of(StoreReader::open(path)), StatusCode::kNotFound);
  fs::create_directory(path);
  EXPECT_EQ(code_of(StoreReader::open(path)), StatusCode::kNotFound);
  test::write_file(path + "/file", "x");
  EXPECT_EQ(code_of(StoreReader::open(path)), StatusCode::kNotFound);
  EXPECT_EQ(code_of(StoreReader::open(path + "/file")), StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(path + "/db"));
}

TEST_F(ReadStore, a_secret_for_a_plain_store_is_refused) {
  test::open_store(path);
  EXPECT_EQ(code_of(StoreReader::open(path, {.passphrase = "x"})), StatusCode::kInvalidArgument);
}

// Everything that could change below the directory.
std::map<std::string, std::string> listing(const std::string& directory) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::path& file) {
    struct stat info = {};
    ASSERT_EQ(lstat(file.c_str(), &info), 0);
    std::string facts = std::to_string(info.st_ino) + " " + std::to_string(info.st_mode) + " " +
                        std::to_string(info.st_nlink) + " " + std::to_string(info.st_size) + " " +
                        std::to_string(info.st_mtim.tv_sec) + "." +
                        std::to_string(info.st_mtim.tv_nsec);
    if (file.extension() != ".sst") {  // a table was linked and unlinked, which its ctime shows
      facts +=
          " " + std::to_string(info.st_ctim.tv_sec) + "." + std::to_string(info.st_ctim.tv_nsec);
    }
    if (S_ISREG(info.st_mode)) {
      const std::string bytes = test::read_file(file);
      facts += " " + engine::hex(engine::sha256(std::as_bytes(std::span(bytes))));
    }
    files[file] = facts;
  };
  add(directory);
  for (const auto& entry : fs::recursive_directory_iterator(directory)) add(entry.path());
  return files;
}

TEST_F(ReadStore, reading_changes_nothing_in_the_directory) {
  const auto read_everything = [&] {
    const StoreReader from_outside = reader();
    EXPECT_TRUE(from_outside.list().ok() && from_outside.stats().ok());
    EXPECT_TRUE(from_outside.show("name").ok());
    EXPECT_TRUE(is_clean(*from_outside.verify()));
  };
  TemporaryFolder temporary;
  setenv("TMPDIR", temporary.path().c_str(), 1);
  {
    auto store = test::open_store(path);
    Author author(*store, "name", 1);
    author.take_turn(3, 17, 50'000);
    const auto owned = listing(path);
    read_everything();
    EXPECT_EQ(listing(path), owned);
  }
  const auto closed = listing(path);
  read_everything();
  EXPECT_EQ(listing(path), closed);
  EXPECT_EQ(reader().owner(), "");
  EXPECT_TRUE(fs::is_empty(temporary.path()));
  unsetenv("TMPDIR");
}

TEST_F(ReadStore, the_store_of_a_killed_owner_is_readable_without_it) {
  // The owner is this program started anew: a forked one would lack RocksDB's threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("CAIRN_KILLED_STORE", path.c_str(), /*overwrite=*/0);
  const std::string owned = getenv("CAIRN_KILLED_STORE");
  EXPECT_EXIT(
      {
        auto store = test::open_store(owned);
        Author author(*store, "name", 1);
        author.take_turn(3, 17, 20'000);
        author.take_turn(1, 1, 20'000, Durability::kBuffered);
        raise(SIGKILL);
      },
      testing::KilledBySignal(SIGKILL), "");
  unsetenv("CAIRN_KILLED_STORE");
  const auto killed = listing(path);
  {
    const StoreReader from_outside = reader();
    EXPECT_EQ(from_outside.owner(), "");
    EXPECT_EQ(from_outside.show("name")->events.size(), 8u);
    EXPECT_TRUE(is_clean(*from_outside.verify()));
  }
  EXPECT_EQ(listing(path), killed);
  EXPECT_EQ(test::open_store(path)->list()->size(), 1u);
}

// -- export and import --

struct ExportedSession : ReadStore {
  std::string file = folder / "session.cairn", other_path = folder / "other";

  void SetUp() override {
    auto store = test::open_store(path);
    Author author(*store, "name", 1);
    author.take_turn(3, 17, 900);
    author.take_turn(2, 5, 900);
    ASSERT_TRUE(reader().export_session("name", file).ok());
  }
  // Of the file as it is, into another store.
  Result<SessionRecord> import(const std::string& name = "") {
    return import_session(*test::open_store(other_path), file, name);
  }
  StoreReader other_reader() { return std::move(*StoreReader::open(other_path)); }
};

TEST_F(ExportedSession, comes_back_whole_in_another_store) {
  struct stat info = {};
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(reader().export_session("name", file).code(), StatusCode::kAlreadyExists);

  const auto record = import("copy");
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  const auto before = reader().show("name"), after = other_reader().show("copy");
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_NE(after->info.id, before->info.id);
  EXPECT_EQ(after->events.size(), before->events.size());
  for (std::size_t i = 0; i < after->events.size(); ++i) {
    EXPECT_EQ(after->events[i].summary, before->events[i].summary);
    EXPECT_EQ(after->events[i].parent, before->events[i].parent);
  }
  EXPECT_EQ(after->head, before->head);
  EXPECT_EQ(after->n_blocks, 5);
  EXPECT_EQ(after->bytes_blocks, before->bytes_blocks);
  EXPECT_EQ(after->tail_position, before->tail_position);
  EXPECT_TRUE(is_clean(*other_reader().verify()));
}

TEST_F(ExportedSession, blocks_that_are_there_already_are_shared) {
  ASSERT_TRUE(import("a").ok());
  ASSERT_TRUE(import("b").ok());
  EXPECT_EQ(import("b").status().code(), StatusCode::kAlreadyExists);
  const auto tree = other_reader().show("a");
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->n_blocks_shared, 5);
  EXPECT_EQ(other_reader().stats()->n_blocks, 5);
  EXPECT_TRUE(is_clean(*other_reader().verify()));
}

TEST_F(ExportedSession, every_cut_and_every_flip_of_the_file_is_refused) {
  const std::string whole = test::read_file(file);
  auto store = test::open_store(other_path);
  int n_refused = 0;
  const auto expect_refused = [&](const std::string& bytes, std::size_t at) {
    test::write_file(file, bytes);
    const auto record = import_session(*store, file, "");
    const StatusCode code = record.status().code();
    EXPECT_TRUE(code == StatusCode::kCorrupt || code == StatusCode::kUnsupported)
        << "at " << at << ": " << record.status().to_string();
    ++n_refused;
  };
  for (std::size_t n = 0; n < whole.size(); n += 1 + n / 40) expect_refused(whole.substr(0, n), n);
  for (std::size_t i = 0; i < whole.size(); i += 1 + i / 40) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    if (i < 20 || i >= 24) expect_refused(bytes, i);  // four bytes are for later versions
  }
  expect_refused(whole + "x", whole.size());
  EXPECT_TRUE(store->list()->empty());
  EXPECT_EQ(store->stats()->n_blocks, 0);
  std::printf("%d damaged files of %zu bytes\n", n_refused, whole.size());
}

// -- an owner at work --

// Sessions come, grow and go, their blocks are removed and the space of these reclaimed, until
// `stop`.
void work(const test::ProbedStore& probed, std::uint32_t seed, const std::atomic<bool>& stop,
          std::atomic<int>& n_turns, std::atomic<int>& n_reclaimed) {
  std::mt19937 random(seed);
  std::list<Author> authors;
  for (std::uint32_t n_made = 0; !stop;) {
    if (authors.size() < 3 || random() % 4 == 0) {
      const std::uint32_t id = 100 * seed + n_made++;
      authors.emplace_back(*probed.store, "session " + std::to_string(id), id);
    }
    Author& author = *std::next(authors.begin(), random() % static_cast<long>(authors.size()));
    author.take_turn(1 + random() % 8, random() % 128, 10'000 + random() % 60'000,
                     random() % 2 ? Durability::kSynced : Durability::kBuffered);
    ++n_turns;
    if (authors.size() < 6) continue;
    const Author gone = authors.front();
    authors.pop_front();
    ASSERT_TRUE(probed.store->remove_session(gone.record().id).ok());
    for (const SampleBlock& block : gone.chain()) {
      ASSERT_TRUE(probed.store->blocks().drop(block.key).ok());
    }
    ASSERT_TRUE(
        probed.storage->reclaim(Family::kBlocks, block_number_key(0, 0), block_number_key(2, 0))
            .ok());
    if (random() % 4 == 0) {
      ASSERT_TRUE(probed.storage->flush().ok());
    }
    ++n_reclaimed;
  }
}

TEST_F(ReadStore, every_view_is_whole_while_the_owner_writes_ingests_and_reclaims) {
  const std::uint32_t seed = std::random_device()() % 100'000;
  std::atomic<bool> stop = false;
  std::atomic<int> n_turns = 0, n_reclaimed = 0;
  const test::ProbedStore probed = test::open_probed(path);
  std::thread owner([&] { work(probed, seed, stop, n_turns, n_reclaimed); });
  int n_with_notes = 0;
  std::int64_t n_blocks = 0;
  for (int i = 0; i < 100; ++i) {
    const VerifyReport report = verify();
    EXPECT_TRUE(report.problems.empty()) << "seed " << seed << "\n" << joined(report.problems);
    n_with_notes += !report.notes.empty();
    n_blocks += report.n_blocks;
  }
  stop = true;
  owner.join();
  std::printf("seed %u: 100 views of %lld blocks in all, %d with notes; %d turns, %d reclaimed\n",
              seed, static_cast<long long>(n_blocks), n_with_notes, n_turns.load(),
              n_reclaimed.load());
}

}  // namespace
}  // namespace cairn::session
