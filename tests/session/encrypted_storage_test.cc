#include "session/encrypted_storage.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::Bytes;
using test::code_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

StoreKeys keys_of(std::uint8_t byte) {
  SecretKey key;
  key.bytes().fill(byte);
  Cipher cipher = std::move(*Cipher::create(key));
  return {std::move(cipher), std::move(key), "salt"};
}

struct EncryptedStorage : testing::Test {
  test::TemporaryFolder folder;
  test::ProbedStorage* below = nullptr;  // sees what the database sees
  std::unique_ptr<Storage> storage;

  EncryptedStorage() { open(); }

  void open(std::uint8_t key = 1) {
    storage.reset();
    auto probed =
        std::make_unique<test::ProbedStorage>(std::move(*open_rocksdb_storage(folder / "db")));
    below = probed.get();
    storage = encrypted_storage(std::move(probed), keys_of(key));
  }

  void put(Family family, const std::string& key, const std::string& value) {
    WriteBatch batch;
    batch.put(family, key, value);
    ASSERT_TRUE(storage->write(batch, Durability::kBuffered).ok());
  }
};

Pairs pairs_of(Storage& storage, Family family, std::string_view prefix = "",
               std::string_view first = "") {
  Pairs pairs;
  const auto keep = [&](std::string_view key, std::string_view value) {
    pairs.emplace_back(key, value);
    return true;
  };
  EXPECT_TRUE(storage.scan(family, prefix, first, keep).ok());
  return pairs;
}

// What view shows, "-" where there is nothing.
std::vector<std::string> seen(Storage& storage, Family family,
                              const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  EXPECT_TRUE(storage
                  .view(family, keys,
                        [&](std::size_t i, std::optional<std::string_view> value) {
                          EXPECT_EQ(i, values.size());
                          values.emplace_back(value.value_or("-"));
                          return true;
                        })
                  .ok());
  return values;
}

// Random operations on the storage and on maps, which must always show the same.
TEST_F(EncryptedStorage, equals_a_map_under_random_operations) {
  constexpr std::uint32_t kSeed = 20261130;
  constexpr int kSteps = 3000;
  std::cout << "seed " << kSeed << ", steps " << kSteps << "\n";
  std::mt19937 random(kSeed);
  const auto below_n = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::string> keys = {
      "header",      "name/",       "name/b", "name/a",       "name/ab", "name/\xff",
      "namespace/x", "namespace/y", "",       "a longer key", "n"};
  std::map<Family, std::map<std::string, std::string>> model;
  std::uint64_t bulk_number = 0;
  for (int step = 0; step < kSteps && !HasFailure(); ++step) {
    const auto family = static_cast<Family>(below_n(kFamilyCount));
    auto& expected = model[family];
    const std::string key = keys[below_n(keys.size())];
    switch (below_n(8)) {
      case 0: {  // a batch of everything
        WriteBatch batch;
        const Bytes body = test::random_bytes(random(), below_n(3000));
        const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
        batch.put(family, key, "head", body);
        expected[key] = "head" + text;
        batch.put(Family::kMeta, "name/both", "", body);
        model[Family::kMeta]["name/both"] = text;
        const std::string bulk_key = block_number_key(0xfffffff0, ++bulk_number);
        batch.put_bulk(Family::kBlocks, bulk_key, "bulk", body);
        model[Family::kBlocks][bulk_key] = "bulk" + text;
        batch.remove(family, keys[0]);
        expected.erase(keys[0]);
        ASSERT_TRUE(storage->write(batch, Durability::kBuffered).ok());
        break;
      }
      case 1: {
        WriteBatch batch;
        batch.remove(family, key);
        ASSERT_TRUE(storage->write(batch, Durability::kSynced).ok());
        expected.erase(key);
        break;
      }
      case 2: {
        const std::string prefix = keys[below_n(keys.size())];
        Pairs in_range;
        for (const auto& pair : expected) {
          if (pair.first.starts_with(prefix) && pair.first >= key) in_range.push_back(pair);
        }
        EXPECT_EQ(pairs_of(*storage, family, prefix, key), in_range) << prefix << " " << key;
        break;
      }
      case 3: {
        const auto values = storage->multi_get(family, keys);
        ASSERT_TRUE(values.ok());
        const auto viewed = seen(*storage, family, keys);
        for (std::size_t i = 0; i < keys.size(); ++i) {
          const auto found = expected.find(keys[i]);
          ASSERT_EQ((*values)[i].has_value(), found != expected.end());
          EXPECT_EQ(viewed[i], found == expected.end() ? "-" : found->second);
          EXPECT_EQ((*values)[i].value_or("-"), viewed[i]);
        }
        break;
      }
      case 4:
        if (below_n(50) == 0) open();
        ASSERT_TRUE(storage->reclaim(family, key, key + "z").ok());
        break;
      default: {
        const auto value = storage->get(family, key);
        const auto found = expected.find(key);
        if (found == expected.end()) {
          EXPECT_EQ(code_of(value), StatusCode::kNotFound);
        } else {
          EXPECT_EQ(*value, found->second);
        }
      }
    }
  }
  for (int i = 0; i < kFamilyCount; ++i) {
    const auto& expected = model[static_cast<Family>(i)];
    EXPECT_EQ(pairs_of(*storage, static_cast<Family>(i)), Pairs(expected.begin(), expected.end()));
  }
}

