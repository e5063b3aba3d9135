// A store on a small file system that fills up. A program of its own: the small file system is
// mounted where only this process sees it, and threads that exist by then would not.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "session/rocksdb_storage.h"
#include "session/session_store.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::code_of;
using test::SampleBlock;

// Mounts an empty file system of 160 MB; says why it cannot.
std::string mount_small_disk(const std::string& path) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return std::string("no mount namespace: ") + std::strerror(errno);
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", path.c_str(), "tmpfs", 0, "size=160m") != 0) {
    return std::string("mount: ") + std::strerror(errno);
  }
  return {};
}

// The disk is the limit here.
const StoreOptions kNoQuota = {.quota_bytes = std::int64_t{1} << 40};

// A store that writes until the disk is full.
std::unique_ptr<SessionStore> open_greedy_store(const std::string& path) {
  Result<StoreDirectory> directory = StoreDirectory::open(path, true);
  auto storage = open_rocksdb_storage(directory->database_path(), {.free_bytes_kept = 0});
  EXPECT_TRUE(storage.ok()) << storage.status().to_string();
  auto store = SessionStore::open_on(std::move(*directory), std::move(*storage), kNoQuota);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return std::move(*store);
}

// Fills a new store in `folder` until the disk, of which `n_taken` bytes are in use by others, is
// full; then opens it on the full disk and on one with room.
void fill_and_reopen(const test::TemporaryFolder& folder, const std::vector<SampleBlock>& chain,
                     std::size_t n_taken) {
  const std::string filler = folder / "filler";
  test::write_file(filler, std::string(n_taken, 'x'));
  std::size_t n_acknowledged = 0;
  SessionId id;
  {
    const auto store = open_greedy_store(folder / "store");
    id = test::create(*store, "name").id;
    const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
    StatusCode code = StatusCode::kOk;
    while (code == StatusCode::kOk && n_acknowledged < chain.size()) {
      code = code_of(store->commit({.session = id,
                                    .events = {test::user_event(n_acknowledged + 1, "message")},
                                    .kv_namespace = name_space,
                                    .blocks = {chain[n_acknowledged].view()}}));
      n_acknowledged += code == StatusCode::kOk;
    }
    EXPECT_EQ(code, StatusCode::kOutOfDisk);
    EXPECT_GT(n_acknowledged, 20u);
    // What is written stays readable. Space that comes back does not make this store writable.
    test::write_file(filler, "");
    EXPECT_EQ(code_of(store->create_session({.name = "other"})), StatusCode::kOutOfDisk);
    EXPECT_EQ(store->sync().code(), StatusCode::kOutOfDisk);
    EXPECT_TRUE(store->get_block(chain[0].key, chain[0].tokens).ok());
  }
  // Opening moves the log's content into tables, and says so where it cannot.
  test::write_file(filler, std::string(160 << 20, 'x'));  // as much as there is room for
  EXPECT_EQ(SessionStore::open(folder / "store").status().code(), StatusCode::kOutOfDisk);
  std::filesystem::remove(filler);

  const auto store = test::open_store(folder / "store", kNoQuota);
  ASSERT_NE(store, nullptr);
  const auto events = store->read_events(id);
  ASSERT_TRUE(events.ok()) << events.status().to_string();
  EXPECT_GE(events->size(), n_acknowledged);
  EXPECT_LE(events->size(), n_acknowledged + 1);
  for (std::size_t i = 0; i < events->size(); ++i) {
    const auto block = store->get_block(chain[i].key, chain[i].tokens);
    ASSERT_TRUE(block.ok()) << block.status().to_string();
    EXPECT_TRUE(test::same_bytes(block->payload(), chain[i].payload));
  }
  EXPECT_TRUE(store->create_session({.name = "other"}).ok());
}

// A store as hosts open it refuses payloads first, then everything, and goes on when there is room.
void refuse_before_full(const test::TemporaryFolder& folder,
                        const std::vector<SampleBlock>& chain) {
  const auto store = test::open_store(folder / "store", kNoQuota);
  const SessionId id = test::create(*store, "name").id;
  Commit commit = {.session = id, .kv_namespace = *store->open_namespace(test::kSampleNamespace)};
  std::size_t n_blocks = 0;
  StatusCode code = StatusCode::kOk;
  while (code == StatusCode::kOk && n_blocks < chain.size()) {
    commit.blocks = {chain[n_blocks].view()};
    code = code_of(store->commit(commit));
    n_blocks += code == StatusCode::kOk;
  }
  EXPECT_EQ(code, StatusCode::kOutOfDisk);
  EXPECT_TRUE(store->commit({.session = id, .events = {test::user_event(1, "a")}}).ok());
  test::write_file(folder / "filler", std::string(90 << 20, 'x'));
  EXPECT_EQ(code_of(store->commit({.session = id, .events = {test::user_event(2, "b")}})),
            StatusCode::kOutOfDisk);
  std::filesystem::remove(folder / "filler");
  EXPECT_TRUE(store->commit({.session = id, .events = {test::user_event(2, "b")}}).ok());
  EXPECT_EQ(store->read_events(id)->size(), 2u);
}

// One test, since the process has one small disk.
TEST(SessionStore, a_full_disk_stops_writing_and_loses_nothing) {
  const test::TemporaryFolder folder;
  if (const std::string reason = mount_small_disk(folder.path().string()); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const auto chain = test::sample_chain(1, 600, 113'920);
  // The last byte goes to the log, to a table, or to the database's list of files.
  for (std::size_t n_taken = 100 << 20; n_taken < 152 << 20; n_taken += (6 << 20) + 12'345) {
    SCOPED_TRACE("taken by others: " + std::to_string(n_taken));
    fill_and_reopen(folder, chain, n_taken);
    std::filesystem::remove_all(folder / "store");
  }
  refuse_before_full(folder, chain);
}

}  // namespace
}  // namespace cairn::session
