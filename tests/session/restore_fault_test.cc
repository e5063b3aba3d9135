// Restores of a chain of many blocks of which something is damaged, lost, or taken away meanwhile:
// what comes back is what was stored, as far as it can be had, and the counts are those that a look
// from outside gives. Blocks hold random rows: what they mean does not matter here.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "session/live_sequence.h"
#include "session/storage_key.h"
#include "session/tail_payload.h"
#include "tests/session/store_samples.h"
#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using session::BlockRecord;
using session::Commit;
using session::Family;
using session::LiveSequence;
using session::PagePool;
using session::RestoreSource;
using test::kBlock;
using test::live_model;

constexpr std::int64_t kBlocks = 30;  // two batches of the reader
constexpr std::int64_t kOpenTokens = 37;
constexpr std::int64_t kEnd = kBlocks * kBlock + kOpenTokens;

using Tokens = std::vector<TokenId>;

// Runs a restore to its end and takes what can be told of it.
struct Outcome {
  ReuseReport report;
  int n_steps = 0;
};

Outcome restore(LiveSequence& live, const Tokens& target) {
  Outcome outcome;
  live.start_restore(target);
  for (;;) {
    const auto report = live.restore_step();
    ++outcome.n_steps;
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (!report.ok()) return outcome;
    if (!*report) continue;
    outcome.report = **report;
    return outcome;
  }
}

// A session of kBlocks blocks and a tail in a store of its own.
class StoredSession {
 public:
  StoredSession()
      : probed_(test::open_probed(folder_ / "store")),
        record_(test::create(store(), "s")),
        original_(live(original_pool_)) {
    record_.kv_namespace = *store().open_namespace(kv_namespace_);
    make_chain();
    store_all();
    restore(original_, tokens_);
    while (original_.prefilling()) original_.prefill_step({});
    store_all();
  }

  session::SessionStore& store() { return *probed_.store; }
  test::ProbedStorage& storage() { return *probed_.storage; }
  const Tokens& tokens() const { return tokens_; }
  const session::BlockKey& key(std::int64_t block) const {
    return chain_[static_cast<std::size_t>(block)].key;
  }
  const test::Bytes& payload(std::int64_t block) const {
    return chain_[static_cast<std::size_t>(block)].payload;
  }
  const test::SampleBlock& block(std::int64_t i) const {
    return chain_[static_cast<std::size_t>(i)];
  }
  const session::SessionRecord& record() const { return record_; }
  LiveSequence& original() { return original_; }

  LiveSequence live(PagePool& pool) { return live_of(record_.id, pool); }
  LiveSequence live_of(const session::SessionId& id, PagePool& pool) {
    return {live_model().state(), {&store(), &pool, id, kv_namespace_, RestorePolicy::kExact}};
  }

  // Puts back whatever is missing.
  void store_all() {
    Commit commit = {.session = record_.id, .kv_namespace = record_.kv_namespace};
    LiveSequence::Payloads payloads;
    for (const test::SampleBlock& block : chain_) commit.blocks.push_back(block.view());
    if (original_.ready()) original_.add_tail(commit, 0, payloads);
    const auto receipt = store().commit(commit);
    ASSERT_TRUE(receipt.ok()) << receipt.status().to_string();
  }

  // What is live is what was stored, as far as it goes.
  void check(const LiveSequence& live) {
    const engine::Sequence& sequence = live.sequence();
    ASSERT_TRUE(std::ranges::equal(
        sequence.tokens(),
        std::span(tokens_).first(static_cast<std::size_t>(sequence.position()))));
    for (std::int64_t block = 0; block < sequence.n_blocks(); ++block) {
      ASSERT_EQ(sequence.page(block)->bytes, payload(block)) << "block " << block;
    }
    if (sequence.position() != kEnd) return;
    ASSERT_TRUE(sequence.ready());
    EXPECT_EQ(sequence.export_tail(), original_.sequence().export_tail());
  }

