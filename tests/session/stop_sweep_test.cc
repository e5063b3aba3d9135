// A turn that is stopped at any position, in a store that is closed there, says and computes what
// one does that nobody stopped: tokens and logits bit for bit. CAIRN_SWEEP_STOPS and
// CAIRN_SWEEP_SEED change how many positions are tried besides the named ones, and which.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template.h"
#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int32_t kAnswerTokens = 300;  // of the answers that are stopped
constexpr std::int32_t kShortAnswer = 6;     // to the prompts that are stopped at their end
constexpr std::int64_t kPromptMax = 300;
const std::set<std::int64_t> kNamedPositions = {1, 2, 127, 128, 129, 255, 256, 257};

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

std::int64_t n_stops() { return setting("CAIRN_SWEEP_STOPS", 480); }

// --- What a turn computes.

using Logits = std::map<std::int64_t, std::vector<float>>;  // by the number of tokens before them

// Looks at a session's live state between any two steps of its turn (test::start_and_cancel says
// why that works), and cancels the turn as soon as `stop_at` tokens are computed.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(const Session& session, std::int64_t stop_at)
      : runtime_(live_model().state()->runtime()), session_(session.state()), stop_at_(stop_at) {}

  // Reads the turn to its end.
  Reply read(const std::function<Result<Turn>()>& start) {
    std::optional<Result<Turn>> turn;
    {
      const test::HeldStrand held(live_model());
      turn.emplace(start());
      EXPECT_TRUE(turn->ok()) << turn->status().to_string();
      if (!turn->ok()) return {};
      turn_ = (*turn)->state();
      post();
    }
    Reply reply = read_turn(**turn);
    done_ = true;
    runtime_->drain();
    look();  // nothing runs any more
    return reply;
  }

  const Logits& logits() const { return logits_; }

 private:
  void post() {
    runtime_->post([self = shared_from_this()] {
      if (self->done_) return;
      self->look();
      self->post();
    });
  }

  void look() {
    const session::LiveSequence& live = session_->live();
    if (!live.ready()) return;
    const engine::Sequence& sequence = live.sequence();
    const auto [at, is_new] = logits_.try_emplace(sequence.position());
    if (is_new) at->second.assign(sequence.logits().begin(), sequence.logits().end());
    if (sequence.position() < stop_at_) return;
    if (const auto turn = turn_.lock()) turn->cancel();
  }

  const std::shared_ptr<engine::RuntimeState> runtime_;
  const std::shared_ptr<session::SessionState> session_;
  const std::int64_t stop_at_;
  std::weak_ptr<session::TurnState> turn_;
  std::atomic<bool> done_ = false;
  Logits logits_;
};

struct Computed {
  std::int64_t n_prompt = 0;
  std::vector<TokenId> tokens;
  Logits logits;
};

Computed never_stopped(const std::string& prompt, const TurnOptions& options) {
  LiveStore store;
  Session session = store.create("never stopped");
  say(session, prompt);
  const auto watch = std::make_shared<Watch>(session, kNever);
  const Reply reply = watch->read([&] { return session.start_turn(options); });
  return {reply.reuse.prompt_tokens, last_tokens(session), watch->logits()};
}

// --- Sessions that are stopped.

struct Tally {
  int n_stops = 0, n_without_tail = 0, n_forks = 0, n_rewinds = 0;
  std::size_t n_logits = 0;
};

// One session whose only turn is stopped again and again; every stop closes the store.
class Stopped {
 public:
  Stopped(const Computed& expected, const std::string& prompt, std::mt19937& random, Tally& tally)
      : expected_(expected), random_(random), tally_(tally) {
    session_ = store_.create(name_);
    say(*session_, prompt);
  }

  // Starts or continues the turn until `position` tokens are computed.
  void run_to(std::int64_t position, const TurnOptions& options) {
    const auto watch = std::make_shared<Watch>(*session_, position);
    const bool begins = !session_->info().turn_open;
    const Reply reply = watch->read(
        [&] { return begins ? session_->start_turn(options) : session_->resume_turn(); });
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_TRUE(reply.reuse.exact);
    EXPECT_EQ(reply.end_reason == EndReason::kCancelled, position != kNever);
    EXPECT_FALSE(watch->logits().empty());
    for (const auto& [at, logits] : watch->logits()) {
      const auto found = expected_.logits.find(at);
      ASSERT_NE(found, expected_.logits.end()) << at;
      ASSERT_TRUE(found->second == logits) << "logits differ after " << at << " tokens";
    }
    tally_.n_logits += watch->logits().size();
    if (position == kNever) {
      EXPECT_EQ(last_tokens(*session_), expected_.tokens);
    } else {
      EXPECT_EQ(watch->logits().rbegin()->first, position);
    }
  }

  // Something that must not change what is said, and a close of the store.
  void interrupt() {
    ++tally_.n_stops;
    if (random_() % 4 == 0) rewind();
    if (random_() % 4 == 0) fork();
    session_.reset();
    store_.reopen();
    if (random_() % 2 == 0) {
      ++tally_.n_without_tail;
      store_.lose_tail(name_);
    }
    session_ = store_.open_session(name_);
    if (random_() % 8 == 0) rewind();
  }

