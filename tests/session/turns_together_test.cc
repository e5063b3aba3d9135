// Several sessions at once: whatever runs beside it, a session says what it says alone, bit for
// bit, and stops as fast.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using test::HeldStrand;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::say;
using test::words;

struct Script {
  int n_words = 1;
  unsigned text = 0;
  TurnOptions options;
};

Script random_script(std::mt19937& random) {
  Script script;
  script.n_words = 1 + static_cast<int>(random() % 60);
  script.text = random();
  script.options.sampling = random() % 2 == 0 ? test::sampled(random()) : test::penalised(random());
  script.options.max_tokens = 1 + static_cast<std::int32_t>(random() % 30);
  script.options.priority = static_cast<TurnPriority>(random() % 3);
  return script;
}

struct Said {
  std::vector<TokenId> tokens;
  std::int64_t position = 0;  // of the live state
  std::vector<float> logits;  // there
};

Said said_by(Session& session) {
  const engine::Sequence& sequence = session.state()->live().sequence();  // no turn runs
  Said said;
  said.tokens = last_tokens(session);
  said.position = sequence.position();
  if (sequence.ready()) said.logits.assign(sequence.logits().begin(), sequence.logits().end());
  return said;
}

Said alone(LiveStore& store, const std::string& name, const Script& script) {
  Session session = store.create(name);
  test::ask(session, words(script.n_words, script.text), script.options);
  return said_by(session);
}

TEST(TurnsTogether, any_mix_says_what_each_says_alone) {
  constexpr unsigned kSeed = 29;
  std::mt19937 random(kSeed);
  int n_turns = 0, n_cancelled = 0, n_detached = 0, n_compared = 0;
  for (int mix = 0; mix < 3; ++mix) {
    SCOPED_TRACE("mix " + std::to_string(mix));
    LiveStore store;
    struct Member {
      Script script;
      Said expected;
      std::optional<Session> session;
      std::optional<Turn> turn;
    };
    std::vector<Member> members(2 + random() % 5);
    for (std::size_t i = 0; i < members.size(); ++i) {
      Member& member = members[i];
      member.script = random_script(random);
      member.expected = alone(store, "alone " + std::to_string(i), member.script);
      member.session.emplace(store.create(std::to_string(i)));
      say(*member.session, words(member.script.n_words, member.script.text));
    }
    // Joins, leaves and returns in any order until all have ended.
    for (std::size_t n_left = members.size(); n_left > 0;) {
      Member& member = members[random() % members.size()];
      if (!member.session) continue;
      if (!member.turn) {
        const bool is_open = member.session->info().turn_open;
        member.turn.emplace(
            std::move(*(is_open ? member.session->resume_turn()
                                : member.session->start_turn(member.script.options))));
        ++n_turns;
      }
      if (random() % 6 == 0) {
        member.turn->cancel();
        ++n_cancelled;
      } else if (random() % 6 == 0) {
        member.turn->detach();
        member.turn.emplace(std::move(*member.session->attach_turn()));
        ++n_detached;
      }
      EndReason reason = EndReason::kCancelled;
      bool ended = false;
      for (unsigned n = random() % 12; n > 0 && !ended; --n) {
        const Result<Event> event = member.turn->next();
        ASSERT_TRUE(event.ok()) << event.status().to_string();
        ended = event->kind == EventKind::kTurnEnd;
        reason = event->end_reason;
        EXPECT_TRUE(event->status.ok()) << event->status.to_string();
      }
      if (!ended) continue;
      member.turn.reset();
      if (reason == EndReason::kCancelled) continue;
      const Said said = said_by(*member.session);
      EXPECT_EQ(said.tokens, member.expected.tokens);
      // A turn that was cancelled after its last token and resumed has computed that one as well.
      if (said.position == member.expected.position && !said.logits.empty() &&
          !member.expected.logits.empty()) {
        ++n_compared;
        EXPECT_EQ(said.logits, member.expected.logits);
      }
      member.session.reset();
      --n_left;
    }
  }
  EXPECT_GT(n_compared, 0);
  std::printf("seed %u: %d turns, %d cancels, %d readers changed, %d logits compared\n", kSeed,
              n_turns, n_cancelled, n_detached, n_compared);
}

// Counts steps of the strand while it lives, and does something after some of them.
class StepCounter : public std::enable_shared_from_this<StepCounter> {
 public:
  int n_steps = 0;
  std::function<bool()> is_over;
  std::function<void(int)> after;

