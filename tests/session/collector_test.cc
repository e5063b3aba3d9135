// What a store gives up when room is needed, and what it keeps whatever happens.
#include "session/collector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "session/storage_key.h"
#include "tests/session/sample_sessions.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::SampleSession;

constexpr std::int64_t kMiB = 1 << 20;

bool go_on(std::int64_t) { return true; }

// Whether some file of the store holds the bytes.
bool files_hold(const std::string& folder, std::string_view bytes) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (test::read_file(entry.path().string()).find(bytes) != std::string::npos) {
      std::printf("  in %s\n", entry.path().filename().c_str());
      return true;
    }
  }
  return false;
}

std::string_view middle_of(const test::Bytes& payload) {
  return {reinterpret_cast<const char*>(payload.data()) + payload.size() / 2, 64};
}

CollectReport collect(SessionStore& store, std::int64_t target_bytes) {
  const auto report = Collection(store, go_on).make_room(target_bytes);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *report : CollectReport();
}

TEST(Collection, gives_up_the_longest_unused_session_first_and_its_end_first) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  std::vector<std::unique_ptr<SampleSession>> sessions;
  for (std::uint32_t i = 0; i < 4; ++i) {
    sessions.push_back(std::make_unique<SampleSession>(*store, "s" + std::to_string(i), i + 1));
    for (int n = 0; n < 5; ++n) sessions[i]->grow(16, 0, 1'700'000'000'000 + i * 86'400'000LL);
  }
  const CollectReport report = collect(*store, test::bytes_on_disk(*store) - 12 * kMiB);
  EXPECT_LE(report.bytes_after, report.bytes_before - 12 * kMiB);
  EXPECT_GE(report.bytes_after, report.bytes_before - 16 * kMiB);
  EXPECT_EQ(test::bytes_on_disk(*store), report.bytes_after);
  EXPECT_EQ(sessions[0]->check_chain(), 0u);
  EXPECT_GT(sessions[1]->check_chain(), 30u);
  EXPECT_LT(sessions[1]->check_chain(), 80u);
  EXPECT_EQ(sessions[2]->check_chain(), 80u);
  EXPECT_EQ(sessions[3]->check_chain(), 80u);
  EXPECT_EQ(store->read_counters().blocks_evicted, report.blocks_removed);
}

TEST(Collection, what_is_there_stays_while_there_is_room) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession session(*store, "old", 1);
  session.grow(32, 3'300'000, /*used_ms=*/1);  // 1970
  const CollectReport report = collect(*store, store->space().quota());
  EXPECT_EQ(report.blocks_removed, 0);
  EXPECT_EQ(report.tails_removed, 0);
  EXPECT_EQ(session.check_chain(), 32u);
}

TEST(Collection, an_open_session_and_a_chain_that_is_held_stay_whole) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession open(*store, "open", 1), held(*store, "held", 2), other(*store, "other", 3);
  open.grow(40, 3'300'000, 1'000);
  held.grow(40, 0, 1'000);
  other.grow(40, 3'300'000, 1'700'000'000'000);
  const auto lease = store->lease(open.record().id);
  ASSERT_TRUE(lease.ok());
  BlockStore::Hold hold(store->blocks());
  hold.set(held.chain()[19].key);
  const CollectReport report = collect(*store, 1);
  EXPECT_EQ(open.check_chain(), 40u);
  EXPECT_EQ(held.check_chain(), 20u);
  EXPECT_EQ(other.check_chain(), 0u);
  EXPECT_EQ(report.blocks_removed, 60);
  EXPECT_EQ(report.tails_removed, 1);
  EXPECT_TRUE(store->find_tail(open.record().id).ok());
  hold.set(std::nullopt);
  EXPECT_EQ(collect(*store, 1).blocks_removed, 20);
}

TEST(Collection, blocks_that_nobody_reaches_go_before_all_others) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession old(*store, "old", 1), removed(*store, "removed", 2);
  old.grow(40, 0, 1'000);
  removed.grow(40);
  ASSERT_TRUE(store->remove_session(removed.record().id).ok());
  const CollectReport report = collect(*store, test::bytes_on_disk(*store) - 3 * kMiB);
  EXPECT_LE(report.bytes_after, report.bytes_before - 3 * kMiB);
  EXPECT_EQ(old.check_chain(), 40u);
  EXPECT_LT(removed.check_chain(), 20u);
}

TEST(Collection, a_prefix_that_two_sessions_share_outlives_their_ends) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession origin(*store, "origin", 1), fork(*store, "fork", 2);
  origin.grow(16, 0, 1'000'000);
  fork.fork(origin);
  fork.grow(48, 0, 1'000'000);
  origin.grow(48, 0, 1'000'000);
  (void)collect(*store, test::bytes_on_disk(*store) - 9 * kMiB);
  EXPECT_GE(origin.check_chain(), 16u);
  EXPECT_GE(fork.check_chain(), 16u);
  EXPECT_LT(origin.check_chain() + fork.check_chain(), 128u - 70u);
}

