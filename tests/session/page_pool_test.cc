// Shared pages: equal blocks of live sessions are held once, by key, and only as long as a session
// holds them.
#include "session/page_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using engine::KvPage;
using engine::KvPagePtr;
using session::BlockKey;
using session::PagePool;
using test::ask;
using test::kBlock;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::Reply;
using test::words;

BlockKey key_of(unsigned i) {
  return {static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8)};
}

KvPagePtr page_of(std::size_t n_bytes) {
  return std::make_shared<const KvPage>(KvPage{std::vector<std::byte>(n_bytes)});
}

TEST(PagePool, the_first_live_page_of_a_key_is_everybodys) {
  PagePool pool;
  EXPECT_EQ(pool.find(key_of(1)), nullptr);
  KvPagePtr first = page_of(10), second = page_of(10);
  EXPECT_EQ(pool.share(key_of(1), first), first);
  EXPECT_EQ(pool.share(key_of(1), second), first);
  EXPECT_EQ(pool.share(key_of(2), second), second);
  EXPECT_EQ(pool.find(key_of(1)), first);
  EXPECT_EQ(pool.bytes(), 20);
  first.reset();
  EXPECT_EQ(pool.find(key_of(1)), nullptr);  // the pool kept nothing alive
  EXPECT_EQ(pool.bytes(), 10);
  EXPECT_EQ(pool.share(key_of(1), second), second);
}

TEST(PagePool, pages_that_come_and_go_leave_nothing_behind) {
  PagePool pool;
  std::vector<KvPagePtr> held;
  for (unsigned i = 0; i < 5000; ++i) {
    held.push_back(pool.share(key_of(i), page_of(1)));
    if (held.size() == 100) held.clear();
  }
  EXPECT_EQ(pool.bytes(), static_cast<std::int64_t>(held.size()));
  for (unsigned i = 5000 - static_cast<unsigned>(held.size()); i < 5000; ++i) {
    EXPECT_NE(pool.find(key_of(i)), nullptr);
  }
}

// --- Sessions. One system prompt of more than two blocks, different questions.

constexpr int kSystemWords = 110;

Session with_system(LiveStore& store, const std::string& name, const SessionOptions& options = {}) {
  Session session = store.create(name, options);
  EXPECT_TRUE(session.append(Message::system(words(kSystemWords, 42))).ok());
  return session;
}

const engine::Sequence& live(const Session& session) {
  return session.state()->live().sequence();  // no turn runs
}

const TurnOptions kOptions = {.sampling = test::sampled(5), .max_tokens = 6};

TEST(PagePool, two_sessions_hold_a_common_prompt_once) {
  LiveStore store;
  Session a = with_system(store, "a"), b = with_system(store, "b");
  ask(a, words(3, 1), kOptions);
  const std::int64_t before = store.store().stats()->bytes_live;
  const Reply reply = ask(b, words(4, 2), kOptions);
  const std::int64_t n_common = reply.reuse.from_memory / kBlock;
  EXPECT_EQ(n_common, 2);
  for (std::int64_t block = 0; block < n_common; ++block) {
    EXPECT_EQ(live(a).page(block), live(b).page(block));
  }
  const std::int64_t n_own = live(b).n_blocks() - n_common;
  EXPECT_EQ(store.store().stats()->bytes_live,
            before + live(b).private_bytes() + n_own * live(b).block_bytes());
}

// Both compute the prompt before either could find it: the second to finish gives its pages up.
TEST(PagePool, blocks_computed_twice_at_once_are_held_once) {
  LiveStore store;
  Session a = with_system(store, "a"), b = with_system(store, "b");
  test::say(a, words(3, 1));
  test::say(b, words(3, 1));
  std::optional<Turn> first, second;
  {
    const test::HeldStrand held(live_model());
    first.emplace(std::move(*a.start_turn(kOptions)));
    second.emplace(std::move(*b.start_turn(kOptions)));
  }
  const Reply told_a = test::read_turn(*first), told_b = test::read_turn(*second);
  EXPECT_EQ(told_a.reuse.from_memory, 0);
  EXPECT_EQ(told_b.reuse.from_memory, 0);
  EXPECT_EQ(last_tokens(a), last_tokens(b));
  ASSERT_GT(live(a).n_blocks(), 1);
  for (std::int64_t block = 0; block < live(a).n_blocks(); ++block) {
    EXPECT_EQ(live(a).page(block), live(b).page(block));
  }
}

TEST(PagePool, a_session_outlives_the_one_that_lent_it_its_pages) {
  LiveStore store, alone;
  Session a = with_system(store, "a"), b = with_system(store, "b");
  ask(a, words(3, 1), kOptions);
  EXPECT_GT(ask(b, words(4, 2), kOptions).reuse.from_memory, 0);
  { const Session closed = std::move(a); }
  ask(b, words(4, 3), kOptions);
  Session c = with_system(alone, "c");
  ask(c, words(4, 2), kOptions);
  ask(c, words(4, 3), kOptions);
  EXPECT_EQ(last_tokens(b), last_tokens(c));
}

TEST(PagePool, a_closed_session_leaves_nothing_in_memory) {
  LiveStore store;
  const std::int64_t n_tokens = [&] {
    Session session = with_system(store, "s");
    ask(session, words(60, 1), kOptions);
    return live(session).position();
  }();
  EXPECT_GT(n_tokens, 3 * kBlock);
  EXPECT_EQ(store.store().stats()->bytes_live, 0);  // nobody holds anything
}

}  // namespace
}  // namespace cairn
