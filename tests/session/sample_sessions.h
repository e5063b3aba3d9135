// Sessions that grow by blocks and tails, for tests of what a store gives up.
#ifndef CAIRN_TESTS_SESSION_SAMPLE_SESSIONS_H_
#define CAIRN_TESTS_SESSION_SAMPLE_SESSIONS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/session_store.h"
#include "tests/session/store_samples.h"

namespace cairn::test {

inline constexpr std::size_t kBlockBytes = 113'920;  // at the released shape

// Payloads that begin with a mark of their own, so that files can be searched for them.
inline Bytes marked_bytes(std::uint32_t seed, std::size_t n_bytes) {
  return random_bytes(seed, n_bytes);
}

// A session and the chain that it stands on.
class SampleSession {
 public:
  SampleSession(session::SessionStore& store, const std::string& name, std::uint32_t seed)
      : store_(store), seed_(seed) {
    const auto kv_namespace = store.open_namespace(kSampleNamespace);
    auto record = store.create_session(
        {.name = name, .model_fingerprint = "fingerprint", .kv_namespace = *kv_namespace});
    EXPECT_TRUE(record.ok()) << record.status().to_string();
    record_ = *record;
  }

  // Begins as `other` stands.
  void fork(const SampleSession& other) { chain_ = other.chain_; }

  // One commit: an event, `n_blocks` new blocks and perhaps a tail; without state where the store
  // has no room for it, as a turn does. Returns whether the state was stored.
  bool grow(std::uint32_t n_blocks, std::size_t tail_bytes = 0, std::int64_t used_ms = 0,
            session::Durability durability = session::Durability::kBuffered) {
    session::Commit commit = {.session = record_.id, .kv_namespace = record_.kv_namespace};
    commit.durability = durability;
    commit.events = {user_event(record_.n_events + 1, "a message")};
    // What was evicted is computed again; what is there is built on.
    session::BlockStore::Hold hold(store_.blocks());
    const std::size_t n_before = restore(hold);
    const std::size_t n_chain = chain_.size();
    session::BlockKey parent =
        chain_.empty() ? session::root_key(kSampleNamespace) : chain_.back().key;
    for (std::uint32_t i = 0; i < n_blocks; ++i) {
      const auto depth = static_cast<std::uint32_t>(chain_.size());
      chain_.push_back(sample_block(parent, depth, seed_, kBlockBytes));
      parent = chain_.back().key;
    }
    for (std::size_t i = n_before; i < chain_.size(); ++i)
      commit.blocks.push_back(chain_[i].view());
    const Bytes tail = random_bytes(seed_ + 77, tail_bytes);
    if (tail_bytes > 0) {
      commit.tail = {.position = static_cast<std::int64_t>(chain_.size()) * session::kBlockTokens,
                     .chain_key = parent,
                     .sequence = record_.n_events + 1,
                     .payload = tail};
    }
    session::SessionRecord record = record_;
    record.n_events += 1;
    record.head_sequence = record.n_events;
    record.used_ms = used_ms > 0 ? used_ms : record.used_ms + 1000;
    record.stored_blocks = static_cast<std::uint32_t>(chain_.size());
    record.chain_key = parent;
    commit.record = record;
    auto receipt = store_.commit(commit);
    const bool stored = receipt.ok();
    if (code_of(receipt) == StatusCode::kOutOfDisk) {
      chain_.resize(n_chain);
      commit.blocks.clear();
      commit.tail.reset();
      commit.record->chain_key = record_.chain_key;
      commit.record->stored_blocks = record_.stored_blocks;
      receipt = store_.commit(commit);
    }
    if (code_of(receipt) == StatusCode::kOutOfDisk) return false;  // not even the log
    EXPECT_TRUE(receipt.ok()) << receipt.status().to_string();
    if (receipt.ok()) record_ = *commit.record;
    return stored;
  }

  // Number of blocks of the chain that are stored; they stay while they are held.
  std::size_t restore(session::BlockStore::Hold& hold) const {
    std::vector<session::BlockKey> keys;
    for (const SampleBlock& block : chain_) keys.push_back(block.key);
    const auto n_stored = store_.stored_prefix(keys);
    EXPECT_TRUE(n_stored.ok());
    if (*n_stored > 0) hold.set(keys[*n_stored - 1]);
    return *n_stored;
  }

  // How many blocks of the chain are there without a gap; fails where one is there after a gap or
  // differs.
  std::size_t check_chain() const {
    std::size_t n_found = 0;
    bool gap = false;
    for (const SampleBlock& block : chain_) {
      const auto found = store_.get_block(block.key, block.tokens);
      if (!found.ok()) {
        EXPECT_EQ(code_of(found), StatusCode::kNotFound) << found.status().to_string();
        gap = true;
        continue;
      }
      EXPECT_FALSE(gap) << "block " << block.depth << " is there and one before it is not";
      EXPECT_TRUE(same_bytes(found->payload(), block.payload));
      n_found += !gap;
    }
    return n_found;
  }

  const session::SessionRecord& record() const { return record_; }
  const std::vector<SampleBlock>& chain() const { return chain_; }

 private:
  session::SessionStore& store_;
  std::uint32_t seed_;
  session::SessionRecord record_;
  std::vector<SampleBlock> chain_;
};

inline std::unique_ptr<session::SessionStore> open_with_quota(const std::string& path,
                                                              std::int64_t quota_bytes) {
  auto store = session::SessionStore::open(path, {.quota_bytes = quota_bytes});
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(*store) : nullptr;
}

inline std::int64_t bytes_on_disk(session::SessionStore& store) {
  const auto stats = store.stats();
  EXPECT_TRUE(stats.ok());
  return stats.ok() ? stats->bytes_on_disk : -1;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_SAMPLE_SESSIONS_H_