TEST(Collection, bytes_that_a_crash_left_without_an_index_entry_are_given_back) {
  const test::TemporaryFolder folder;
  std::uint32_t kv_namespace = 0;
  {
    const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
    SampleSession session(*store, "name", 1);
    session.grow(16);
    kv_namespace = session.record().kv_namespace;
    WriteBatch batch;  // what is written past the log before the commit that never came
    const test::Bytes payload = test::random_bytes(5, test::kBlockBytes);
    for (std::uint64_t number = 16; number < 48; ++number) {
      batch.put_bulk(Family::kBlocks, block_number_key(kv_namespace, number), "head", payload);
    }
    ASSERT_TRUE(store->storage().write(batch, Durability::kSynced).ok());
  }
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  const CollectReport report = collect(*store, store->space().quota());
  EXPECT_EQ(report.blocks_removed, 0);
  EXPECT_LT(report.bytes_after, report.bytes_before - 3 * kMiB);
  EXPECT_LT(store->storage().table_bytes(Family::kBlocks), 2 * kMiB);
  EXPECT_EQ(store->stats()->n_blocks, 16);
}

// One block a commit shares tables with others: these are rewritten.
TEST(Collection, blocks_that_came_one_by_one_are_given_back_too) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession a(*store, "a", 1), b(*store, "b", 2);
  for (int i = 0; i < 100; ++i) {
    a.grow(1, 0, 1'000);
    b.grow(1, 0, 1'700'000'000'000);
  }
  ASSERT_TRUE(store->storage().flush().ok());
  const CollectReport report = collect(*store, test::bytes_on_disk(*store) - 10 * kMiB);
  EXPECT_LE(report.bytes_after, report.bytes_before - 10 * kMiB);
  EXPECT_LE(a.check_chain(), 12u);
  EXPECT_EQ(b.check_chain(), 100u);
}

TEST(Collection, a_removed_session_is_in_no_file_any_more) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  SampleSession kept(*store, "kept", 1), gone(*store, "gone-session-name", 2);
  kept.grow(16);
  gone.fork(kept);
  for (int i = 0; i < 4; ++i) {
    gone.grow(16, i % 2 == 0 ? 400'000 : 4'000);
    kept.grow(1, 0);
    gone.grow(1, 0);
  }
  const std::string text = "a text that only the removed session has";
  ASSERT_TRUE(store
                  ->commit({.session = gone.record().id,
                            .events = {test::user_event(gone.record().n_events + 1, text)}})
                  .ok());
  ASSERT_TRUE(files_hold(folder / "store", text));
  ASSERT_TRUE(files_hold(folder / "store", middle_of(gone.chain()[20].payload)));
  const auto report = Collection(*store, go_on).remove_session(gone.record().id);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->blocks_removed, 68);
  EXPECT_FALSE(files_hold(folder / "store", text));
  EXPECT_FALSE(files_hold(folder / "store", "gone-session-name"));
  for (std::size_t i = 16; i < gone.chain().size(); ++i) {
    EXPECT_FALSE(files_hold(folder / "store", middle_of(gone.chain()[i].payload))) << i;
  }
  for (const std::size_t n_bytes : {400'000, 4'000}) {
    const test::Bytes tail = test::random_bytes(2 + 77, n_bytes);
    EXPECT_FALSE(files_hold(folder / "store", middle_of(tail)));
  }
  EXPECT_EQ(kept.check_chain(), 20u);
}

