// Memory that runs out anywhere in the durable store: in commits, while a store is opened, in
// restores, in collections. The n-th allocation fails, for every n, once and from then on: the call
// says OUT_OF_MEMORY, what was acknowledged is there, and with memory again the store goes on.
//
// Allocations within RocksDB do not fail: it has no answer to that. A storage between it and the
// store keeps the shortage from it, and lets it go on in what a visitor does. A program of its own,
// since it replaces the allocator.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/block_reader.h"
#include "session/collection.h"
#include "session/marked_storage.h"
#include "tests/session/sample_sessions.h"
#include "tests/session/store_samples.h"
#include "tests/support/failing_allocations.h"
#include "tests/support/temporary_folder.h"

using cairn::test::allocations_left;
using cairn::test::fails_once;

namespace cairn::session {
namespace {

using test::SampleBlock;

// Memory as it is for the test while it lives; `left` goes on counting afterwards.
class Plenty {
 public:
  Plenty() : left_(std::exchange(allocations_left, -1)) {}
  Plenty(const Plenty&) = delete;
  Plenty& operator=(const Plenty&) = delete;
  ~Plenty() { allocations_left = left_; }

  // The shortage for as long as `call` runs.
  template <class Call>
  auto except_for(const Call& call) {
    struct Back {
      std::int64_t& left;
      ~Back() { left = std::exchange(allocations_left, -1); }
    } const back{left_};
    allocations_left = left_;
    return call();
  }

 private:
  std::int64_t left_;
};

// Borrows `inner`, so that a store can be opened many times on one database.
class Sheltered final : public Storage {
 public:
  explicit Sheltered(Storage& inner) : inner_(inner) {}

  // What read-ahead threads begin with at their first value; negative = plenty.
  std::int64_t allocations_of_readers = -1;

  Result<std::string> get(Family family, std::string_view key) override {
    const Plenty plenty;
    return inner_.get(family, key);
  }
  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    const Plenty plenty;
    return inner_.multi_get(family, keys);
  }
  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    if (allocations_of_readers >= 0) {
      allocations_left = std::exchange(allocations_of_readers, -1);
    }
    Plenty plenty;
    return inner_.view(family, keys, [&](std::size_t i, std::optional<std::string_view> value) {
      return plenty.except_for([&] { return visit(i, value); });
    });
  }
  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    Plenty plenty;
    return inner_.scan(family, prefix, first, [&](std::string_view key, std::string_view value) {
      return plenty.except_for([&] { return visit(key, value); });
    });
  }
  Status write(const WriteBatch& batch, Durability durability) override {
    const Plenty plenty;
    return inner_.write(batch, durability);
  }
  Status flush() override {
    const Plenty plenty;
    return inner_.flush();
  }
  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    const Plenty plenty;
    return inner_.reclaim(family, first, last);
  }
  Status drop_tables(Family family, std::span<const KeyRange> ranges) override {
    const Plenty plenty;
    return inner_.drop_tables(family, ranges);
  }
  std::int64_t table_bytes(Family family) const override {
    const Plenty plenty;
    return inner_.table_bytes(family);
  }
  std::int64_t bytes_written() const override {
    const Plenty plenty;
    return inner_.bytes_written();
  }

 private:
  Storage& inner_;
};