 private:
  // To any event from the turn's start on.
  void rewind() {
    ++tally_.n_rewinds;
    const session::SessionRecord record = *store_.inside().find_by_name(name_);
    const std::uint64_t n_events = record.head_sequence - record.open_turn + 1;
    const Status status = session_->rewind(record.open_turn + random_() % n_events);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kNotFound) << status.to_string();
  }

  void fork() {
    ++tally_.n_forks;
    const std::string name = name_ + "'";
    Result<Session> fork = session_->fork(name);
    ASSERT_TRUE(fork.ok()) << fork.status().to_string();
    session_.emplace(std::move(*fork));
    if (random_() % 2 == 0) {
      EXPECT_TRUE(store_.store().remove(name_).ok());
    }
    name_ = name;
  }

  const Computed& expected_;
  std::mt19937& random_;
  Tally& tally_;
  LiveStore store_;
  std::string name_ = "s";
  std::optional<Session> session_;
};

void print(const char* what, std::int64_t seed, const Tally& tally) {
  std::printf(
      "%s: seed %lld, %d stops (%d tails lost, %d forks, %d rewinds), %zu logits compared\n", what,
      static_cast<long long>(seed), tally.n_stops, tally.n_without_tail, tally.n_forks,
      tally.n_rewinds, tally.n_logits);
}

// --- Answers.

// Named positions and `n_random` others, all within the answer. Named ones count the answer's
// tokens or, `absolute`, the prompt's too.
std::set<std::int64_t> positions_in(const Computed& run, bool absolute, std::mt19937& random,
                                    std::int64_t n_random) {
  std::set<std::int64_t> positions;
  for (const std::int64_t named : kNamedPositions) {
    if (!absolute) positions.insert(run.n_prompt + named);
    if (absolute && named > run.n_prompt) positions.insert(named);
  }
  const std::size_t n = positions.size() + static_cast<std::size_t>(n_random);
  while (positions.size() < std::min<std::size_t>(n, kAnswerTokens - 1)) {
    positions.insert(run.n_prompt + 1 + static_cast<std::int64_t>(random() % (kAnswerTokens - 1)));
  }
  return positions;
}

TEST(StopSweep, an_answer_stopped_anywhere_goes_on_bit_for_bit) {
  const std::int64_t seed = setting("CAIRN_SWEEP_SEED", 1);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  Tally tally;
  for (const bool penalised : {false, true}) {
    // The first seed whose answer does not end by itself.
    TurnOptions options = {.max_tokens = kAnswerTokens};
    Computed expected;
    for (std::uint64_t of = 1; of < 50 && std::ssize(expected.tokens) < kAnswerTokens; ++of) {
      options.sampling = penalised ? test::penalised(of) : test::sampled(of);
      expected = never_stopped("a", options);
    }
    ASSERT_EQ(std::ssize(expected.tokens), kAnswerTokens);
    const std::set<std::int64_t> chosen = positions_in(expected, penalised, random, n_stops() / 4);
    std::vector<std::int64_t> positions(chosen.begin(), chosen.end());
    std::shuffle(positions.begin(), positions.end(), random);
    // A session is stopped some times, one position after the other.
    for (std::size_t at = 0; at < positions.size() && !HasFailure();) {
      const std::size_t end = std::min(positions.size(), at + 1 + random() % 12);
      std::sort(positions.begin() + static_cast<std::ptrdiff_t>(at),
                positions.begin() + static_cast<std::ptrdiff_t>(end));
      Stopped session(expected, "a", random, tally);
      for (; at < end && !HasFailure(); ++at) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", stopped after " +
                     std::to_string(positions[at]) + " tokens");
        session.run_to(positions[at], options);
        session.interrupt();
      }
      session.run_to(kNever, options);
    }
  }
  print("answers", seed, tally);
}

// --- Prompts.

// Texts by the number of tokens of the prompt that they make.
std::map<std::int64_t, std::string> prompts() {
  const std::string text = test::words(kPromptMax, 5);
  const engine::LoadedModel& model = *live_model().state();
  std::map<std::int64_t, std::string> prompts;
  for (std::size_t size = 1; size <= text.size(); ++size) {
    const std::string prefix = text.substr(0, size);
    const std::vector<Message> messages = {Message::user(prefix)};
    const auto segments = engine::render_prompt(messages, {}, model.think_end(), model.eos());
    if (!segments.ok()) continue;
    const std::vector<TokenId> tokens = engine::encode_prompt(*segments, model.tokenizer());
    if (std::ssize(tokens) > kPromptMax) break;
    prompts.emplace(std::ssize(tokens), prefix);
  }
  return prompts;
}

TEST(StopSweep, a_prompt_of_any_length_stopped_at_its_end_goes_on_bit_for_bit) {
  const std::int64_t seed = setting("CAIRN_SWEEP_SEED", 1);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  const std::map<std::int64_t, std::string> texts = prompts();
  ASSERT_GT(texts.size(), 250u);
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : kNamedPositions) {
    if (texts.contains(length)) lengths.push_back(length);
  }
  EXPECT_EQ(lengths.size(), 6u);  // every prompt has more than two tokens
  for (std::int64_t i = 0; i < n_stops() / 2; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(random() % texts.size());
    lengths.push_back(std::next(texts.begin(), at)->first);
  }
  Tally tally;
  for (const std::int64_t length : lengths) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", prompt of " + std::to_string(length));
    const TurnOptions options = {.sampling = test::sampled(random()), .max_tokens = kShortAnswer};
    const Computed expected = never_stopped(texts.at(length), options);
    EXPECT_EQ(expected.n_prompt, length);
    Stopped session(expected, texts.at(length), random, tally);
    session.run_to(length, options);
    session.interrupt();
    session.run_to(kNever, options);
    if (HasFailure()) return;
  }
  print("prompts", seed, tally);
}

}  // namespace
}  // namespace cairn