TEST_F(EncryptedStorage, only_the_header_lies_there_as_it_was_written) {
  for (int i = 0; i < kFamilyCount; ++i) {
    const auto family = static_cast<Family>(i);
    for (const std::string key : {"header", "name/header", "commit"}) {
      put(family, key, "the plain value");
      const Pairs stored = pairs_of(*below, family);
      const bool plain = family == Family::kMeta && key == "header";
      for (const auto& [stored_key, value] : stored) {
        if (stored_key == key) {
          EXPECT_EQ(value == "the plain value", plain) << key << " in " << i;
        }
        EXPECT_TRUE(family != Family::kMeta || stored_key.find("name/header") == std::string::npos);
      }
    }
  }
}

TEST_F(EncryptedStorage, names_are_hidden_and_come_back_in_order) {
  Pairs expected;
  for (const std::string name : {"alpha", "beta", "gamma", "gammb"}) {
    put(Family::kMeta, "name/" + name, "value of " + name);
    expected.emplace_back("name/" + name, "value of " + name);
  }
  EXPECT_EQ(pairs_of(*storage, Family::kMeta, "name/"), expected);
  EXPECT_EQ(pairs_of(*storage, Family::kMeta, "name/gamm"),
            Pairs(expected.begin() + 2, expected.end()));
  EXPECT_EQ(pairs_of(*storage, Family::kMeta, "name/", "name/b"),
            Pairs(expected.begin() + 1, expected.end()));
  for (const auto& [key, value] : pairs_of(*below, Family::kMeta)) {
    EXPECT_EQ(key.size(), 5u + 32u);
    for (const auto& [name, written] : expected) {
      EXPECT_EQ(key.find(name.substr(5)), std::string::npos);
      EXPECT_EQ(value.find(name.substr(5)), std::string::npos);
    }
  }
  // Another key hides them otherwise, and finds none of them.
  open(2);
  EXPECT_EQ(code_of(storage->get(Family::kMeta, "name/alpha")), StatusCode::kNotFound);
}

