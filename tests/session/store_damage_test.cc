// Flips bits beneath a store, in stored values and in its files. Whatever comes back must be what
// was written or an error.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "session/session_store.h"
#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;
using test::code_of;
using test::SampleBlock;
using test::TemporaryFolder;

std::string flipped(std::string value, std::size_t at, int bit) {
  value[at] = static_cast<char>(value[at] ^ (1 << bit));
  return value;
}

struct DamagedStore : testing::Test {
  TemporaryFolder folder;
  test::ProbedStore probed = test::open_probed(folder / "store");
  SessionStore& store = *probed.store;
  SessionId id = test::create(store, "name").id;
  SampleBlock block = test::sample_chain(1, 1, 300)[0];
  Commit commit = {.session = id,
                   .kv_namespace = *store.open_namespace(test::kSampleNamespace),
                   .blocks = {block.view()},
                   .tail = NewTail{.position = 128, .payload = block.payload}};

  std::string block_value_key() {
    const BlockRecord record = *store.blocks().find(block.key);
    return block_number_key(record.kv_namespace, record.number);
  }

  // Writes the value with each byte flipped in turn; `check` looks and repairs.
  template <class Check>
  void for_each_flip(Family family, const std::function<std::string()>& key, Check check) {
    for (std::size_t i = 0;; ++i) {
      const std::string value = *probed.storage->get(family, key());
      if (i == value.size()) break;
      probed.storage->put_raw(family, key(), flipped(value, i, static_cast<int>(i % 8)));
      check(i);
    }
  }

  void expect_block_lost_then_writable(std::size_t at) {
    EXPECT_EQ(code_of(store.get_block(block.key, block.tokens)), StatusCode::kCorrupt) << at;
    EXPECT_EQ(code_of(store.get_block(block.key, block.tokens)), StatusCode::kNotFound) << at;
    EXPECT_FALSE(*store.has_block(block.key));
    ASSERT_EQ(store.commit(commit)->blocks_written, 1);
    EXPECT_TRUE(store.get_block(block.key, block.tokens).ok());
  }
};

TEST_F(DamagedStore, every_flipped_byte_of_a_block_is_a_miss) {
  ASSERT_TRUE(store.commit(commit).ok());
  for_each_flip(
      Family::kBlocks, [&] { return block_value_key(); },
      [&](std::size_t at) { expect_block_lost_then_writable(at); });
}

TEST_F(DamagedStore, every_flipped_byte_of_an_index_entry_is_a_miss) {
  ASSERT_TRUE(store.commit(commit).ok());
  for_each_flip(
      Family::kBlockIndex, [&] { return block_index_key(block.key); },
      [&](std::size_t at) { expect_block_lost_then_writable(at); });
}

TEST_F(DamagedStore, a_damaged_index_entry_does_not_keep_the_block_from_being_stored_again) {
  ASSERT_TRUE(store.commit(commit).ok());
  probed.storage->put_raw(Family::kBlockIndex, block_index_key(block.key), "damaged");
  EXPECT_FALSE(*store.has_block(block.key));
  EXPECT_EQ(*store.stored_prefix(std::vector{block.key}), 0u);
  EXPECT_EQ(store.commit(commit)->blocks_written, 1);
  EXPECT_TRUE(store.get_block(block.key, block.tokens).ok());
}

TEST_F(DamagedStore, a_block_in_the_place_of_another_is_a_miss) {
  const SampleBlock other = test::sample_chain(2, 1, 300)[0];
  commit.blocks.push_back(other.view());
  ASSERT_TRUE(store.commit(commit).ok());
  const BlockRecord record = *store.blocks().find(other.key);
  probed.storage->put_raw(
      Family::kBlocks, block_value_key(),
      *probed.storage->get(Family::kBlocks, block_number_key(record.kv_namespace, record.number)));
  expect_block_lost_then_writable(0);
  EXPECT_TRUE(store.get_block(other.key, other.tokens).ok());
}

TEST_F(DamagedStore, a_block_without_its_payload_is_a_miss) {
  ASSERT_TRUE(store.commit(commit).ok());
  WriteBatch batch;
  batch.remove(Family::kBlocks, block_value_key());
  ASSERT_TRUE(probed.storage->write(batch, Durability::kBuffered).ok());
  expect_block_lost_then_writable(0);
}

TEST_F(DamagedStore, every_flipped_byte_of_a_tail_is_a_miss) {
  ASSERT_TRUE(store.commit(commit).ok());
  for (const Family family : {Family::kTails, Family::kTailIndex}) {
    for_each_flip(
        family,
        [&] {
          return family == Family::kTailIndex ? tail_key(id, kHeadTail)
                                              : tail_number_key(store.find_tail(id)->number);
        },
        [&](std::size_t at) {
          EXPECT_EQ(code_of(store.get_tail(id)), StatusCode::kCorrupt) << at;
          EXPECT_EQ(code_of(store.get_tail(id)), StatusCode::kNotFound) << at;
          ASSERT_TRUE(store.commit(commit).ok());
          EXPECT_TRUE(store.get_tail(id).ok());
        });
  }
}

