// Going back to where hosts go back to: what is stored there, what that costs, and for how long.
#include "session/turn_tails.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn::session {
namespace {

using test::greedy;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;

const TurnOptions kShort = {.sampling = greedy(), .max_tokens = 5};

// -- which of them stay --

TailRecord tail_at(std::uint64_t event, std::int64_t n_bytes = 4 << 20) {
  TailRecord tail;
  tail.slot = tail.sequence = event;
  tail.payload_bytes = static_cast<std::uint64_t>(n_bytes);
  return tail;
}

// An agent's conversation: each question is followed by so many turns with a result between. Event
// 2n is the message before turn n, 2n + 1 its end.
std::vector<Message> agent(int n_turns, int n_turns_a_question) {
  std::vector<Message> messages;
  for (int turn = 1; turn <= n_turns; ++turn) {
    const bool is_question = (turn - 1) % n_turns_a_question == 0;
    messages.push_back(is_question ? Message::user("q") : Message::tool_result("c", "r"));
    messages.back().event = static_cast<std::uint64_t>(2 * turn);
    messages.emplace_back().role = Role::kAssistant;
    messages.back().event = static_cast<std::uint64_t>(2 * turn + 1);
  }
  return messages;
}

std::vector<std::uint64_t> left(std::vector<TailRecord> tails,
                                const std::vector<std::uint64_t>& expired) {
  std::erase_if(tails, [&](const TailRecord& tail) {
    return std::ranges::find(expired, tail.slot) != expired.end();
  });
  std::vector<std::uint64_t> slots;
  for (const TailRecord& tail : tails) slots.push_back(tail.slot);
  return slots;
}

TEST(TurnTails, the_newest_and_those_at_the_users_messages_stay) {
  std::vector<TailRecord> tails;
  for (std::uint64_t event = 2; event <= 81; ++event) tails.push_back(tail_at(event));
  // Turns 1, 11, 21, 31 answer the user.
  const auto expired = expired_turn_tails(tails, agent(40, 10), 0);
  const std::vector<std::uint64_t> expected = {42, 61, 62, 79, 80, 81};
  EXPECT_EQ(left(tails, expired), expected);
}

TEST(TurnTails, they_take_as_much_as_the_blocks_and_are_no_more_than_64) {
  std::vector<TailRecord> tails;
  for (std::uint64_t event = 2; event <= 201; ++event) tails.push_back(tail_at(event));
  const auto n_left = [&](std::int64_t n_block_bytes) {
    return left(tails, expired_turn_tails(tails, agent(100, 1), n_block_bytes)).size() + 2;
  };
  EXPECT_EQ(n_left(0), kTurnTailsMin);
  EXPECT_EQ(n_left(std::int64_t{80} << 20), 20u);
  EXPECT_EQ(n_left(std::int64_t{80} << 30), kTurnTailsMax);
}

TEST(TurnTails, tails_of_the_head_and_of_marks_are_not_theirs) {
  std::vector<TailRecord> tails = {tail_at(0), tail_at(7)};
  tails[1].sequence = 6;
  for (std::uint64_t event = 10; event < 100; ++event) tails.push_back(tail_at(event));
  const auto expired = expired_turn_tails(tails, {}, 0);
  EXPECT_EQ(expired.size(), 90u - (kTurnTailsMin - 2));
  EXPECT_EQ(std::ranges::count_if(expired, [](std::uint64_t slot) { return slot < 10; }), 0);
}

// -- going back --

// Where a conversation can be taken up again, and how many of its tokens are computed there.
struct Place {
  std::uint64_t event = 0;
  std::int64_t n_computed = 0;
};

struct Round {
  Place asked, answered;
};

// A question and its answer.
Round take_round(Session& session, unsigned seed, int n_words = 30) {
  Round round;
  say(session, words(n_words, seed));
  round.asked.event = session.messages()->back().event;
  const Reply reply = read_turn(session.start_turn(kShort));
  round.asked.n_computed = reply.reuse.prompt_tokens;
  round.answered = {session.messages()->back().event, reply.usage.context_used - 1};
  return round;
}

void expect_computed_once(const Reply& reply, std::int64_t n_computed) {
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  EXPECT_EQ(reply.reuse.prefilled, reply.reuse.prompt_tokens - n_computed) << reply.reuse.detail;
  EXPECT_EQ(reply.reuse.replayed, 0);
}

class GoingBack : public testing::Test {
 protected:
  GoingBack() : session_(store_.create("s")) {
    EXPECT_TRUE(session_->append(Message::system(words(40, 1))).ok());
    for (unsigned seed = 2; seed < 6; ++seed) rounds_.push_back(take_round(*session_, seed));
  }
  void reopen() {
    session_.reset();
    store_.reopen();
    session_.emplace(store_.open_session("s"));
  }

  LiveStore store_;
  std::optional<Session> session_;
  std::vector<Round> rounds_;
};

TEST_F(GoingBack, an_answer_is_taken_again_without_a_token_of_its_prompt) {
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    if (i % 4 == 3) reopen();
    ASSERT_TRUE(session_->rewind(rounds_.back().asked.event).ok());
    const Reply again = read_turn(session_->start_turn(
        {.sampling = test::sampled(static_cast<std::uint64_t>(i)), .max_tokens = 7}));
    expect_computed_once(again, rounds_.back().asked.n_computed);
    EXPECT_EQ(again.reuse.prefilled, 0);
  }
}