  void run() {
    if (is_over()) return;
    if (after) after(n_steps);
    ++n_steps;
    live_model().state()->runtime()->post([self = shared_from_this()] { self->run(); });
  }
};

TEST(TurnsTogether, answers_share_passes) {
  LiveStore store;
  constexpr int kSessions = 4, kTokens = 30;
  const auto n_steps_of = [&](int n_sessions, const std::string& name) {
    std::vector<Session> sessions;
    std::vector<Turn> turns;
    auto counter = std::make_shared<StepCounter>();
    {
      const HeldStrand held(live_model());
      for (int i = 0; i < n_sessions; ++i) {
        sessions.push_back(store.create(name + std::to_string(i)));
        say(sessions.back(), words(3, 1));
        turns.push_back(std::move(
            *sessions.back().start_turn({.sampling = test::sampled(3), .max_tokens = kTokens})));
      }
      counter->is_over = [&] {
        for (const Session& session : sessions) {
          if (session.info().turn_open) return false;
        }
        return true;
      };
      live_model().state()->runtime()->post([counter] { counter->run(); });
    }
    for (Turn& turn : turns) read_turn(turn);
    live_model().state()->runtime()->drain();
    live_model().state()->runtime()->drain();
    const auto n_tokens = static_cast<int>(last_tokens(sessions[0]).size());
    return std::pair(counter->n_steps, n_tokens);
  };
  const auto [n_alone, n_tokens] = n_steps_of(1, "alone");
  const auto [n_together, same] = n_steps_of(kSessions, "together");
  ASSERT_EQ(n_tokens, same);
  ASSERT_GT(n_tokens, 20);
  const int n_before_answer = n_alone - n_tokens;  // restore, prompt
  EXPECT_LE(n_together, kSessions * n_before_answer + n_tokens + kSessions + 4);
  std::printf("%d steps alone, %d for %d sessions\n", n_alone, n_together, kSessions);
}

TEST(TurnsTogether, a_cancel_takes_one_step_wherever_the_turn_is_and_whoever_runs) {
  LiveStore store;
  int n_cancelled = 0;
  for (const int n_before : {0, 1, 3, 9, 22, 40}) {
    SCOPED_TRACE("after " + std::to_string(n_before));
    const std::string name = std::to_string(n_before) + " ";
    std::vector<Session> sessions;
    std::vector<Turn> others;
    for (int i = 0; i < 4; ++i) sessions.push_back(store.create(name + std::to_string(i)));
    for (Session& session : sessions) say(session, words(60, 1));
    std::optional<Turn> turn;
    auto counter = std::make_shared<StepCounter>();
    std::optional<int> ended_at;
    {
      const HeldStrand held(live_model());
      const auto start = [&](Session& session, TurnPriority priority) {
        return std::move(*session.start_turn(
            {.sampling = test::sampled(3), .max_tokens = 25, .priority = priority}));
      };
      others.push_back(start(sessions[0], TurnPriority::kInteractive));
      others.push_back(start(sessions[1], TurnPriority::kAgent));
      turn.emplace(start(sessions[2], TurnPriority::kBackground));
      others.push_back(start(sessions[3], TurnPriority::kInteractive));
      counter->is_over = [&, n_before] { return counter->n_steps > n_before + 2; };
      counter->after = [&, n_before](int n_steps) {
        if (n_steps == n_before) turn->cancel();
        if (n_steps != n_before + 1) return;
        // One step of the strand has run since.
        for (;;) {
          const Result<Event> event = turn->next(milliseconds(0));
          if (!event.ok()) break;
          if (event->kind == EventKind::kTurnEnd) ended_at = n_steps;
          n_cancelled +=
              event->end_reason == EndReason::kCancelled && event->kind == EventKind::kTurnEnd;
        }
      };
      live_model().state()->runtime()->post([counter] { counter->run(); });
    }
    for (Turn& other : others) EXPECT_TRUE(read_turn(other).status.ok());
    live_model().state()->runtime()->drain();
    EXPECT_EQ(ended_at, n_before + 1);
    for (const int other : {0, 1, 3}) {
      EXPECT_EQ(last_tokens(sessions[static_cast<std::size_t>(other)]), last_tokens(sessions[0]));
    }
    if (sessions[2].info().turn_open) {
      EXPECT_TRUE(read_turn(sessions[2].resume_turn()).status.ok());
    }
    EXPECT_EQ(last_tokens(sessions[2]), last_tokens(sessions[0]));
  }
  EXPECT_GT(n_cancelled, 3);
}

}  // namespace
}  // namespace cairn
