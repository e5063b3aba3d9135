// Stores, commits and damage for the tests of session/.
#ifndef CAIRN_TESTS_SESSION_STORE_SAMPLES_H_
#define CAIRN_TESTS_SESSION_STORE_SAMPLES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "session/rocksdb_storage.h"
#include "session/session_store.h"
#include "tests/session/run_options.h"

namespace cairn::test {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(std::uint32_t seed, std::size_t n_bytes) {
  std::mt19937 random(seed);
  Bytes bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline std::vector<TokenId> random_tokens(std::uint32_t seed,
                                          std::size_t n_tokens = session::kBlockTokens) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n_tokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 129280);
  return tokens;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// A block that owns what it is made of.
struct SampleBlock {
  session::BlockKey parent{}, key{};
  std::uint32_t depth = 0;
  std::vector<TokenId> tokens;
  Bytes payload;

  session::NewBlock view() const {
    return {.key = key,
            .parent = parent,
            .provenance = session::Provenance::kExact,
            .depth = depth,
            .tokens = tokens,
            .payload = payload};
  }
};

inline const session::KvNamespace kSampleNamespace = {"fingerprint", 1, "salt"};

// The block number `depth` of the chain that `seed` names.
inline SampleBlock sample_block(const session::BlockKey& parent, std::uint32_t depth,
                                std::uint32_t seed, std::size_t payload_bytes = 500) {
  SampleBlock block;
  block.parent = parent;
  block.depth = depth;
  block.tokens = random_tokens(seed * 1000 + depth);
  block.key = session::block_key(parent, session::Provenance::kExact, block.tokens);
  block.payload = random_bytes(seed * 1000 + depth, payload_bytes);
  return block;
}

inline std::vector<SampleBlock> sample_chain(std::uint32_t seed, std::uint32_t n_blocks,
                                             std::size_t payload_bytes = 500) {
  std::vector<SampleBlock> chain;
  session::BlockKey parent = session::root_key(kSampleNamespace);
  for (std::uint32_t i = 0; i < n_blocks; ++i) {
    chain.push_back(sample_block(parent, i, seed, payload_bytes));
    parent = chain.back().key;
  }
  return chain;
}

inline session::LogEvent user_event(std::uint64_t sequence, std::string text) {
  return {sequence, sequence - 1, 1'700'000'000'000 + static_cast<std::int64_t>(sequence),
          session::MessageAppended{Message::user(std::move(text))}};
}

inline session::LogEvent token_event(std::uint64_t sequence, std::vector<TokenId> tokens) {
  return {sequence, sequence - 1, 1'700'000'000'000,
          session::TokensGenerated{0, std::move(tokens)}};
}

// Passes everything on and lets a test fail writes and damage values beneath a store.
class ProbedStorage final : public session::Storage {
 public:
  explicit ProbedStorage(std::unique_ptr<Storage> inner) : inner_(std::move(inner)) {}

  Result<std::string> get(session::Family family, std::string_view key) override {
    Result<std::string> value = inner_->get(family, key);
    if (value.ok() && holds_payloads(family)) {
      n_payload_bytes_read += static_cast<std::int64_t>(value->size());
    }
    return value;
  }
  Result<std::vector<std::optional<std::string>>> multi_get(
      session::Family family, std::span<const std::string> keys) override {
    return inner_->multi_get(family, keys);
  }
  Status view(session::Family family, std::span<const std::string> keys,
              const KeyVisitor& visit) override {
    return inner_->view(family, keys, [&](std::size_t i, std::optional<std::string_view> value) {
      if (value && holds_payloads(family)) {
        n_payload_bytes_read += static_cast<std::int64_t>(value->size());
      }
      return visit(i, value);
    });
  }
  Status reclaim(session::Family family, std::string_view first, std::string_view last) override {
    return inner_->reclaim(family, first, last);
  }
  Status drop_tables(session::Family family, std::span<const session::KeyRange> ranges) override {
    return inner_->drop_tables(family, ranges);
  }
  std::int64_t table_bytes(session::Family family) const override {
    return inner_->table_bytes(family);
  }
  std::int64_t bytes_written() const override { return inner_->bytes_written(); }
  Status scan(session::Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    return inner_->scan(family, prefix, first, visit);
  }
  Status write(const session::WriteBatch& batch, session::Durability durability) override {
    if (fail_writes_after >= 0 && n_writes++ >= fail_writes_after) return failure;
    if (fail_batches_over >= 0 && batch.n_bytes() > fail_batches_over) return failure;
    const auto n_blocks = std::ranges::count_if(batch.changes(), [](const auto& change) {
      return change.family == session::Family::kBlocks && !change.remove;
    });
    if (n_blocks > 0) block_batches.push_back(static_cast<int>(n_blocks));
    return inner_->write(batch, durability);
  }
  Status flush() override { return inner_->flush(); }

  void put_raw(session::Family family, const std::string& key, std::string value) {
    session::WriteBatch batch;
    batch.put(family, key, std::move(value));
    ASSERT_TRUE(inner_->write(batch, session::Durability::kBuffered).ok());
  }

  int fail_writes_after = -1;  // the write with this index and all later ones fail; -1 = none
  int n_writes = 0;            // counted while fail_writes_after is not -1
  std::int64_t fail_batches_over = -1;                 // bytes; -1 = none
  std::atomic<std::int64_t> n_payload_bytes_read = 0;  // values of blocks and tails
  std::vector<int> block_batches;                      // how many blocks each batch with blocks had
  Status failure = {StatusCode::kOutOfDisk, "no space left"};

 private:
  static bool holds_payloads(session::Family family) {
    return family == session::Family::kBlocks || family == session::Family::kTails;
  }

  std::unique_ptr<Storage> inner_;
};

struct ProbedStore {
  std::unique_ptr<session::SessionStore> store;
  ProbedStorage* storage = nullptr;  // the store's
};

inline ProbedStore open_probed(const std::string& path,
                               const StoreOptions& options = run_options()) {
  Result<session::StoreDirectory> directory = session::StoreDirectory::open(path, true);
  EXPECT_TRUE(directory.ok()) << directory.status().to_string();
  auto inner = session::open_rocksdb_storage(directory->database_path());
  EXPECT_TRUE(inner.ok()) << inner.status().to_string();
  auto probed = std::make_unique<ProbedStorage>(std::move(*inner));
  ProbedStorage* const storage = probed.get();
  auto store = session::SessionStore::open_on(std::move(*directory), std::move(probed), options);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return {std::move(*store), storage};
}

inline std::unique_ptr<session::SessionStore> open_store(
    const std::string& path, const StoreOptions& options = run_options()) {
  auto store = session::SessionStore::open(path, options);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(*store) : nullptr;
}

inline session::SessionRecord create(session::SessionStore& store, const std::string& name) {
  auto record = store.create_session({.name = name, .model_fingerprint = "fingerprint"});
  EXPECT_TRUE(record.ok()) << record.status().to_string();
  return *record;
}

template <class T>
StatusCode code_of(const Result<T>& result) {
  return result.status().code();
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_STORE_SAMPLES_H_