 private:
  void make_chain() {
    const auto n_bytes =
        static_cast<std::size_t>(engine::Sequence(live_model().state()).block_bytes());
    const auto vocab = static_cast<std::uint32_t>(live_model().state()->config().vocab_size);
    std::mt19937 random(1);
    for (std::int64_t i = 0; i < kEnd; ++i) {
      tokens_.push_back(static_cast<TokenId>(random() % (vocab - 300)));
    }
    session::BlockKey parent = session::root_key(kv_namespace_);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      test::SampleBlock& block = chain_.emplace_back();
      const auto first = tokens_.begin() + i * kBlock;
      block.tokens = {first, first + kBlock};
      block.parent = parent;
      block.depth = static_cast<std::uint32_t>(i);
      block.key = parent = session::block_key(parent, session::Provenance::kExact, block.tokens);
      block.payload = test::random_bytes(static_cast<std::uint32_t>(i), n_bytes);
      for (std::byte& byte : block.payload) byte &= std::byte{0x3f};  // finite numbers
    }
  }

  test::TemporaryFolder folder_;
  test::ProbedStore probed_;
  session::KvNamespace kv_namespace_ = {live_model().info().fingerprint, session::kKvFormatVersion,
                                        /*salt=*/""};
  session::SessionRecord record_;
  Tokens tokens_;
  std::vector<test::SampleBlock> chain_;
  PagePool original_pool_;
  LiveSequence original_;
};

StoredSession& stored() {
  static StoredSession session;
  return session;
}

// --- Whole.

TEST(RestoreFault, a_restore_gives_control_back_between_batches) {
  PagePool pool;
  LiveSequence live = stored().live(pool);
  stored().storage().n_payload_bytes_read = 0;
  const Outcome outcome = restore(live, stored().tokens());
  EXPECT_EQ(outcome.n_steps, (kBlocks + 15) / 16);
  EXPECT_EQ(outcome.report.from_disk, kEnd);
  EXPECT_TRUE(outcome.report.tail_restored);
  EXPECT_EQ(outcome.report.cause, MissCause::kNone);
  EXPECT_EQ(outcome.report.bytes_read, stored().storage().n_payload_bytes_read.load());
  stored().check(live);
}

TEST(RestoreFault, a_restore_given_up_between_batches_leaves_nothing_and_can_be_repeated) {
  for (int n_steps = 0; n_steps < 2; ++n_steps) {
    PagePool pool;
    LiveSequence live = stored().live(pool);
    live.start_restore(stored().tokens());
    for (int i = 0; i < n_steps; ++i) EXPECT_FALSE((*live.restore_step()).has_value());
    live.abandon();
    EXPECT_FALSE(live.is_live());
    EXPECT_EQ(live.private_bytes(), 0);
    EXPECT_EQ(pool.bytes(), 0);
    EXPECT_EQ(restore(live, stored().tokens()).report.from_disk, kEnd);
    stored().check(live);
  }
}

// --- Damaged or lost.

enum class Fault { kPayload, kIndex, kNoPayload, kRemoved, kTail, kTailIndex };
constexpr int kFaults = 6;

void flip(Family family, const std::string& key, std::mt19937& random) {
  std::string value = *stored().storage().get(family, key);
  char& byte = value[random() % value.size()];
  byte = static_cast<char>(byte ^ (1 << random() % 8));
  stored().storage().put_raw(family, key, std::move(value));
}

void inject(Fault fault, std::int64_t block, std::mt19937& random) {
  session::SessionStore& store = stored().store();
  const BlockRecord record = *store.blocks().find(stored().key(block));
  const std::string value_key = session::block_number_key(record.kv_namespace, record.number);
  const std::string tail = session::tail_key(stored().record().id, session::kHeadTail);
  switch (fault) {
    case Fault::kPayload:
      return flip(Family::kBlocks, value_key, random);
    case Fault::kIndex:
      return flip(Family::kBlockIndex, session::block_index_key(stored().key(block)), random);
    case Fault::kNoPayload: {
      session::WriteBatch batch;
      batch.remove(Family::kBlocks, value_key);
      EXPECT_TRUE(stored().storage().write(batch, session::Durability::kBuffered).ok());
      return;
    }
    case Fault::kRemoved:
      EXPECT_TRUE(store.blocks().drop(stored().key(block)).ok());
      return;
    case Fault::kTail:
      return flip(Family::kTails,
                  session::tail_number_key(store.find_tail(stored().record().id)->number), random);
    case Fault::kTailIndex:
      return flip(Family::kTailIndex, tail, random);
  }
}