TEST(Collection, what_a_commit_builds_on_is_not_taken_from_under_it) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  const auto chain = test::sample_chain(1, 8, 5000);
  const SessionId id = test::create(*store, "name").id;
  const std::uint32_t kv_namespace = *store->open_namespace(test::kSampleNamespace);
  Commit commit = {.session = id, .kv_namespace = kv_namespace};
  for (std::size_t i = 0; i < 4; ++i) commit.blocks.push_back(chain[i].view());
  ASSERT_TRUE(store->commit(commit).ok());  // no record names them: nobody needs them
  std::vector<UnneededBlock> victims;
  for (std::size_t i = 4; i-- > 0;) victims.push_back({chain[i].key, chain[i].parent});
  {
    BlockStore::Watch watch(store->blocks());
    const std::vector<NewBlock> next = {chain[4].view()};
    {
      BlockStore::Claim claim(store->blocks());
      ASSERT_TRUE(store->blocks().claim_missing(next, claim).ok());
      EXPECT_EQ(*watch.remove(victims), std::vector<bool>(4, false));
    }
    EXPECT_EQ(*watch.remove(victims), std::vector<bool>(4, false));  // it was, since the watch
  }
  BlockStore::Watch watch(store->blocks());
  ASSERT_TRUE(store->has_block(chain[1].key).ok());  // somebody restores up to here
  EXPECT_EQ(*watch.remove(victims), (std::vector<bool>{true, true, false, false}));
}

TEST(Collector, frees_room_by_itself_when_the_quota_is_near) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 64 * kMiB);
  Collector collector(*store);
  // Nobody asks for room: what is refused is tried again until the collector has made some.
  int n_refused = 0;
  for (std::uint32_t i = 0; i < 20 && !HasFailure(); ++i) {
    SampleSession session(*store, "s" + std::to_string(i), i + 1);
    for (int n = 0; n < 4; ++n) {
      for (; !session.grow(16) && !HasFailure(); ++n_refused) {
        EXPECT_TRUE(collector.last_error().ok()) << collector.last_error().to_string();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }
  std::printf("80 commits with state, %d refused\n", n_refused);
  EXPECT_GT(store->read_counters().blocks_evicted, 300);
  EXPECT_LE(test::bytes_on_disk(*store), 64 * kMiB);
}

// Nobody asks for it, and the quota is far.
TEST(Collector, gives_the_space_of_replaced_tails_back_by_itself) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 1024 * kMiB);
  Collector collector(*store);
  SampleSession session(*store, "name", 1);
  for (int i = 0; i < 12; ++i) session.grow(1, 8'000'000);
  const auto table_bytes = [&] { return store->storage().table_bytes(Family::kTails); };
  for (int i = 0; i < 3000 && table_bytes() > 32'000'000; ++i) {  // of at least 40 MB
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(table_bytes(), 32'000'000);
  EXPECT_EQ(session.check_chain(), 12u);
  EXPECT_TRUE(collector.last_error().ok()) << collector.last_error().to_string();
}

TEST(Collector, a_collection_on_request_reports_what_it_did) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  Collector collector(*store);
  SampleSession session(*store, "name", 1);
  for (int i = 0; i < 4; ++i) session.grow(16);
  EXPECT_EQ(collector.collect({.target_bytes = -1}).status().code(), StatusCode::kInvalidArgument);
  const auto nothing = collector.collect({});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->blocks_removed, 0);
  const auto report = collector.collect({.target_bytes = nothing->bytes_after - 2 * kMiB});
  ASSERT_TRUE(report.ok());
  EXPECT_GE(report->blocks_removed, 16);
  EXPECT_LE(report->bytes_after, nothing->bytes_after - 2 * kMiB);
}

TEST(Collector, an_error_stays_with_the_collector) {
  const test::TemporaryFolder folder;
  test::ProbedStore probed = test::open_probed(folder / "store");
  Collector collector(*probed.store);
  SampleSession session(*probed.store, "name", 1);
  session.grow(16);
  probed.storage->fail_writes_after = 0;
  EXPECT_EQ(collector.collect({.target_bytes = 1}).status().code(), StatusCode::kOutOfDisk);
  EXPECT_EQ(session.check_chain(), 16u);
}

}  // namespace
}  // namespace cairn::session