TEST_F(DamagedStore, every_flipped_byte_of_the_log_is_reported) {
  commit.events = {test::user_event(1, "a message"), test::user_event(2, std::string(400, 'x'))};
  ASSERT_TRUE(store.commit(commit).ok());
  for (const std::uint64_t sequence : {1, 2}) {
    const std::string key = event_key(id, sequence),
                      good = *probed.storage->get(Family::kEvents, key);
    for (std::size_t i = 0; i < good.size(); ++i) {
      probed.storage->put_raw(Family::kEvents, key, flipped(good, i, static_cast<int>(i % 8)));
      EXPECT_EQ(code_of(store.read_events(id)), StatusCode::kCorrupt) << i;
      EXPECT_EQ(code_of(store.read_events(id)), StatusCode::kCorrupt) << i;
    }
    probed.storage->put_raw(Family::kEvents, key, good);
  }
  EXPECT_EQ(store.read_events(id)->size(), 2u);
}

TEST_F(DamagedStore, every_flipped_byte_of_a_session_and_its_name_is_reported) {
  const std::string key = session_key(id), good = *probed.storage->get(Family::kSessions, key);
  for (std::size_t i = 0; i < good.size(); ++i) {
    probed.storage->put_raw(Family::kSessions, key, flipped(good, i, static_cast<int>(i % 8)));
    EXPECT_EQ(code_of(store.load_session(id)), StatusCode::kCorrupt) << i;
    EXPECT_EQ(code_of(store.list()), StatusCode::kCorrupt) << i;
  }
  probed.storage->put_raw(Family::kSessions, key, good);
  const std::string name = name_key("name"), value = *probed.storage->get(Family::kMeta, name);
  for (std::size_t i = 0; i < value.size(); ++i) {
    probed.storage->put_raw(Family::kMeta, name, flipped(value, i, static_cast<int>(i % 8)));
    EXPECT_EQ(code_of(store.find_by_name("name")), StatusCode::kCorrupt) << i;
  }
}

// Everything that can be read is what was written; `n_errors` counts the rest.
void check_contents(SessionStore& store, const std::vector<SampleBlock>& chain, int& n_errors) {
  const auto record = store.find_by_name("name");
  if (!record.ok()) {
    ++n_errors;
    return;
  }
  EXPECT_EQ(record->name, "name");
  const auto events = store.read_events(record->id);
  n_errors += !events.ok();
  if (events.ok()) {
    EXPECT_EQ(events->size(), chain.size());
  }
  const auto tail = store.get_tail(record->id);
  n_errors += !tail.ok();
  if (tail.ok()) {
    EXPECT_TRUE(test::same_bytes(tail->payload(), chain.back().payload));
  }
  for (const SampleBlock& sample : chain) {
    const auto block = store.get_block(sample.key, sample.tokens);
    n_errors += !block.ok();
    if (block.ok()) {
      EXPECT_TRUE(test::same_bytes(block->payload(), sample.payload));
    }
  }
}

TEST(DamagedFiles, a_flipped_bit_in_a_table_never_gives_wrong_data) {
  constexpr int kTrials = 60;
  const TemporaryFolder folder;
  const auto chain = test::sample_chain(1, 20, 2000);
  {
    const auto store = test::open_store(folder / "good");
    const SessionId id = test::create(*store, "name").id;
    const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
    for (const SampleBlock& block : chain) {
      ASSERT_TRUE(store
                      ->commit({.session = id,
                                .events = {test::user_event(block.depth + 1, "message")},
                                .kv_namespace = name_space,
                                .blocks = {block.view()},
                                .tail = NewTail{.payload = block.payload}})
                      .ok());
    }
  }
  std::mt19937 random(1);
  int n_errors = 0, n_refused = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    fs::remove_all(folder / "bad");
    fs::copy(folder / "good", folder / "bad", fs::copy_options::recursive);
    std::vector<std::string> tables;
    for (const auto& entry : fs::directory_iterator(folder / "bad/db")) {
      if (entry.path().extension() == ".sst") tables.push_back(entry.path().string());
    }
    ASSERT_FALSE(tables.empty());
    std::sort(tables.begin(), tables.end());
    const std::string path = tables[random() % tables.size()];
    const std::string bytes = test::read_file(path);
    const std::size_t at = random() % bytes.size();
    test::write_file(path, flipped(bytes, at, static_cast<int>(random() % 8)));
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + path + " at " + std::to_string(at));
    auto store = SessionStore::open(folder / "bad", test::run_options());
    if (!store.ok()) {
      EXPECT_EQ(store.status().code(), StatusCode::kCorrupt) << store.status().to_string();
      ++n_refused;
      continue;
    }
    check_contents(**store, chain, n_errors);
  }
  EXPECT_GT(n_errors, 0);
  RecordProperty("refused", n_refused);
}

}  // namespace
}  // namespace cairn::session