// What a host's call comes to: the bindings and the strand turn what is thrown into this code.
template <class Call>
Status with_short_memory(std::int64_t n, bool once, const Call& call) {
  Status status;
  bool thrown = false;
  fails_once = once;
  allocations_left = n;
  try {
    status = call();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  allocations_left = -1;
  return thrown ? Status(StatusCode::kOutOfMemory, "thrown") : status;
}

// A store that can be closed and opened on one database.
class OneStore {
 public:
  OneStore() {
    auto directory = StoreDirectory::open(path_, true);
    EXPECT_TRUE(directory.ok()) << directory.status().to_string();
    database_path_ = directory->database_path();
    database_ = std::move(*open_rocksdb_storage(database_path_));
  }

  // All that SessionStore::open does, but for opening the database.
  Status open() {
    CAIRN_ASSIGN_OR_RETURN(StoreDirectory directory, StoreDirectory::open(path_, true));
    CAIRN_ASSIGN_OR_RETURN(OpenedMark mark, open_mark(directory.mark_path(), database_path_));
    auto sheltered = std::make_unique<Sheltered>(*database_);
    Sheltered* const shelter = sheltered.get();
    CAIRN_ASSIGN_OR_RETURN(MarkedStorage marked,
                           mark_storage(std::move(sheltered), std::move(mark)));
    recovery_ = std::move(marked.recovery);
    CAIRN_ASSIGN_OR_RETURN(
        store_, SessionStore::open_on(std::move(directory), std::move(marked.storage), options_));
    shelter_ = shelter;
    return {};
  }
  void close() { store_.reset(); }
  void reopen() {
    close();
    const Status status = open();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_FALSE(recovery_.rolled_back) << recovery_.detail;
    EXPECT_EQ(recovery_.commits_lost, 0) << recovery_.detail;
  }
  // From the files, as another process would.
  void reopen_database() {
    close();
    database_.reset();
    database_ = std::move(*open_rocksdb_storage(database_path_));
    reopen();
  }

  SessionStore& operator*() { return *store_; }
  SessionStore* operator->() { return store_.get(); }
  Sheltered& shelter() { return *shelter_; }

 private:
  test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "store";
  const StoreOptions options_ = [] {
    StoreOptions options = test::run_options();
    options.quota_bytes = std::int64_t{1} << 30;
    return options;
  }();
  std::string database_path_;
  std::unique_ptr<Storage> database_;
  std::unique_ptr<SessionStore> store_;
  Sheltered* shelter_ = nullptr;
  StoreRecovery recovery_;
};

// A session that grows by one message, some blocks and a tail a commit.
class Diary {
 public:
  Diary(OneStore& store, std::size_t block_bytes) : store_(store), block_bytes_(block_bytes) {
    store_.reopen();
    kv_namespace_ = *store_->open_namespace(test::kSampleNamespace);
    record_ = test::create(*store_, "diary");
  }

  const SessionId& id() const { return record_.id; }
  const std::vector<SampleBlock>& chain() const { return chain_; }

  // One more commit; if it failed, it is tried again with memory.
  Status write(std::int64_t n, bool once) {
    const std::uint32_t depth = n_commits_;
    const BlockKey parent = chain_.empty() ? root_key(test::kSampleNamespace) : chain_.back().key;
    const SampleBlock block = test::sample_block(parent, depth, 7, block_bytes_);
    const test::Bytes tail = test::random_bytes(depth, block_bytes_ / 2);
    SessionRecord record = record_;
    record.n_events = record.head_sequence = depth + 1;
    record.stored_blocks = depth + 1;
    record.chain_key = block.key;
    Commit commit = {.session = id(),
                     .events = {test::user_event(depth + 1, "entry")},
                     .kv_namespace = kv_namespace_,
                     .blocks = {block.view()},
                     .record = record};
    commit.tail = NewTail{.position = (depth + 1) * std::int64_t{kBlockTokens},
                          .chain_key = block.key,
                          .sequence = depth + 1,
                          .payload = tail};
    const auto try_once = [&] { return store_->commit(commit).status(); };
    const Status status = with_short_memory(n, once, try_once);
    Status again = status.ok() ? Status() : try_once();
    if (again.code() == StatusCode::kOutOfMemory) {  // the store does not know whether it is there
      store_.reopen();
      again = try_once();
      ++n_unknown_;
    }
    if (again.code() == StatusCode::kAlreadyExists) {  // it was
      again = {};
      ++n_there_;
    }
    EXPECT_TRUE(again.ok()) << again.to_string();
    chain_.push_back(block);
    tail_ = tail;
    record_ = record;
    ++n_commits_;
    return status;
  }

  // Everything that was acknowledged is there, whole.
  void check() {
    const auto events = store_->read_events(id());
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    EXPECT_EQ(events->size(), n_commits_);
    for (const SampleBlock& block : chain_) {
      const auto found = store_->get_block(block.key, block.tokens);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_TRUE(test::same_bytes(found->payload(), block.payload));
    }
    const auto tail = store_->get_tail(id());
    ASSERT_TRUE(tail.ok()) << tail.status().to_string();
    EXPECT_TRUE(test::same_bytes(tail->payload(), tail_));
    EXPECT_EQ(store_->load_session(id())->head_sequence, n_commits_);
    EXPECT_EQ(store_->stats()->n_blocks, static_cast<std::int64_t>(n_commits_));
    EXPECT_EQ(store_->stats()->n_tails, 1);
  }

  int n_unknown() const { return n_unknown_; }
  int n_there() const { return n_there_; }

 private:
  OneStore& store_;
  const std::size_t block_bytes_;
  std::uint32_t kv_namespace_ = 0, n_commits_ = 0;
  SessionRecord record_;
  std::vector<SampleBlock> chain_;
  test::Bytes tail_;
  int n_unknown_ = 0, n_there_ = 0;
};

struct StoreMemory : testing::TestWithParam<bool> {
  bool once = GetParam();
  OneStore store;

  // `call` with its n-th allocation failing, until it succeeds: for every n, or beyond `n_all` for
  // one in n / n_all. Returns how often it failed.
  template <class Call>
  std::int64_t fail_each(const Call& call, std::int64_t n_all = 100'000) {
    std::int64_t n_failed = 0;
    for (std::int64_t n = 0; n < 1'000'000; n += 1 + n / n_all) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      const Status status = call(n);
      if (HasFailure() || status.ok()) return n_failed;
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.to_string();
      ++n_failed;
    }
    ADD_FAILURE() << "never succeeded";
    return n_failed;
  }
};

