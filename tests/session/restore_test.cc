// Restoring: whatever of a session's state is lost, its answers are those of a session that was
// never closed, and the report says what was reused.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "session/block_key.h"
#include "session/rocksdb_storage.h"
#include "session/storage_key.h"
#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using test::ask;
using test::kBlock;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::replayed_rows;
using test::Reply;
using test::say;
using test::Script;
using test::turn;
using test::unbroken;
using test::words;

// --- The tail.

TEST(Restore, a_reopened_session_continues_from_its_tail) {
  const Script script = {.sampling = test::sampled(11)};
  const auto expected = unbroken(script, 3);
  LiveStore store;
  Reply before;
  {
    Session session = store.create("s");
    before = turn(session, script, 0);
  }
  for (unsigned number = 1; number < 3; ++number) {
    store.reopen();
    Session session = store.open_session("s");
    const Reply reply = turn(session, script, number);
    EXPECT_EQ(last_tokens(session), expected[number]);
    const ReuseReport& reuse = reply.reuse;
    EXPECT_TRUE(reuse.tail_restored);
    EXPECT_TRUE(reuse.exact);
    EXPECT_EQ(reuse.from_memory, 0);
    EXPECT_EQ(reuse.from_disk, before.usage.context_used - 1);  // the last token was never fed
    EXPECT_EQ(reuse.replayed, 0);
    EXPECT_EQ(reuse.cause, MissCause::kNewTokens);
    EXPECT_EQ(reuse.first_difference, -1);
    before = reply;
  }
}

TEST(Restore, a_lost_tail_costs_an_exact_replay_and_changes_nothing) {
  for (const SamplingParams& sampling : {test::greedy(), test::penalised(4)}) {
    const Script script = {.sampling = sampling};
    const auto expected = unbroken(script, 2);
    LiveStore store;
    std::int64_t used = 0;
    {
      Session session = store.create("s");
      used = turn(session, script, 0).usage.context_used;
    }
    store.reopen();
    store.lose_tail("s");
    Session session = store.open_session("s");
    const Reply reply = turn(session, script, 1);
    EXPECT_EQ(last_tokens(session), expected[1]);
    const ReuseReport& reuse = reply.reuse;
    EXPECT_FALSE(reuse.tail_restored);
    EXPECT_TRUE(reuse.exact);
    EXPECT_EQ(reuse.from_disk, (used - 1) / kBlock * kBlock);
    EXPECT_GT(reuse.replayed, 0);
    EXPECT_EQ(reuse.replayed, replayed_rows(reuse.from_disk, reuse.prefilled));
    EXPECT_EQ(reuse.cause, MissCause::kNotStored);  // tokens after the last block
  }
}

