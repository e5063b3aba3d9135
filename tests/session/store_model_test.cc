// Random operations on a store and on an obvious model of it in memory, reopened now and then. Both
// must always show the same.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "session/session_store.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::Bytes;
using test::SampleBlock;

struct ModelTail {
  std::int64_t position = 0;
  Bytes payload;
};

struct ModelSession {
  SessionRecord record;
  std::vector<std::string> texts;  // of the log
  std::map<std::uint64_t, ModelTail> tails;
};

class Comparison {
 public:
  Comparison(std::string path, std::uint32_t seed) : path_(std::move(path)), random_(seed) {
    for (std::uint32_t chain = 0; chain < 3; ++chain) {
      for (SampleBlock& block : test::sample_chain(chain, 20)) pool_.push_back(std::move(block));
    }
    open();
  }

  void step() {
    switch (below(20)) {
      case 0:
        open();
        return check_all();
      case 1:
        return create();
      case 2:
        return remove();
      case 3:
        return drop_block();
      case 4:
        return drop_tail();
      case 5:
        return check_list();
      case 6:
        return read_block();
      default:
        return commit();
    }
  }

  void check_all() {
    check_list();
    for (const auto& [name, session] : sessions_) check_session(session);
    for (const SampleBlock& block : pool_) check_block(block);
    const auto stats = store_->stats();
    ASSERT_TRUE(stats.ok());
    EXPECT_EQ(stats->n_sessions, static_cast<std::int64_t>(sessions_.size()));
    EXPECT_EQ(stats->n_blocks, static_cast<std::int64_t>(blocks_.size()));
    std::int64_t n_tails = 0;
    for (const auto& [name, session] : sessions_) n_tails += std::ssize(session.tails);
    EXPECT_EQ(stats->n_tails, n_tails);
  }

 private:
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void open() {
    store_.reset();
    store_ = test::open_store(path_);
    name_space_ = *store_->open_namespace(test::kSampleNamespace);
  }

  ModelSession* any_session() {
    if (sessions_.empty()) return nullptr;
    return &std::next(sessions_.begin(), below(sessions_.size()))->second;
  }

  void create() {
    const std::string name = "session " + std::to_string(below(8));
    const auto record = store_->create_session({.name = name, .model_fingerprint = "f"});
    if (sessions_.contains(name)) {
      EXPECT_EQ(record.status().code(), StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_TRUE(record.ok()) << record.status().to_string();
    sessions_[name].record = *record;
  }

  void remove() {
    ModelSession* const session = any_session();
    if (session == nullptr) return;
    ASSERT_TRUE(store_->remove_session(session->record.id).ok());
    sessions_.erase(session->record.name);
  }

  void drop_block() {
    const SampleBlock& block = pool_[below(pool_.size())];
    ASSERT_TRUE(store_->blocks().drop(block.key).ok());
    blocks_.erase(block.key);
  }

  void drop_tail() {
    ModelSession* const session = any_session();
    if (session == nullptr) return;
    const std::uint64_t slot = below(3);
    ASSERT_TRUE(store_->drop_tail(session->record.id, slot).ok());
    session->tails.erase(slot);
  }

  void read_block() { check_block(pool_[below(pool_.size())]); }

  void commit() {
    ModelSession* const session = any_session();
    if (session == nullptr) return;
    Commit commit = {.session = session->record.id, .kv_namespace = name_space_};
    commit.durability = below(3) == 0 ? Durability::kSynced : Durability::kBuffered;
    for (std::uint32_t i = below(4); i > 0; --i) {
      session->texts.push_back(std::string(below(300), static_cast<char>('a' + below(26))));
      commit.events.push_back(test::user_event(session->texts.size(), session->texts.back()));
    }
    std::int32_t n_missing = 0;
    std::vector<SampleBlock> changed;  // other bytes under the same key
    changed.reserve(8);
    for (std::uint32_t i = below(5); i > 0; --i) {
      changed.push_back(pool_[below(pool_.size())]);
      changed.back().payload = test::random_bytes(below(1u << 30), 200);
      commit.blocks.push_back(changed.back().view());
      if (blocks_.emplace(changed.back().key, changed.back().payload).second) ++n_missing;
    }
    Bytes tail;
    if (below(3) == 0) {
      const std::uint64_t slot = below(3);
      tail = test::random_bytes(below(1u << 30), below(20'000));
      const std::int64_t position = below(10'000);
      commit.tail = NewTail{.slot = slot, .position = position, .payload = tail};
      session->tails[slot] = {position, tail};
    }
    if (below(2) == 0) {
      session->record.used_ms = below(50);
      session->record.n_events = session->texts.size();
      commit.record = session->record;
    }
    const auto receipt = store_->commit(commit);
    ASSERT_TRUE(receipt.ok()) << receipt.status().to_string();
    EXPECT_EQ(receipt->blocks_written, n_missing);
  }

  void check_list() {
    std::vector<const SessionRecord*> expected;
    for (const auto& [name, session] : sessions_) expected.push_back(&session.record);
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto* a, const auto* b) { return a->used_ms > b->used_ms; });
    const auto list = store_->list();
    ASSERT_TRUE(list.ok());
    ASSERT_EQ(list->size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ((*list)[i].name, expected[i]->name);
      EXPECT_EQ((*list)[i].n_events, expected[i]->n_events);
    }
  }

  void check_session(const ModelSession& session) {
    EXPECT_EQ(store_->find_by_name(session.record.name)->id, session.record.id);
    const auto events = store_->read_events(session.record.id);
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    ASSERT_EQ(events->size(), session.texts.size());
    for (std::size_t i = 0; i < events->size(); ++i) {
      EXPECT_EQ(std::get<MessageAppended>((*events)[i].body).message.content[0].text,
                session.texts[i]);
    }
    for (std::uint64_t slot = 0; slot < 3; ++slot) {
      const auto tail = store_->get_tail(session.record.id, slot);
      const auto expected = session.tails.find(slot);
      ASSERT_EQ(tail.ok(), expected != session.tails.end()) << tail.status().to_string();
      if (!tail.ok()) continue;
      EXPECT_EQ(tail->record.position, expected->second.position);
      EXPECT_TRUE(test::same_bytes(tail->payload(), expected->second.payload));
    }
  }

  void check_block(const SampleBlock& sample) {
    const auto expected = blocks_.find(sample.key);
    const auto block = store_->get_block(sample.key, sample.tokens);
    ASSERT_EQ(block.ok(), expected != blocks_.end()) << block.status().to_string();
    EXPECT_EQ(*store_->has_block(sample.key), block.ok());
    if (block.ok()) {
      EXPECT_TRUE(test::same_bytes(block->payload(), expected->second));
    }
  }

  std::string path_;
  std::mt19937 random_;
  std::vector<SampleBlock> pool_;
  std::unique_ptr<SessionStore> store_;
  std::uint32_t name_space_ = 0;
  std::map<std::string, ModelSession> sessions_;
  std::map<BlockKey, Bytes> blocks_;
};

TEST(SessionStore, equals_a_model_in_memory_under_random_operations) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const test::TemporaryFolder folder;
    Comparison comparison(folder / "store", seed);
    for (int i = 0; i < 250 && !testing::Test::HasFailure(); ++i) comparison.step();
    comparison.check_all();
  }
}

}  // namespace
}  // namespace cairn::session