TEST(RestoreFault, damage_anywhere_costs_what_it_hit_and_is_met_once) {
  const unsigned seed = 20;
  std::mt19937 random(seed);
  int n_trials = 0;
  for (; n_trials < 200 && !HasFailure(); ++n_trials) {
    const auto fault = static_cast<Fault>(random() % kFaults);
    const auto block = static_cast<std::int64_t>(random() % kBlocks);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", trial " + std::to_string(n_trials) +
                 ", fault " + std::to_string(static_cast<int>(fault)) + ", block " +
                 std::to_string(block));
    inject(fault, block, random);
    const bool hits_tail = fault == Fault::kTail || fault == Fault::kTailIndex;
    for (const bool again : {false, true}) {
      PagePool pool;
      LiveSequence live = stored().live(pool);
      const ReuseReport report = restore(live, stored().tokens()).report;
      EXPECT_EQ(report.from_disk, (hits_tail ? kBlocks : block) * kBlock);
      EXPECT_FALSE(report.tail_restored);
      EXPECT_TRUE(report.exact);
      EXPECT_EQ(report.cause == MissCause::kCorrupt, !again && fault != Fault::kRemoved);
      stored().check(live);
    }
    stored().store_all();
  }
  RecordProperty("trials", n_trials);
}

TEST(RestoreFault, the_bytes_of_a_shortened_restore_are_counted) {
  std::mt19937 random(3);
  for (const std::int64_t block : {0, 15, 16, 27}) {
    inject(Fault::kRemoved, block, random);
    PagePool pool;
    LiveSequence live = stored().live(pool);
    stored().storage().n_payload_bytes_read = 0;
    const ReuseReport report = restore(live, stored().tokens()).report;
    EXPECT_EQ(report.from_disk, block * kBlock);
    EXPECT_EQ(report.bytes_read, stored().storage().n_payload_bytes_read.load());
    stored().store_all();
  }
}

TEST(RestoreFault, of_a_chain_with_holes_the_part_before_the_first_comes_back) {
  for (std::int64_t k = 1; k <= kBlocks; k += 3) {
    for (std::int64_t block = k - 1; block < kBlocks; block += k) {
      ASSERT_TRUE(stored().store().blocks().drop(stored().key(block)).ok());
    }
    PagePool pool;
    LiveSequence live = stored().live(pool);
    EXPECT_EQ(restore(live, stored().tokens()).report.from_disk, (k - 1) * kBlock);
    stored().check(live);
    stored().store_all();
  }
}

TEST(RestoreFault, holes_are_filled_from_the_memory_of_others) {
  PagePool pool;
  LiveSequence other = stored().live(pool), live = stored().live(pool);
  const Tokens half = {stored().tokens().begin(), stored().tokens().begin() + 20 * kBlock};
  restore(other, half);
  std::set<std::int64_t> dropped = {2, 5, 19};
  for (const std::int64_t block : dropped) {
    ASSERT_TRUE(stored().store().blocks().drop(stored().key(block)).ok());
  }
  const ReuseReport report = restore(live, stored().tokens()).report;
  EXPECT_EQ(report.from_memory, 20 * kBlock);
  EXPECT_EQ(report.from_disk, kEnd - 20 * kBlock);
  EXPECT_TRUE(report.tail_restored);
  EXPECT_EQ(live.n_new_blocks(), kBlocks - 2);  // offered again from the first hole on
  stored().check(live);
  stored().store_all();
}

// --- Tails.

// Commits the original's tail for `id` in `slot`, changed by `change`.
void put_tail(const session::SessionId& id, std::uint64_t slot,
              const std::function<void(test::Bytes&)>& change) {
  Commit commit = {.session = id};
  LiveSequence::Payloads payloads;
  stored().original().add_tail(commit, 0, payloads);
  change(payloads.tail);
  commit.tail->slot = slot;
  commit.tail->payload = payloads.tail;
  ASSERT_TRUE(stored().store().commit(commit).ok());
}

