// An agent's day: sixty turns with tools, two forks, a rewind, a cancel in the prefill, a closed
// store, and histories that a client has written anew. What each turn computes is what was appended
// since the one before, and the token that was sampled last.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/session/client_history.h"

namespace cairn {
namespace {

using test::called;
using test::client_history;
using test::greedy;
using test::live_model;
using test::LiveStore;
using test::parsed;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;
namespace json = boost::json;

const TurnOptions kShort = {.sampling = greedy(), .max_tokens = 4};

class Day {
 public:
  explicit Day(LiveStore& store) : store_(store), session_(store.create("day")) {
    EXPECT_TRUE(session_->append(Message::system("Be brief. " + words(30, 1))).ok());
  }

  Session& session() { return *session_; }
  void use(Session session) { session_.emplace(std::move(session)); }
  void reopen() {
    session_.reset();
    store_.reopen();
    session_.emplace(store_.open_session(name_));
  }
  void fork() {
    name_ += "'";
    use(*session_->fork(name_));
  }

  void append_call(int n) {
    const std::string id = "c" + std::to_string(n);
    say(*session_, "q" + std::to_string(n));
    ASSERT_TRUE(session_->append(called(live_model(), "", {{id, "f", "{\"n\": 1.0}"}})).ok());
    ASSERT_TRUE(session_->append(Message::tool_result(id, "r" + std::to_string(n))).ok());
  }

  // The same through a client that spells its history in another way.
  void send_call(int n) {
    json::array history = client_history(*session_);
    for (json::value& message : history) {
      json::object& object = message.as_object();
      if (!object.contains("tool_calls")) continue;
      object["tool_calls"].at(0).as_object()["function"].as_object()["arguments"] = "{\"n\":1}";
      object["content"] = "";
    }
    history.push_back({{"role", "user"}, {"content", "q" + std::to_string(n)}});
    const auto report = session_->sync(parsed(history));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->forked);
    EXPECT_EQ(report->n_appended, 1);
  }

  // Every token that the prompt has beyond what was computed, and no other, is prefilled.
  void take_turn() {
    const std::int64_t n_prompt = *session_->count_tokens();
    expect_exact(read_turn(session_->start_turn(kShort)), n_prompt);
  }
  void expect_exact(const Reply& reply, std::int64_t n_prompt) {
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_EQ(reply.reuse.prompt_tokens, n_prompt);
    EXPECT_EQ(reply.reuse.prefilled, n_prompt - computed_) << reply.reuse.detail;
    // The branch that a rewind left had computed the token sampled last, and the end after it.
    EXPECT_LE(reply.reuse.lost_tokens, reply.reuse.cause == MissCause::kHeadMoved ? 2 : 0);
    EXPECT_EQ(reply.reuse.replayed, 0);
    computed_ = reply.usage.context_used - 1;
    total_ += reply.reuse.prefilled;
  }
  std::int64_t computed() const { return computed_; }
  void set_computed(std::int64_t n) { computed_ = n; }
  std::int64_t total() const { return total_; }

 private:
  LiveStore& store_;
  std::optional<Session> session_;
  std::string name_ = "day";
  std::int64_t computed_ = 0;  // tokens of the head whose state there is
  std::int64_t total_ = 0;
};

TEST(ToolConversation, computes_each_token_once) {
  LiveStore store;
  Day day(store);
  std::uint64_t mark = 0;
  std::int64_t computed_at_mark = 0;
  for (int n = 0; n < 60; ++n) {
    SCOPED_TRACE(n);
    if (n % 3 == 2) {
      day.send_call(n);
    } else if (n % 5 == 4) {
      day.append_call(n);
    } else {
      say(day.session(), "q" + std::to_string(n));
    }
    if (n == 40) {  // a cancel between two chunks of the prefill
      say(day.session(), words(60, 9));
      const std::int64_t n_prompt = *day.session().count_tokens();
      Result<Turn> stopped =
          test::start_and_cancel(live_model(), 5, [&] { return day.session().start_turn(kShort); });
      ASSERT_EQ(read_turn(*stopped).end_reason, EndReason::kCancelled);
      Result<TurnPlan> plan = day.session().plan();
      EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);  // it is to be resumed
      const Reply reply = read_turn(day.session().resume_turn());
      ASSERT_TRUE(reply.status.ok());
      EXPECT_GT(reply.reuse.from_memory, day.computed());  // what the chunks had done
      EXPECT_EQ(reply.reuse.prompt_tokens, n_prompt);
      day.set_computed(reply.usage.context_used - 1);
      continue;
    }
    day.take_turn();
    if (n == 10 || n == 30) day.fork();
    if (n == 20) {
      mark = *day.session().mark("here", /*keep_state=*/true);
      computed_at_mark = day.computed();
    }
    if (n == 25) {
      ASSERT_TRUE(day.session().rewind(mark).ok());
      day.set_computed(computed_at_mark);
    }
    if (n == 35 || n == 50) day.reopen();
  }
  EXPECT_LT(day.computed(), test::kTinyContext);
  EXPECT_LT(day.total(), day.computed());
}

}  // namespace
}  // namespace cairn