TEST_P(StoreMemory, a_commit_is_there_or_not_and_the_next_one_works) {
  for (const std::size_t block_bytes : {std::size_t{2000}, std::size_t{300'000}}) {
    OneStore fresh;
    Diary diary(fresh, block_bytes);
    const std::int64_t n_failed = fail_each([&](std::int64_t n) {
      const Status status = diary.write(n, once);
      if (n % 32 == 31) {
        fresh.reopen();
        diary.check();
      }
      return status;
    });
    fresh.reopen_database();
    diary.check();
    std::printf("%lld commits of %zu bytes failed, %d not known, %d of them there\n",
                static_cast<long long>(n_failed), block_bytes, diary.n_unknown(), diary.n_there());
    EXPECT_GT(n_failed, 30);
  }
}

TEST_P(StoreMemory, a_store_that_could_not_be_opened_can_be_opened_later) {
  Diary diary(store, 3000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(diary.write(-1, once).ok());
  EXPECT_TRUE(store->set_labels(diary.id(), {{"key", "value"}}).ok());
  const std::int64_t n_written = store->read_counters().blocks_written;
  const std::int64_t n_failed = fail_each([&](std::int64_t n) {
    store.close();
    return with_short_memory(n, once, [&] { return store.open(); });
  });
  store.reopen();
  diary.check();
  EXPECT_EQ(store->read_counters().blocks_written, n_written);
  std::printf("%lld openings failed\n", static_cast<long long>(n_failed));
  EXPECT_GT(n_failed, 30);
}

// All that a restore asks a store for.
Status read_all(SessionStore& store, const SessionId& id, const std::vector<SampleBlock>& chain) {
  CAIRN_ASSIGN_OR_RETURN(const SessionLease lease, store.lease(id));
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store.log(lease.session()->record));
  std::size_t n_events = 0;
  CAIRN_RETURN_IF_ERROR(log.visit_path(chain.size(), [&](LogEvent&&) { ++n_events; }));
  CAIRN_RETURN_IF_ERROR(store.find_tails(id).status());
  CAIRN_RETURN_IF_ERROR(store.get_tail(id).status());
  std::vector<BlockKey> keys;
  for (const SampleBlock& block : chain) keys.push_back(block.key);
  BlockStore::Hold hold(store.blocks());
  hold.set(keys.back());
  CAIRN_ASSIGN_OR_RETURN(const FoundBlocks found, store.blocks().find_all(keys));
  std::vector<FoundBlock> blocks;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (!found.records[i]) return corrupt("block " + std::to_string(i) + " is not found");
    blocks.push_back({chain[i].key, chain[i].tokens, *found.records[i]});
  }
  std::size_t n_blocks = 0;
  CAIRN_RETURN_IF_ERROR(
      store.blocks().view(blocks, [&](std::span<const std::byte> payload, std::int64_t) {
        n_blocks += test::same_bytes(payload, chain[n_blocks].payload);
      }));
  return n_blocks == chain.size() && n_events == chain.size() ? Status() : corrupt("not all");
}

TEST_P(StoreMemory, what_could_not_be_read_is_read_later_and_never_called_damaged) {
  Diary diary(store, 3000);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(diary.write(-1, once).ok());
  const std::int64_t n_failed = fail_each([&](std::int64_t n) {
    return with_short_memory(n, once, [&] { return read_all(*store, diary.id(), diary.chain()); });
  });
  diary.check();
  EXPECT_EQ(store->read_counters().blocks_corrupt, 0);
  EXPECT_EQ(store->read_counters().tails_corrupt, 0);
  std::printf("%lld restores failed\n", static_cast<long long>(n_failed));
  EXPECT_GT(n_failed, 30);
}

TEST_P(StoreMemory, a_thread_that_reads_ahead_says_that_there_is_no_memory) {
  Diary diary(store, 3000);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(diary.write(-1, once).ok());
  const auto read_ahead = [&]() -> Status {
    std::vector<FoundBlock> blocks;
    for (const SampleBlock& block : diary.chain()) {
      blocks.push_back({block.key, block.tokens, *store->blocks().find(block.key)});
    }
    BlockReader reader(store->blocks(), std::move(blocks));
    for (std::size_t n_pages = 0;;) {
      const BlockReader::Batch batch = reader.next();
      n_pages += batch.pages.size();
      if (!batch.status.ok()) return batch.status;
      if (batch.last) return n_pages == diary.chain().size() ? Status() : corrupt("not all");
    }
  };
  const std::int64_t n_failed = fail_each([&](std::int64_t n) {
    store.shelter().allocations_of_readers = n;
    return read_ahead();
  });
  diary.check();
  std::printf("%lld reading threads failed\n", static_cast<long long>(n_failed));
  EXPECT_GT(n_failed, 30);
}

TEST_P(StoreMemory, a_collection_that_failed_can_be_repeated_and_leaves_no_gap) {
  store.reopen();
  std::vector<std::unique_ptr<test::SampleSession>> sessions;
  std::uint32_t seed = 0;
  std::int64_t n_removed = 0, n_tried = 0;
  const auto collect = [&]() -> Status {
    Collection collection(*store, [](std::int64_t) { return true; });
    CAIRN_ASSIGN_OR_RETURN(const CollectReport report, collection.make_room(1));
    n_removed += report.blocks_removed + report.tails_removed;
    return collection.remove_branches().status();
  };
  const std::int64_t n_failed = fail_each(
      [&](std::int64_t n) {
        if (n_tried++ % 4 == 0 || sessions.empty()) {
          if (sessions.size() > 3) sessions.erase(sessions.begin());
          ++seed;
          sessions.push_back(
              std::make_unique<test::SampleSession>(*store, "s" + std::to_string(seed), seed));
        }
        sessions.back()->grow(2, 20'000);
        const Status status = with_short_memory(n, once, collect);
        for (const auto& session : sessions) (void)session->check_chain();
        for (const auto& session : sessions) {
          EXPECT_EQ(store->read_events(session->record().id)->size(), session->record().n_events);
        }
        if (!status.ok() && !store->sync().ok()) {  // a batch may be written: no other follows
          sessions.clear();
          store.reopen();
        }
        if (!status.ok() && n_tried % 4 == 0) {
          EXPECT_TRUE(collect().ok());
        }
        return status;
      },
      10);
  EXPECT_TRUE(collect().ok());
  store.reopen_database();
  for (const auto& session : sessions) {
    EXPECT_EQ(store->read_events(session->record().id)->size(), session->record().n_events);
  }
  EXPECT_EQ(store->stats()->n_blocks, 0);
  std::printf("%lld collections failed, %lld blocks and tails removed\n",
              static_cast<long long>(n_failed), static_cast<long long>(n_removed));
  EXPECT_GT(n_failed, 30);
}

// A write that did not come about leaves nothing behind in the accounts either.
TEST_P(StoreMemory, what_was_not_written_is_not_counted) {
  store.reopen();
  const std::uint32_t kv_namespace = *store->open_namespace(test::kSampleNamespace);
  const std::vector<SampleBlock> chain = test::sample_chain(9, 1, 4'000'000);
  const std::int64_t n_failed = fail_each([&](std::int64_t n) {
    const Status status = with_short_memory(
        n, once, [&] { return store->add_blocks(kv_namespace, {chain[0].view()}); });
    EXPECT_TRUE(store->space().measure().ok());
    EXPECT_EQ(store->space().bytes_on_disk(), store->stats()->bytes_on_disk);
    if (!status.ok() && !store->sync().ok()) {  // it may be written: nothing more is until then
      store.reopen();
      EXPECT_TRUE(store->open_namespace(test::kSampleNamespace).ok());
    }
    return status;
  });
  EXPECT_GT(n_failed, 20);
}

INSTANTIATE_TEST_SUITE_P(, StoreMemory, testing::Bool(),
                         [](const auto& info) { return info.param ? "once" : "for_ever"; });

}  // namespace
}  // namespace cairn::session