TEST(RestoreFault, a_tail_that_checks_and_does_not_fit_is_dropped_for_good) {
  const session::SessionId& id = stored().record().id;
  put_tail(id, session::kHeadTail, [](test::Bytes& tail) { tail.pop_back(); });
  for (const bool again : {false, true}) {
    PagePool pool;
    LiveSequence live = stored().live(pool);
    const ReuseReport report = restore(live, stored().tokens()).report;
    EXPECT_EQ(report.from_disk, kBlocks * kBlock);
    EXPECT_EQ(report.cause == MissCause::kCorrupt, !again);
    stored().check(live);
  }
  EXPECT_EQ(test::code_of(stored().store().find_tail(id)), StatusCode::kNotFound);
  stored().store_all();
}

TEST(RestoreFault, any_tail_of_the_session_or_its_origins_will_do) {
  session::SessionStore& store = stored().store();
  session::SessionRecord fork = test::create(store, "fork"), child = test::create(store, "child");
  fork.origin = stored().record().id;
  child.origin = fork.id;
  for (const session::SessionRecord* record : {&fork, &child}) {
    const Commit commit = {.session = record->id, .record = *record};
    ASSERT_TRUE(store.commit(commit).ok());
  }
  const auto check = [&](const char* what, bool expected) {
    SCOPED_TRACE(what);
    PagePool pool;
    LiveSequence live = stored().live_of(child.id, pool);
    EXPECT_EQ(restore(live, stored().tokens()).report.tail_restored, expected);
    stored().check(live);
  };
  check("the origin's origin's head", true);
  ASSERT_TRUE(store.drop_tail(stored().record().id).ok());
  check("none", false);
  put_tail(fork.id, 7, [](test::Bytes&) {});
  check("the origin's slot of an event", true);
  put_tail(child.id, 3, [](test::Bytes& tail) { tail.pop_back(); });
  check("the next best where the best does not fit", true);
  EXPECT_EQ(test::code_of(store.find_tail(child.id, 3)), StatusCode::kNotFound);
  stored().store_all();
  ASSERT_TRUE(store.remove_session(child.id).ok());
  ASSERT_TRUE(store.remove_session(fork.id).ok());
}

// --- Meanwhile.

TEST(RestoreFault, blocks_that_go_and_come_back_meanwhile_are_never_called_damaged) {
  std::atomic<bool> done = false;
  std::atomic<int> n_rounds = 0, n_restores = 0;
  // At least one restore begins and ends before this returns.
  const auto wait_for_a_restore = [&] {
    const int n_seen = n_restores;
    while (!done && n_restores < n_seen + 2) std::this_thread::yield();
  };
  std::thread collector([&] {
    std::mt19937 random(9);
    for (; !done; ++n_rounds) {
      for (int i = 0; i < 3; ++i) {
        const auto block = static_cast<std::int64_t>(random() % kBlocks);
        EXPECT_TRUE(stored().store().blocks().drop(stored().key(block)).ok());
      }
      if (n_rounds % 8 == 0) wait_for_a_restore();  // one that finds gaps, whatever the threads do
      Commit commit = {.session = stored().record().id,
                       .kv_namespace = stored().record().kv_namespace};
      for (std::int64_t i = 0; i < kBlocks; ++i) commit.blocks.push_back(stored().block(i).view());
      EXPECT_TRUE(stored().store().commit(commit).ok());
      wait_for_a_restore();  // one that finds all
    }
  });
  int n_whole = 0;
  for (; n_restores < 5000 && n_rounds < 50 && !HasFailure(); ++n_restores) {
    PagePool pool;
    LiveSequence live = stored().live(pool);
    const ReuseReport report = restore(live, stored().tokens()).report;
    EXPECT_NE(report.cause, MissCause::kCorrupt);
    n_whole += report.tail_restored ? 1 : 0;
    stored().check(live);
  }
  done = true;
  collector.join();
  EXPECT_GT(n_whole, 0);
  EXPECT_LT(n_whole, n_restores);
  RecordProperty("restores", n_restores);
  RecordProperty("whole", n_whole);
  RecordProperty("rounds", n_rounds);
}

}  // namespace
}  // namespace cairn
