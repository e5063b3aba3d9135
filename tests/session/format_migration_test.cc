// A store that the release before this one made (tests/golden/store-v1) opens, is brought to this
// format, and keeps what it had.
#include "session/format_migration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;

using test::TemporaryFolder;

class OldStore : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(CAIRN_TEST_DATA) / "store-v1", path, fs::copy_options::recursive);
  }
  std::string format_line(int n) const {
    std::ifstream in(path / "FORMAT");
    std::string line;
    while (n-- > 0) std::getline(in, line);
    return line;
  }

  TemporaryFolder folder;
  fs::path path = fs::path(folder / "store");
};

// Sessions, their logs and tails read like those of a store of this format; twice.
TEST_F(OldStore, opens_and_keeps_sessions_events_and_tails) {
  EXPECT_EQ(format_line(2), "format 1");
  for (const char* const when : {"migrated", "opened again"}) {
    SCOPED_TRACE(when);
    const auto store = test::open_store(path);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->header().format_version, kFormatVersion);
    EXPECT_EQ(store->recovery().detail, "");
    const auto sessions = store->list();
    ASSERT_TRUE(sessions.ok()) << sessions.status().to_string();
    ASSERT_GT(sessions->size(), 0u);
    int n_tails = 0;
    for (const SessionRecord& record : *sessions) {
      const auto events = store->read_events(record.id);
      ASSERT_TRUE(events.ok()) << events.status().to_string();
      EXPECT_EQ(events->size(), record.n_events) << record.name;
      EXPECT_EQ(record.turn_open, record.open_turn != 0) << record.name;
      const auto tails = store->find_tails(record.id);
      ASSERT_TRUE(tails.ok());
      EXPECT_EQ(tails->n_corrupt, 0);
      for (const TailRecord& tail : tails->tails) {
        EXPECT_GT(tail.number, 0u);
        EXPECT_TRUE(store->get_tail(record.id, tail.slot).ok()) << record.name;
        ++n_tails;
      }
    }
    EXPECT_GT(n_tails, 0);
    EXPECT_GT(store->stats()->n_blocks, 0);
  }
  EXPECT_EQ(format_line(2), "format 2");
  EXPECT_EQ(format_line(3), "reader 2");
}

TEST_F(OldStore, a_migration_that_was_interrupted_begins_again) {
  std::int64_t n_tails = 0;
  for (int n_writes = 1;; ++n_writes) {
    SCOPED_TRACE(n_writes);
    ASSERT_LT(n_writes, 100);
    auto directory = StoreDirectory::open(path, false);
    ASSERT_TRUE(directory.ok());
    auto inner = open_rocksdb_storage(directory->database_path());
    ASSERT_TRUE(inner.ok());
    auto probed = std::make_unique<test::ProbedStorage>(std::move(*inner));
    probed->failure = {StatusCode::kIoError, "pulled"};
    probed->fail_writes_after = n_writes;
    const auto store = SessionStore::open_on(std::move(*directory), std::move(probed));
    if (!store.ok()) continue;
    n_tails = (*store)->stats()->n_tails;
    break;
  }
  EXPECT_GT(n_tails, 0);
  const auto store = test::open_store(path);
  const auto sessions = store->list();
  ASSERT_TRUE(sessions.ok());
  for (const SessionRecord& record : *sessions) {
    const auto found = store->find_tails(record.id);
    ASSERT_TRUE(found.ok());
    for (const TailRecord& tail : found->tails) {
      EXPECT_TRUE(store->get_tail(record.id, tail.slot).ok());
    }
  }
}

}  // namespace
}  // namespace cairn::session