TEST(Restore, logits_after_a_replay_are_those_of_an_unbroken_run) {
  const Script script = {.sampling = test::sampled(2)};
  std::vector<std::vector<float>> logits;
  for (const bool lose_tail : {false, true}) {
    LiveStore store;
    {
      Session session = store.create("s");
      turn(session, script, 0);
    }
    store.reopen();
    if (lose_tail) store.lose_tail("s");
    Session session = store.open_session("s");
    turn(session, script, 1);
    const engine::Sequence& live = session.state()->live().sequence();  // no turn runs
    ASSERT_TRUE(live.ready());
    logits.emplace_back(live.logits().begin(), live.logits().end());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// The tail of the turn before lies far behind the blocks of a prefill that was cancelled late.
TEST(Restore, long_chains_of_blocks_win_over_an_old_tail) {
  const Script script = {.sampling = test::sampled(3), .n_words = 20, .max_tokens = 6};
  const TurnOptions options = {.sampling = script.sampling, .max_tokens = 6};
  const auto prepare = [&](LiveStore& store, int n_steps) {
    Session session = store.create("s");
    turn(session, script, 0);
    say(session, words(400, 8));
    return read_turn(
        test::start_and_cancel(live_model(), n_steps, [&] { return session.start_turn(options); }));
  };
  LiveStore unbroken_store, store;
  prepare(unbroken_store, 100'000);
  const std::vector<TokenId> expected = last_tokens(unbroken_store.open_session("s"));
  ASSERT_EQ(prepare(store, 28).end_reason, EndReason::kCancelled);
  store.reopen();
  Session session = store.open_session("s");
  const Reply reply = read_turn(session.resume_turn());
  EXPECT_EQ(last_tokens(session), expected);
  EXPECT_GE(reply.reuse.from_disk, 5 * kBlock);
  EXPECT_TRUE(reply.reuse.exact);
}

// --- Lost and damaged blocks.

// Keys of the exact chain of the prompt and answer of a session's first turn.
std::vector<session::BlockKey> chain_of(LiveStore& store, const std::vector<TokenId>& tokens) {
  session::BlockKey key = session::root_key(
      {live_model().info().fingerprint, session::kKvFormatVersion, store.inside().kv_salt()});
  std::vector<session::BlockKey> chain;
  for (std::size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
    key =
        session::block_key(key, session::Provenance::kExact, std::span(tokens).subspan(at, kBlock));
    chain.push_back(key);
  }
  return chain;
}

// The tokens that are live after a turn.
std::vector<TokenId> live_tokens(const Session& session) {
  const auto tokens = session.state()->live().sequence().tokens();
  return {tokens.begin(), tokens.end()};
}

TEST(Restore, a_lost_block_shortens_the_prefix_and_changes_nothing) {
  const Script script = {.sampling = test::sampled(12), .n_words = 160};
  const auto expected = unbroken(script, 2);
  for (const std::size_t lost : {0, 2}) {
    LiveStore store;
    std::vector<session::BlockKey> chain;
    {
      Session session = store.create("s");
      turn(session, script, 0);
      chain = chain_of(store, live_tokens(session));
    }
    ASSERT_EQ(chain.size(), 3u);
    store.reopen();
    ASSERT_TRUE(*store.inside().has_block(chain[lost]));
    ASSERT_TRUE(store.inside().blocks().drop(chain[lost]).ok());
    Session session = store.open_session("s");
    const Reply reply = turn(session, script, 1);
    EXPECT_EQ(last_tokens(session), expected[1]);
    EXPECT_EQ(reply.reuse.from_disk, static_cast<std::int64_t>(lost) * kBlock);
    EXPECT_FALSE(reply.reuse.tail_restored);
    EXPECT_TRUE(reply.reuse.exact);
    EXPECT_EQ(reply.reuse.cause, MissCause::kEvicted);
    EXPECT_TRUE(*store.inside().has_block(chain[lost]));  // computed, and stored again
  }
}

// Changes one byte in the middle of a stored value. The store is closed.
void damage(const LiveStore& store, session::Family family, const std::string& key) {
  const auto storage = session::open_rocksdb_storage(store.path() + "/db");
  ASSERT_TRUE(storage.ok()) << storage.status().to_string();
  std::string value = *(*storage)->get(family, key);
  value[value.size() / 2] = static_cast<char>(value[value.size() / 2] ^ 1);
  session::WriteBatch batch;
  batch.put(family, key, value);
  ASSERT_TRUE((*storage)->write(batch, session::Durability::kSynced).ok());
}

TEST(Restore, sessions_that_say_they_began_with_each_other_do_not_go_round_for_ever) {
  const Script script = {.sampling = test::sampled(21)};
  LiveStore store;
  for (const char* name : {"a", "b"}) {
    Session session = store.create(name);
    turn(session, script, 0);
  }
  for (const auto& [name, origin] : {std::pair("a", "b"), std::pair("b", "a")}) {
    session::SessionRecord record = *store.inside().find_by_name(name);
    record.origin = store.id_of(origin);
    ASSERT_TRUE(store.inside().commit({.session = record.id, .record = record}).ok());
  }
  store.reopen();
  const Result<Session> session = Session::open(live_model(), store.store(), "a");
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(session->messages().status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(store.inside().find_tails(store.id_of("a")).status().code(), StatusCode::kOk);
}

TEST(Restore, a_damaged_block_is_dropped_and_named_as_the_cause) {
  const Script script = {.sampling = test::sampled(12), .n_words = 160};
  const auto expected = unbroken(script, 2);
  LiveStore store;
  std::vector<session::BlockKey> chain;
  {
    Session session = store.create("s");
    turn(session, script, 0);
    chain = chain_of(store, live_tokens(session));
  }
  ASSERT_EQ(chain.size(), 3u);
  const session::BlockRecord record = *store.inside().blocks().find(chain[1]);
  store.close();
  damage(store, session::Family::kBlocks,
         session::block_number_key(record.kv_namespace, record.number));
  store.open();
  Session session = store.open_session("s");
  const Reply reply = turn(session, script, 1);
  EXPECT_EQ(last_tokens(session), expected[1]);
  EXPECT_EQ(reply.reuse.from_disk, kBlock);
  EXPECT_EQ(reply.reuse.cause, MissCause::kCorrupt);
  EXPECT_TRUE(reply.reuse.exact);
}

TEST(Restore, a_damaged_tail_is_dropped_and_named_as_the_cause) {
  const Script script = {.sampling = test::sampled(12)};
  const auto expected = unbroken(script, 2);
  LiveStore store;
  {
    Session session = store.create("s");
    turn(session, script, 0);
  }
  const std::uint64_t number = store.inside().find_tail(store.id_of("s"))->number;
  store.close();
  damage(store, session::Family::kTails, session::tail_number_key(number));
  store.open();
  Session session = store.open_session("s");
  const Reply reply = turn(session, script, 1);
  EXPECT_EQ(last_tokens(session), expected[1]);
  EXPECT_EQ(reply.reuse.cause, MissCause::kCorrupt);
  EXPECT_TRUE(reply.reuse.tail_restored);  // where the turn began
  EXPECT_EQ(reply.reuse.replayed, 0);
  EXPECT_TRUE(reply.reuse.exact);
}

// --- Bounded restore.

const SessionOptions kBounded = {.restore = RestorePolicy::kBounded};

TEST(Restore, a_bounded_session_is_exact_while_its_tail_is_there) {
  Script script = {.sampling = test::sampled(41)};
  const auto expected = unbroken(script, 3);
  LiveStore store;
  script.options = kBounded;
  { const Session session = store.create("s", script.options); }
  for (unsigned number = 0; number < 3; ++number) {
    Session session = store.open_session("s");  // closed at the end of each round
    EXPECT_TRUE(turn(session, script, number).reuse.exact);
    EXPECT_EQ(last_tokens(session), expected[number]);
  }
}

// A bounded session that lost its tail after a turn of `n_words` and has answered once since.
Reply lose_tail_of_bounded(LiveStore& store, int n_words, int n_words_after) {
  const Script script = {.options = kBounded, .sampling = test::sampled(42), .n_words = n_words};
  {
    Session session = store.create("s", script.options);
    turn(session, script, 0);
  }
  store.reopen();
  store.lose_tail("s");
  Session session = store.open_session("s");
  return ask(session, words(n_words_after, 77), {.sampling = script.sampling, .max_tokens = 12});
}

TEST(Restore, a_bounded_session_without_its_tail_replays_one_window_and_says_so) {
  LiveStore store;
  const Reply reply = lose_tail_of_bounded(store, 80, 3);
  EXPECT_TRUE(reply.status.ok());
  EXPECT_GT(reply.usage.output_tokens, 0);
  EXPECT_FALSE(reply.reuse.exact);
  EXPECT_FALSE(reply.reuse.tail_restored);
  EXPECT_EQ(reply.reuse.replayed, live_model().info().window);
}

TEST(Restore, what_a_bounded_replay_touched_is_never_called_exact_again) {
  for (const int n_words_after : {3, 80}) {  // within a block, and over several
    LiveStore store;
    lose_tail_of_bounded(store, 65, n_words_after);
    const std::int64_t end = store.inside().get_tail(store.id_of("s"))->record.position;
    EXPECT_EQ(end / kBlock > 1, n_words_after > 3);  // the first block is exact
    const TurnOptions options = {.sampling = test::sampled(1), .max_tokens = 4};
    store.reopen();
    {
      Session session = store.open_session("s");
      const Reply from_tail = ask(session, "from the tail", options);
      EXPECT_TRUE(from_tail.reuse.tail_restored);
      EXPECT_FALSE(from_tail.reuse.exact);
      const Reply from_memory = ask(session, "from memory", options);
      EXPECT_GT(from_memory.reuse.from_memory, 0);
      EXPECT_FALSE(from_memory.reuse.exact);
    }
    store.reopen();
    store.lose_tail("s");
    Session session = store.open_session("s");
    EXPECT_FALSE(ask(session, "from blocks", options).reuse.exact);
  }
}

TEST(Restore, an_exact_session_never_uses_blocks_of_a_bounded_replay) {
  LiveStore store;
  lose_tail_of_bounded(store, 80, 120);
  std::vector<Message> messages;
  std::int64_t exact_tokens = 0;
  {
    const Session session = store.open_session("s");
    messages = *session.messages();
    exact_tokens = store.inside().get_tail(store.id_of("s"))->record.position;
  }
  messages.push_back(Message::user("go on"));
  const auto copy = [&](LiveStore& into, const std::string& name, const SessionOptions& options) {
    Session session = into.create(name, options);
    for (const Message& message : messages) EXPECT_TRUE(session.append(message).ok());
    return session;
  };
  const TurnOptions options = {.sampling = test::sampled(5), .max_tokens = 16};
  // Before anyone computes these blocks exactly, another bounded session takes them.
  Session bounded = copy(store, "bounded", kBounded);
  const Reply approximate = read_turn(bounded.start_turn(options));
  EXPECT_FALSE(approximate.reuse.exact);
  Session exact = copy(store, "exact", {});
  const Reply reply = read_turn(exact.start_turn(options));
  EXPECT_TRUE(reply.reuse.exact);
  const std::int64_t reused = reply.reuse.from_memory + reply.reuse.from_disk;
  EXPECT_GT(reused, 0);
  EXPECT_LT(reused, approximate.reuse.from_disk);
  EXPECT_EQ(approximate.reuse.from_disk, exact_tokens / kBlock * kBlock);

  LiveStore empty;
  Session unbroken = copy(empty, "exact", {});
  EXPECT_EQ(read_turn(unbroken.start_turn(options)).reuse.from_disk, 0);
  EXPECT_EQ(last_tokens(exact), last_tokens(unbroken));
}

}  // namespace
}  // namespace cairn
