#include "session/rocksdb_storage.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::TemporaryFolder;

std::unique_ptr<Storage> open(const std::string& path) {
  auto storage = open_rocksdb_storage(path);
  EXPECT_TRUE(storage.ok()) << storage.status().to_string();
  return std::move(*storage);
}

void put(Storage& storage, Family family, const std::string& key, const std::string& value) {
  WriteBatch batch;
  batch.put(family, key, value);
  ASSERT_TRUE(storage.write(batch, Durability::kBuffered).ok());
}

std::vector<std::string> keys_of(Storage& storage, Family family, std::string_view prefix,
                                 std::string_view first = "") {
  std::vector<std::string> keys;
  EXPECT_TRUE(storage
                  .scan(family, prefix, first,
                        [&](std::string_view key, std::string_view) {
                          keys.emplace_back(key);
                          return true;
                        })
                  .ok());
  return keys;
}

TEST(RocksdbStorage, families_are_apart_and_survive_reopening) {
  const TemporaryFolder folder;
  for (const bool reopened : {false, true}) {
    const auto storage = open(folder / "db");
    for (int i = 0; i < kFamilyCount && !reopened; ++i) {
      put(*storage, static_cast<Family>(i), "key", "value " + std::to_string(i));
    }
    for (int i = 0; i < kFamilyCount; ++i) {
      EXPECT_EQ(*storage->get(static_cast<Family>(i), "key"), "value " + std::to_string(i));
    }
    EXPECT_EQ(storage->get(Family::kMeta, "kez").status().code(), StatusCode::kNotFound);
  }
}

TEST(RocksdbStorage, a_value_is_its_head_followed_by_its_body) {
  const TemporaryFolder folder;
  const auto storage = open(folder / "db");
  const test::Bytes body = test::random_bytes(1, 5);
  WriteBatch batch;
  batch.put(Family::kBlocks, "key", "head", body);
  ASSERT_TRUE(storage->write(batch, Durability::kSynced).ok());
  EXPECT_EQ(batch.n_bytes(), 12);
  const std::string value = *storage->get(Family::kBlocks, "key");
  EXPECT_EQ(value.substr(0, 4), "head");
  EXPECT_TRUE(test::same_bytes(std::as_bytes(std::span(value)).subspan(4), body));
}

TEST(RocksdbStorage, scans_exactly_the_prefix) {
  const TemporaryFolder folder;
  const auto storage = open(folder / "db");
  for (const char* key : {"a", "b", "b\x01", "b\xff", "b\xff\xff", "c", "\xff", "\xff\xff"}) {
    put(*storage, Family::kEvents, key, "");
  }
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of(*storage, Family::kEvents, "b"), (Keys{"b", "b\x01", "b\xff", "b\xff\xff"}));
  EXPECT_EQ(keys_of(*storage, Family::kEvents, "b", "b\x02"), (Keys{"b\xff", "b\xff\xff"}));
  EXPECT_EQ(keys_of(*storage, Family::kEvents, "b\xff"), (Keys{"b\xff", "b\xff\xff"}));
  EXPECT_EQ(keys_of(*storage, Family::kEvents, "\xff"), (Keys{"\xff", "\xff\xff"}));
  EXPECT_EQ(keys_of(*storage, Family::kEvents, "").size(), 8u);
  EXPECT_EQ(keys_of(*storage, Family::kSessions, "").size(), 0u);
}

TEST(RocksdbStorage, multi_get_keeps_the_order_and_marks_gaps) {
  const TemporaryFolder folder;
  const auto storage = open(folder / "db");
  put(*storage, Family::kBlockIndex, "a", "1");
  put(*storage, Family::kBlockIndex, "c", "3");
  const std::vector<std::string> keys = {"c", "b", "a"};
  const auto values = storage->multi_get(Family::kBlockIndex, keys);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[0], "3");
  EXPECT_EQ((*values)[1], std::nullopt);
  EXPECT_EQ((*values)[2], "1");
}

TEST(RocksdbStorage, a_missing_database_is_not_made_unasked) {
  const TemporaryFolder folder;
  const auto storage = open_rocksdb_storage(folder / "db", {.create_if_missing = false});
  EXPECT_EQ(storage.status().code(), StatusCode::kNotFound);
}

TEST(RocksdbStorage, a_database_that_is_open_is_busy) {
  const TemporaryFolder folder;
  const auto storage = open(folder / "db");
  EXPECT_EQ(open_rocksdb_storage(folder / "db").status().code(), StatusCode::kBusy);
}

TEST(RocksdbStorage, closing_leaves_no_log_to_replay) {
  const TemporaryFolder folder;
  {
    const auto storage = open(folder / "db");
    put(*storage, Family::kTails, "key", std::string(3 << 20, 'x'));
  }
  std::uintmax_t n_log_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "db")) {
    if (entry.path().extension() == ".log") n_log_bytes += entry.file_size();
  }
  EXPECT_EQ(n_log_bytes, 0u);
  EXPECT_EQ(open(folder / "db")->get(Family::kTails, "key")->size(), 3u << 20);
}

}  // namespace
}  // namespace cairn::session
