// The budget for live KV: sessions that are put to disk for want of memory say what they say with
// memory enough, and who uses what is in memory is never disturbed.
#include "session/live_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using session::LiveHolder;
using session::LiveMemory;
using session::PagePool;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::Reply;
using test::Script;
using test::turn;

// --- The policy.

class Holder : public LiveHolder {
 public:
  bool put_away() noexcept override {
    if (in_use) return false;
    ++n_put_away;
    return true;
  }
  bool in_use = false;
  int n_put_away = 0;
};

TEST(LiveMemory, the_least_recently_used_goes_first_and_the_last_two_stay) {
  PagePool pool;
  LiveMemory memory(100, pool);
  std::vector<Holder> holders(5);
  for (Holder& holder : holders) memory.add(holder);
  for (int i : {3, 0, 1}) memory.used(holders[static_cast<std::size_t>(i)], 40);
  EXPECT_EQ(holders[3].n_put_away, 1);  // 120 bytes
  EXPECT_EQ(memory.bytes(), 80);
  memory.used(holders[4], 95);
  EXPECT_EQ(holders[0].n_put_away, 1);
  EXPECT_EQ(holders[1].n_put_away, 0);
  EXPECT_EQ(memory.bytes(), 135);  // above the budget: two stay whatever they have
  memory.used(holders[2], 1);
  EXPECT_EQ(holders[1].n_put_away, 1);
  EXPECT_EQ(holders[4].n_put_away, 0);
  for (Holder& holder : holders) memory.remove(holder);
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(LiveMemory, what_is_in_use_stays_and_the_next_one_goes) {
  PagePool pool;
  LiveMemory memory(100, pool);
  std::vector<Holder> holders(4);
  for (Holder& holder : holders) memory.add(holder);
  holders[0].in_use = true;
  for (Holder& holder : holders) memory.used(holder, 60);
  EXPECT_EQ(holders[0].n_put_away, 0);
  EXPECT_EQ(holders[1].n_put_away, 1);
  EXPECT_EQ(memory.bytes(), 180);
  holders[0].in_use = false;
  memory.used(holders[3], 60);
  EXPECT_EQ(holders[0].n_put_away, 1);
  for (Holder& holder : holders) memory.remove(holder);
}

TEST(LiveMemory, pages_of_the_pool_count_once) {
  PagePool pool;
  LiveMemory memory(1000, pool);
  const auto page =
      std::make_shared<const engine::KvPage>(engine::KvPage{std::vector<std::byte>(300)});
  const auto same = pool.share(session::BlockKey{1}, page);
  EXPECT_EQ(pool.share(session::BlockKey{1}, page), same);
  EXPECT_EQ(memory.bytes(), 300);
}

// --- Sessions.

struct Told {
  std::vector<std::vector<TokenId>> answers;
  std::int64_t from_disk = 0, bytes_live_max = 0;
};

// Five sessions take turns. Their first messages begin alike, those of the first two are the same.
Told converse(std::int64_t live_bytes, const SessionOptions& options) {
  constexpr unsigned kSessions = 5, kTurns = 3;
  LiveStore store(live_model(), {.live_bytes = live_bytes});
  std::vector<Session> sessions;
  for (unsigned i = 0; i < kSessions; ++i) {
    sessions.push_back(store.create(std::to_string(i), options));
  }
  Told told;
  for (unsigned number = 0; number < kTurns; ++number) {
    for (unsigned i = 0; i < kSessions; ++i) {
      const Script script = {.options = options,
                             .sampling = test::sampled(100 + i),
                             .n_words = i < 2 ? 90 : 40 + 10 * static_cast<int>(i),
                             .max_tokens = 10};
      const Reply reply = turn(sessions[i], script, number);
      EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
      EXPECT_TRUE(reply.reuse.exact);
      EXPECT_TRUE(number == 0 || reply.reuse.replayed == 0);  // an exact state is stored for each
      told.answers.push_back(last_tokens(sessions[i]));
      told.from_disk += reply.reuse.from_disk;
      told.bytes_live_max = std::max(told.bytes_live_max, store.store().stats()->bytes_live);
    }
  }
  return told;
}

TEST(LiveMemory, sessions_say_with_a_tiny_budget_what_they_say_without_one) {
  const Told unlimited = converse(std::int64_t{1} << 40, {});
  const Told tiny = converse(1, {});
  EXPECT_EQ(tiny.answers, unlimited.answers);
  EXPECT_EQ(unlimited.from_disk, 0);
  EXPECT_GT(tiny.from_disk, 0);
  EXPECT_LT(tiny.bytes_live_max, unlimited.bytes_live_max * 2 / 3);
}

TEST(LiveMemory, a_session_put_away_has_nothing_in_memory_and_everything_on_disk) {
  LiveStore store(live_model(), {.live_bytes = 1});
  Session a = store.create("a"), b = store.create("b"), c = store.create("c");
  const Script script = {.sampling = test::sampled(3), .n_words = 60, .max_tokens = 8};
  turn(a, script, 0);
  const std::int64_t alone = store.store().stats()->bytes_live;
  EXPECT_GT(alone, 0);
  turn(b, script, 0);
  EXPECT_TRUE(a.state()->live().is_live());
  turn(c, script, 0);
  EXPECT_FALSE(a.state()->live().is_live());
  EXPECT_TRUE(b.state()->live().is_live());
  EXPECT_TRUE(c.state()->live().is_live());
  const Reply reply = turn(a, script, 1);
  EXPECT_TRUE(reply.reuse.tail_restored);
  EXPECT_EQ(reply.reuse.replayed, 0);
  EXPECT_FALSE(b.state()->live().is_live());
}

}  // namespace
}  // namespace cairn