TEST_F(GoingBack, an_edited_message_costs_its_own_tokens) {
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    if (i % 4 == 3) reopen();
    const Place& before = rounds_[rounds_.size() - 2].answered;
    ASSERT_TRUE(session_->rewind(before.event).ok());
    say(*session_, words(20, static_cast<unsigned>(100 + i)));
    expect_computed_once(read_turn(session_->start_turn(kShort)), before.n_computed);
  }
}

TEST_F(GoingBack, the_same_through_a_client_that_sends_its_history) {
  std::vector<Message> history = *session_->messages();
  for (Message& message : history) {
    message.event = 0;
    message.sampled_tokens.clear();
  }
  history.pop_back();
  ASSERT_TRUE(session_->sync(history)->forked);
  expect_computed_once(read_turn(session_->start_turn(kShort)), rounds_.back().asked.n_computed);
  history.back() = Message::user("something else: " + words(20, 77));
  ASSERT_TRUE(session_->sync(history)->forked);
  expect_computed_once(read_turn(session_->start_turn(kShort)),
                       rounds_[rounds_.size() - 2].answered.n_computed);
}

TEST_F(GoingBack, a_fork_has_the_states_before_it_though_its_origin_is_gone) {
  Session again = *session_->fork("again", rounds_.back().asked.event);
  Session edited = *session_->fork("edited", rounds_.back().asked.event);
  session_.reset();
  ASSERT_TRUE(store_.store().remove("s").ok());
  expect_computed_once(read_turn(again.start_turn(kShort)), rounds_.back().asked.n_computed);
  const Place& before = rounds_[rounds_.size() - 2].answered;
  ASSERT_TRUE(edited.rewind(before.event).ok());
  say(edited, words(20, 99));
  expect_computed_once(read_turn(edited.start_turn(kShort)), before.n_computed);
}

TEST_F(GoingBack, what_is_said_is_what_a_cold_session_says) {
  const TurnOptions options = {.sampling = test::sampled(5), .max_tokens = 16};
  ASSERT_TRUE(session_->rewind(rounds_.back().asked.event).ok());
  const std::vector<Message> messages = *session_->messages();
  read_turn(session_->start_turn(options));
  Session cold = store_.create("cold", {.salt = "none shared"});
  for (const Message& message : messages) ASSERT_TRUE(cold.append(message).ok());
  read_turn(cold.start_turn(options));
  EXPECT_EQ(test::last_tokens(*session_), test::last_tokens(cold));
}

TEST_F(GoingBack, they_are_collected_first_and_the_head_stays) {
  const auto id = store_.id_of("s");
  ASSERT_GT(store_.inside().find_tails(id)->tails.size(), 4u);
  const auto report = store_.store().collect({.target_bytes = 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const FoundTails found = *store_.inside().find_tails(id);
  ASSERT_EQ(found.tails.size(), 2u);  // the end of the last turn is the head
  EXPECT_EQ(found.tails[0].number, found.tails[1].number);
  say(*session_, "on");
  expect_computed_once(read_turn(session_->start_turn(kShort)), rounds_.back().answered.n_computed);
}

TEST_F(GoingBack, a_long_life_keeps_few_and_the_store_is_sound) {
  for (unsigned seed = 100; seed < 136; ++seed) {
    take_round(*session_, seed, 3);
    if (seed % 10 == 0) {
      ASSERT_TRUE(session_->rewind(session_->messages()->at(3).event).ok());
    }
  }
  EXPECT_LE(store_.inside().find_tails(store_.id_of("s"))->tails.size(), kTurnTailsMax + 1);
  ASSERT_TRUE(session_->fork("f", rounds_[0].asked.event).ok());
  ASSERT_TRUE(session_->mark("m", /*keep_state=*/true).ok());
  session_.reset();
  ASSERT_TRUE(store_.store().collect({.branches = true}).ok());
  store_.close();
  const auto reader = StoreReader::open(store_.path());
  ASSERT_TRUE(reader.ok());
  const auto verified = reader->verify();
  ASSERT_TRUE(verified.ok());
  EXPECT_TRUE(verified->problems.empty()) << verified->problems[0];
  for (const std::string& note : verified->notes) {
    EXPECT_EQ(note.find("event is gone"), std::string::npos) << note;
  }
}

// Two tails a turn, as without them; each entry of the index is small.
TEST_F(GoingBack, no_more_is_written_for_them) {
  const FoundTails found = *store_.inside().find_tails(store_.id_of("s"));
  const auto n_tail_bytes = static_cast<std::int64_t>(
      std::ranges::max(found.tails, {}, &TailRecord::payload_bytes).payload_bytes);
  say(*session_, words(10, 9));
  const Reply reply = read_turn(session_->start_turn(kShort));
  EXPECT_LT(reply.usage.bytes_written, 2 * n_tail_bytes + n_tail_bytes / 2);
}

}  // namespace
}  // namespace cairn::session