TEST_F(EncryptedStorage, a_value_that_any_bit_was_changed_of_is_damaged) {
  const std::string good = "the neighbour";
  for (const auto& [family, key] : std::vector<std::pair<Family, std::string>>{
           {Family::kMeta, "name/n"}, {Family::kEvents, "event"}, {Family::kBlocks, "block"}}) {
    put(family, key, "a value of some length");
    put(family, key + "2", good);
    const Pairs stored = pairs_of(*below, family);
    // The names' order is that of their hashes: the longer value is the one to damage.
    const auto& [stored_key, value] =
        stored[0].second.size() > stored[1].second.size() ? stored[0] : stored[1];
    int n_checked = 0;
    for (std::size_t bit = 0; bit < 8 * value.size(); ++bit, ++n_checked) {
      std::string damaged = value;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      below->put_raw(family, stored_key, damaged);
      ASSERT_EQ(code_of(storage->get(family, key)), StatusCode::kCorrupt) << bit;
      const std::vector<std::string> both = {key, key + "2"};
      ASSERT_EQ(seen(*storage, family, both), (std::vector<std::string>{"", good})) << bit;
      const auto values = storage->multi_get(family, both);
      ASSERT_TRUE(values.ok());
      ASSERT_EQ((*values)[0], "");
      ASSERT_EQ((*values)[1], good);
      const Pairs scanned = pairs_of(*storage, family);
      ASSERT_EQ(scanned.size(), 2u);
      ASSERT_EQ((scanned[0].second == good) + (scanned[1].second == good), 1);
      ASSERT_EQ(scanned[0].second.empty() + scanned[1].second.empty(), 1);
    }
    EXPECT_GT(n_checked, 400);
    for (const std::size_t length : {0ul, 1ul, 24ul, 40ul, 41ul, value.size() - 1}) {
      below->put_raw(family, stored_key, value.substr(0, length));
      EXPECT_EQ(code_of(storage->get(family, key)), StatusCode::kCorrupt) << length;
    }
    below->put_raw(family, stored_key, value);
    EXPECT_EQ(*storage->get(family, key), "a value of some length");
  }
}

TEST_F(EncryptedStorage, a_value_in_the_place_of_another_is_damaged) {
  const std::vector<std::string> keys = {"one", "two", "name/one", "name/two"};
  for (int i = 0; i < kFamilyCount; ++i) {
    for (const std::string& key : keys) put(static_cast<Family>(i), key, "the same value");
  }
  std::map<std::pair<int, std::string>, std::string> stored;
  for (int i = 0; i < kFamilyCount; ++i) {
    for (const auto& [key, value] : pairs_of(*below, static_cast<Family>(i))) {
      stored[{i, key}] = value;
    }
  }
  ASSERT_EQ(stored.size(), kFamilyCount * keys.size());
  int n_swapped = 0;
  for (const auto& [to, original] : stored) {
    const auto family = static_cast<Family>(to.first);
    for (const auto& [from, value] : stored) {
      below->put_raw(family, to.second, value);
      int n_empty = 0, n_right = 0;
      for (const auto& [key, found] : pairs_of(*storage, family)) {
        n_empty += found.empty();
        n_right += found == "the same value";
      }
      ASSERT_EQ(n_empty, from == to ? 0 : 1) << to.second << " from " << from.second;
      ASSERT_EQ(n_empty + n_right, static_cast<int>(keys.size()));
      n_swapped += from != to;
    }
    below->put_raw(family, to.second, original);
  }
  EXPECT_EQ(n_swapped, 28 * 27);
}

TEST_F(EncryptedStorage, another_key_opens_nothing) {
  put(Family::kEvents, "event", "value");
  open(2);
  EXPECT_EQ(code_of(storage->get(Family::kEvents, "event")), StatusCode::kCorrupt);
  open(1);
  EXPECT_EQ(*storage->get(Family::kEvents, "event"), "value");
}

// Equal values under one key, and in one batch: no nonce comes twice, whoever opened the store.
TEST_F(EncryptedStorage, no_nonce_is_used_twice) {
  std::set<std::string> nonces;
  int n_values = 0;
  for (int opened = 0; opened < 5; ++opened) {
    open();
    for (int round = 0; round < 20; ++round) {
      WriteBatch batch;
      for (int i = 0; i < 100; ++i) {
        batch.put(Family::kEvents, event_key(SessionId{}, static_cast<std::uint64_t>(i)), "equal");
      }
      ASSERT_TRUE(storage->write(batch, Durability::kBuffered).ok());
      for (const auto& [key, value] : pairs_of(*below, Family::kEvents)) {
        nonces.insert(value.substr(1, kNonceBytes));
        ++n_values;
      }
    }
  }
  EXPECT_EQ(n_values, 10'000);
  EXPECT_EQ(nonces.size(), 10'000u);
}

}  // namespace
}  // namespace cairn::session
