// Tails and the numbers they lie under: sharing, replacing, what is left after a failed batch.
#include "session/tail_store.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::code_of;
using test::TemporaryFolder;

SessionId session_of(std::uint8_t number) {
  SessionId id;
  id.bytes.fill(number);
  return id;
}

std::set<std::uint64_t> stored_numbers(Storage& storage) {
  std::set<std::uint64_t> numbers;
  EXPECT_TRUE(storage
                  .scan(Family::kTails, "", "",
                        [&](std::string_view key, std::string_view) {
                          std::uint64_t number = 0;
                          for (const char c : key) {
                            number = number << 8 | static_cast<unsigned char>(c);
                          }
                          numbers.insert(number);
                          return true;
                        })
                  .ok());
  return numbers;
}

class TailStoreTest : public ::testing::Test {
 protected:
  void open() {
    tails_.reset();
    storage_.reset();
    auto opened = open_rocksdb_storage(folder_ / "db");
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    storage_ = std::move(*opened);
    tails_.emplace(*storage_, counters_);
    ASSERT_TRUE(tails_->load().ok());
  }
  void SetUp() override { open(); }

  // What `change` does, as one batch.
  template <class Change>
  void apply(const Change& change) {
    WriteBatch batch;
    TailStore::Changes changes(*tails_, batch);
    change(changes);
    ASSERT_TRUE(storage_->write(batch, Durability::kBuffered).ok());
    changes.written();
  }
  void put(const TailSlot& slot, std::span<const std::byte> payload) {
    apply([&](TailStore::Changes& changes) {
      EXPECT_TRUE(changes.put(slot.session, {.slot = slot.slot, .payload = payload}).ok());
    });
  }
  bool share(const TailSlot& from, const TailSlot& to) {
    bool shared = false;
    apply([&](TailStore::Changes& changes) { shared = *changes.share(from, to); });
    return shared;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Storage> storage_;
  Counters counters_;
  std::optional<TailStore> tails_;
};

const TailSlot kHead = {session_of(1), kHeadTail}, kMark = {session_of(1), 9},
               kFork = {session_of(2), kHeadTail};

TEST_F(TailStoreTest, a_shared_tail_lives_until_its_last_slot_lets_go) {
  const test::Bytes first = test::random_bytes(1, 1000), second = test::random_bytes(2, 1000);
  put(kHead, first);
  ASSERT_TRUE(share(kHead, kMark));
  ASSERT_TRUE(share(kMark, kFork));
  put(kHead, second);
  EXPECT_EQ(stored_numbers(*storage_), (std::set<std::uint64_t>{1, 2}));
  open();
  const auto fork = tails_->get(kFork);
  ASSERT_TRUE(fork.ok()) << fork.status().to_string();
  EXPECT_EQ(fork->record.session, kFork.session);
  EXPECT_TRUE(test::same_bytes(fork->payload(), first));
  ASSERT_TRUE(tails_->drop(kMark).ok());
  EXPECT_TRUE(tails_->get(kFork).ok());
  ASSERT_TRUE(tails_->drop(kFork).ok());
  EXPECT_EQ(stored_numbers(*storage_), (std::set<std::uint64_t>{2}));
  EXPECT_TRUE(test::same_bytes(tails_->get(kHead)->payload(), second));
}

TEST_F(TailStoreTest, sharing_an_empty_slot_changes_nothing) {
  EXPECT_FALSE(share(kHead, kFork));
  EXPECT_EQ(code_of(tails_->find(kFork)), StatusCode::kNotFound);
}

TEST_F(TailStoreTest, one_batch_may_let_go_of_a_tail_twice) {
  put(kHead, test::random_bytes(1, 1000));
  ASSERT_TRUE(share(kHead, kMark));
  apply([&](TailStore::Changes& changes) { EXPECT_TRUE(changes.remove_all(kHead.session).ok()); });
  EXPECT_EQ(stored_numbers(*storage_).size(), 0u);
}

TEST_F(TailStoreTest, a_batch_that_is_given_up_leaves_the_slots_as_they_were) {
  const test::Bytes payload = test::random_bytes(1, 1000);
  put(kHead, payload);
  {
    WriteBatch batch;
    TailStore::Changes changes(*tails_, batch);
    ASSERT_TRUE(changes.put(kHead.session, {.payload = payload}).ok());
    changes.remove(kHead);
    ASSERT_TRUE(*changes.share(kHead, kFork) == false);
  }
  EXPECT_TRUE(share(kHead, kFork));
  ASSERT_TRUE(tails_->drop(kHead).ok());
  EXPECT_TRUE(test::same_bytes(tails_->get(kFork)->payload(), payload));
}

// Two changes let go of the last two names at once; neither may take the bytes from the other.
TEST_F(TailStoreTest, concurrent_removals_leave_no_slot_without_bytes_and_no_bytes_for_ever) {
  put(kHead, test::random_bytes(1, 1000));
  ASSERT_TRUE(share(kHead, kFork));
  WriteBatch one, other;
  TailStore::Changes first(*tails_, one), second(*tails_, other);
  first.remove(kHead);
  second.remove(kFork);
  ASSERT_TRUE(storage_->write(other, Durability::kBuffered).ok());
  second.written();
  EXPECT_EQ(stored_numbers(*storage_).size(), 1u);
  ASSERT_TRUE(storage_->write(one, Durability::kBuffered).ok());
  first.written();
  put(kMark, test::random_bytes(2, 1000));
  EXPECT_EQ(stored_numbers(*storage_), (std::set<std::uint64_t>{2}));
}

TEST_F(TailStoreTest, random_histories_agree_with_a_model) {
  constexpr std::uint32_t kSeed = 20261130;
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937 random(kSeed);
  std::map<TailSlot, test::Bytes> model;
  const auto any_slot = [&] {
    return TailSlot{session_of(static_cast<std::uint8_t>(random() % 3)), random() % 3};
  };
  for (int step = 0; step < 400; ++step) {
    const TailSlot a = any_slot(), b = any_slot();
    switch (random() % 4) {
      case 0:
        model[a] = test::random_bytes(random(), random() % 3 == 0 ? 300'000 : 3'000);
        put(a, model[a]);
        break;
      case 1:
        ASSERT_EQ(share(a, b), model.contains(a)) << step;
        if (model.contains(a)) model[b] = test::Bytes(model[a]);
        break;
      case 2:
        ASSERT_TRUE(tails_->drop(a).ok());
        model.erase(a);
        break;
      default:
        if (random() % 8 == 0) open();
        if (random() % 4 == 0) {
          ASSERT_TRUE(tails_->reclaim().ok());
        }
    }
    std::set<std::uint64_t> named;
    for (const auto& [slot, payload] : model) {
      const auto tail = tails_->get(slot);
      ASSERT_TRUE(tail.ok()) << step << ": " << tail.status().to_string();
      ASSERT_TRUE(test::same_bytes(tail->payload(), payload)) << step;
      named.insert(tail->record.number);
    }
    ASSERT_EQ(stored_numbers(*storage_), named) << step;
  }
}

}  // namespace
}  // namespace cairn::session
