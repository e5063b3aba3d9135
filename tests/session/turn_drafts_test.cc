// Turns that verify drafts say to the bit what turns without them say: with right drafts, with
// wrong ones, whatever ends the turn and whatever interrupts it. The drafts are forced: what a
// session without drafts has said before, spoiled from some place on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/thinking_model.h"

namespace cairn {
namespace {

using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;

constexpr char kTools[] = R"([{"type":"function","function":{"name":"set","parameters":{
  "type":"object","properties":{"on":{"type":["boolean","integer"],"minimum":10,"maximum":40}},
  "required":["on"]}}}])";
constexpr char kFormat[] =
    R"({"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99},
        "s":{"type":"string","maxLength":6}},"required":["n","s"],"additionalProperties":false})";

// Proposes what it knows to follow.
class Oracle {
 public:
  // A prompt and its answer. Where several begin alike, the newest counts.
  void learn(std::vector<TokenId> tokens) { known_.push_front(std::move(tokens)); }
  // Wrong from a random place on in one of so many proposals; 0 = never.
  void spoil(unsigned one_of) { spoils_one_of_ = one_of; }

  Status propose(const engine::Sequence& sequence, TokenId token, engine::DraftProposal& proposal) {
    ++n_proposals;
    if (kill_at == n_proposals) kill(getpid(), SIGKILL);
    proposal.tokens.clear();
    proposal.confidence.clear();
    std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
    before.push_back(token);
    const auto known = std::ranges::find_if(known_, [&](const std::vector<TokenId>& tokens) {
      return tokens.size() >= before.size() &&
             std::equal(before.begin(), before.end(), tokens.begin());
    });
    const std::size_t end = before.size() + static_cast<std::size_t>(kMaxDrafts);
    for (std::size_t at = before.size(); at < end; ++at) {
      const bool is_known = known != known_.end() && at < known->size();
      proposal.tokens.push_back(is_known ? (*known)[at] : other(TokenId{1}));
      proposal.confidence.push_back(is_known ? 3.0f : -3.0f);
    }
    if (spoils_one_of_ > 0 && random_() % spoils_one_of_ == 0) {
      for (std::size_t at = random_() % proposal.tokens.size(); at < proposal.tokens.size(); ++at) {
        proposal.tokens[at] = other(proposal.tokens[at]);
      }
    }
    return {};
  }

  int n_proposals = 0, kill_at = -1;

 private:
  TokenId other(TokenId token) { return (token + 1 + static_cast<TokenId>(random_() % 400)) % 506; }

  std::deque<std::vector<TokenId>> known_;
  unsigned spoils_one_of_ = 3;
  std::mt19937 random_{9};
};

Oracle& oracle() {
  static Oracle oracle;
  return oracle;
}

// The model with its own drafts.
Model own_drafts(const std::string& folder, std::int32_t n) {
  Result<Model> model =
      Model::open(test::live_runtime(), folder, {.prefill_chunk = 32, .drafts = n});
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return std::move(*model);
}
Model drafting(const std::string& folder, std::int32_t n = 5) {
  Model model = own_drafts(folder, n);
  model.state()->use_drafts(
      [](const engine::Sequence& sequence, TokenId token, engine::DraftProposal& out) {
        return oracle().propose(sequence, token, out);
      });
  return model;
}
const Model& drafting_model() {
  static const Model model = drafting(test::kTinyA);
  return model;
}

// What a turn leaves behind.
struct Left {
  std::vector<TokenId> tokens;
  std::vector<std::string> blocks;
  EndReason end_reason = EndReason::kError;
  std::string detail;         // of an error
  std::int64_t position = 0;  // of the live state
  std::vector<std::byte> tail;
  bool operator==(const Left&) const = default;
};

Left left_by(Session& session, const Reply& reply) {
  const engine::Sequence& sequence = session.state()->live().sequence();  // no turn runs
  Left left{last_tokens(session), reply.blocks,
            reply.end_reason,     std::string(reply.status.message()),
            sequence.position(),  {}};
  EXPECT_EQ(sequence.n_verified(), 0);
  if (sequence.ready()) left.tail = sequence.export_tail();
  return left;
}

// The prompt of the turn that was last, and its answer.
std::vector<TokenId> timeline(const Session& session, const Reply& reply) {
  const std::span<const TokenId> live = session.state()->live().sequence().tokens();
  const auto n_prompt = static_cast<std::size_t>(reply.usage.reuse.prompt_tokens);
  std::vector<TokenId> tokens(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(n_prompt));
  const std::vector<TokenId> answer = last_tokens(session);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

void check_report(const TurnUsage& usage) {
  const DraftReport& drafts = usage.drafts;
  std::int64_t rounds = 0, accepted = 0;
  for (std::size_t n = 0; n < drafts.rounds_by_accepted.size(); ++n) {
    rounds += drafts.rounds_by_accepted[n];
    accepted += static_cast<std::int64_t>(n) * drafts.rounds_by_accepted[n];
  }
  EXPECT_EQ(rounds, drafts.rounds);
  EXPECT_EQ(accepted, drafts.accepted);
  EXPECT_LE(drafts.accepted, drafts.proposed);
  EXPECT_LE(drafts.accepted + drafts.rounds, usage.output_tokens);
}

const std::string kText = words(12, 4);

struct Case {
  std::string name;
  TurnOptions options;
  std::int64_t room = 0;  // for the answer, by a limit of the context
};

TurnOptions turn(const SamplingParams& sampling, std::int32_t max_tokens = 60) {
  return {.sampling = sampling, .max_tokens = max_tokens};
}

std::vector<Case> cases() {
  std::vector<Case> cases = {{"greedy", turn(test::greedy())},
                             {"sampled", turn(test::sampled(1))},
                             {"penalised", turn(test::penalised(2))}};
  SamplingParams cut = test::sampled(3);
  cut.top_k = 40;
  cut.top_p = 0.8f;
  cut.min_p = 0.05f;
  cases.push_back({"tails cut", turn(cut)});
  for (const std::int32_t n : {1, 2, 3, 4, 5, 6, 7}) {
    cases.push_back({"limit " + std::to_string(n), turn(test::sampled(4), n)});
  }
  for (std::uint64_t seed = 10; seed < 12; ++seed) {
    TurnOptions formatted = turn(test::sampled(seed), 300);
    formatted.output.response_format_json = kFormat;
    cases.push_back({"format " + std::to_string(seed), formatted});
  }
  cases.push_back({"context", turn(test::sampled(5)), /*room=*/10});
  return cases;
}

class TurnDrafts : public testing::Test {
 protected:
  // The same turn without drafts and with them. `with` has what the second says.
  void compare(Session& plain, Session& drafted, const TurnOptions& options,
               Reply* with = nullptr) {
    const Reply expected = read_turn(plain.start_turn(options));
    oracle().learn(timeline(plain, expected));
    EXPECT_EQ(expected.usage.drafts.rounds, 0);
    const Reply reply = read_turn(drafted.start_turn(options));
    EXPECT_TRUE(left_by(drafted, reply) == left_by(plain, expected))
        << last_tokens(drafted).size() << " tokens, " << last_tokens(plain).size() << " expected; "
        << reply.text() << " | " << expected.text();
    check_report(reply.usage);
    if (with != nullptr) *with = reply;
  }

  LiveStore plain_{live_model()}, drafted_{drafting_model()};
};

TEST_F(TurnDrafts, any_way_of_choosing_and_ending_says_the_same) {
  std::set<EndReason> ends;
  for (const unsigned spoils : {0u, 2u}) {
    oracle().spoil(spoils);
    std::int64_t n_accepted = 0, n_proposed = 0;
    for (const Case& one : cases()) {
      SCOPED_TRACE(one.name + ", spoiled " + std::to_string(spoils));
      const std::string name = one.name + std::to_string(spoils);
      Session plain = plain_.create(name), drafted = drafted_.create(name);
      say(plain, kText);
      say(drafted, kText);
      TurnOptions options = one.options;
      if (one.room > 0) options.limits.context_tokens = *plain.count_tokens() + one.room;
      Reply reply;
      compare(plain, drafted, options, &reply);
      ends.insert(reply.end_reason);
      n_accepted += reply.usage.drafts.accepted;
      n_proposed += reply.usage.drafts.proposed;
    }
    EXPECT_GT(n_accepted, 0);
    EXPECT_LT(n_accepted, n_proposed) << "limits end turns in the middle of proposals";
    std::printf("spoiled %u: %lld of %lld drafts accepted\n", spoils,
                static_cast<long long>(n_accepted), static_cast<long long>(n_proposed));
  }
  EXPECT_EQ(ends, (std::set{EndReason::kStop, EndReason::kLength, EndReason::kContextLimit}));
}

// Here time decides how many there are.
TEST_F(TurnDrafts, as_many_as_pay_say_the_same) {
  LiveStore automatic(drafting(test::kTinyA, 0)), own(own_drafts(test::kTinyA, 0));
  for (const unsigned spoils : {0u, 2u}) {
    oracle().spoil(spoils);
    for (const Case& one : cases()) {
      SCOPED_TRACE(one.name + ", spoiled " + std::to_string(spoils));
      const std::string name = one.name + std::to_string(spoils);
      Session plain = plain_.create(name);
      Session drafted = (spoils == 0 ? automatic : own).create(name);
      say(plain, kText);
      say(drafted, kText);
      compare(plain, drafted, one.options);
    }
  }
}

TEST_F(TurnDrafts, the_models_own_drafts_say_the_same) {
  LiveStore own(own_drafts(test::kTinyA, 3));
  std::int64_t n_rounds = 0;
  for (const SamplingParams& sampling : {test::greedy(), test::sampled(7), test::penalised(7)}) {
    const std::string name = std::to_string(n_rounds);
    Session plain = plain_.create(name), drafted = own.create(name);
    for (const char* text : {"a", "b"}) {
      say(plain, text);
      say(drafted, text);
      Reply reply;
      compare(plain, drafted, turn(sampling, 150), &reply);
      n_rounds += reply.usage.drafts.rounds;
    }
  }
  EXPECT_GT(n_rounds, 100);
}

TEST_F(TurnDrafts, only_so_many_can_be_asked_for) {
  for (const std::int32_t n : {-2, kMaxDrafts + 1}) {
    EXPECT_EQ(Model::open(test::live_runtime(), test::kTinyA, {.drafts = n}).status().code(),
              StatusCode::kInvalidArgument);
  }
}

// Right drafts are all accepted, so that a turn takes a sixth of the steps.
TEST_F(TurnDrafts, right_drafts_are_accepted) {
  oracle().spoil(0);
  Session plain = plain_.create("s"), drafted = drafted_.create("s");
  say(plain, "a");
  say(drafted, "a");
  Reply reply;
  compare(plain, drafted, turn(test::sampled(1), 19), &reply);
  const DraftReport& drafts = reply.usage.drafts;
  ASSERT_EQ(reply.usage.output_tokens, 19);
  EXPECT_EQ(drafts.rounds, 3);
  EXPECT_EQ(drafts.accepted, 15);
  EXPECT_EQ(drafts.rounds_by_accepted[5], 3);
  EXPECT_GT(drafts.verify_ms, 0);
  EXPECT_EQ(drafts.withheld, 0);
}

TEST_F(TurnDrafts, steps_that_are_kept_from_drafting_are_reported) {
  LiveStore automatic(own_drafts(test::kTinyA, 0));
  Session plain = plain_.create("s"), drafted = automatic.create("s");
  engine::DraftGuard& guard = drafted.state()->model()->draft_guard();  // no turn runs
  while (!guard.is_paused()) guard.note(100, 1, 1);
  say(plain, "a");
  say(drafted, "a");
  Reply reply;
  compare(plain, drafted, turn(test::sampled(1), 19), &reply);
  EXPECT_EQ(reply.usage.drafts.rounds, 0);
  EXPECT_GE(reply.usage.drafts.withheld, 16) << "all but those before a step's time was known";
}

// Each stop string that an answer contains, however it lies in the rounds.
TEST_F(TurnDrafts, a_stop_string_ends_the_turn_where_it_ends_without) {
  oracle().spoil(3);
  Session whole = plain_.create("whole");
  say(whole, "a");
  const std::string text = read_turn(whole.start_turn(turn(test::sampled(8), 80))).text();
  int n_stopped = 0;
  for (std::size_t at = 4; at + 4 < text.size(); at += text.size() / 12 + 1) {
    std::string stop;
    for (std::size_t i = at; i < text.size() && stop.size() < 3; ++i) {
      if (static_cast<unsigned char>(text[i]) < 0x80)
        stop += text[i];
      else
        stop.clear();
    }
    if (stop.size() < 3) continue;
    SCOPED_TRACE(stop);
    const std::string name = std::to_string(at);
    Session plain = plain_.create(name), drafted = drafted_.create(name);
    say(plain, "a");
    say(drafted, "a");
    TurnOptions options = turn(test::sampled(8), 80);
    options.limits.stop = {stop};
    Reply reply;
    compare(plain, drafted, options, &reply);
    n_stopped += reply.end_reason == EndReason::kStopString ? 1 : 0;
  }
  EXPECT_GT(n_stopped, 3);
}

// An end of sentence at every place of a round.
TEST_F(TurnDrafts, the_end_of_the_message_is_where_it_is_without) {
  oracle().spoil(0);
  int n_ended = 0;
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const std::string name = std::to_string(seed);
    Session plain = plain_.create(name), drafted = drafted_.create(name);
    say(plain, "a");
    say(drafted, "a");
    TurnOptions options = turn(test::sampled(seed), 300);
    options.output.response_format_json = kFormat;
    Reply reply;
    compare(plain, drafted, options, &reply);
    n_ended += reply.end_reason == EndReason::kStop ? 1 : 0;
  }
  EXPECT_GT(n_ended, 6);
}

TEST_F(TurnDrafts, calls_and_their_limit_are_the_same) {
  oracle().spoil(3);
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const std::string name = std::to_string(seed);
    Session plain = plain_.create(name), drafted = drafted_.create(name);
    for (Session* session : {&plain, &drafted}) {
      ASSERT_TRUE(session->append(Message::system("Use tools.", kTools)).ok());
      say(*session, words(10, 1));
    }
    TurnOptions options = turn(test::sampled(seed), 400);
    options.output.tool_choice = ToolChoice::kRequired;
    options.limits.tool_calls = 1;
    compare(plain, drafted, options);
  }
}

TEST_F(TurnDrafts, reasoning_ends_where_it_ends_without) {
  static const Model thinking = drafting(test::thinking_folder());
  LiveStore plain_store(test::thinking_model()), drafted_store(thinking);
  for (const std::int32_t limit : {0, 1, 4, 5, 6, 7, 12}) {
    oracle().spoil(limit % 2 == 0 ? 0 : 3);
    SCOPED_TRACE(limit);
    const std::string name = std::to_string(limit);
    Session plain = plain_store.create(name, {.thinking = true});
    Session drafted = drafted_store.create(name, {.thinking = true});
    say(plain, words(20, 3));
    say(drafted, words(20, 3));
    TurnOptions options = turn(test::sampled(6), 40);
    options.limits.reasoning_tokens = limit;
    compare(plain, drafted, options);
  }
}

// --- Interruptions.

// Sessions of both kinds do the same, but the one with drafts is interrupted at random: cancelled
// and resumed, closed, forked, rewound to the turn's start.
TEST_F(TurnDrafts, whatever_interrupts_them_says_the_same) {
  constexpr unsigned kSeed = 17;
  std::mt19937 random(kSeed);
  int n_cancelled = 0, n_reopened = 0, n_without_tail = 0, n_forked = 0;
  std::int64_t n_accepted = 0;
  oracle().spoil(3);
  for (int life = 0; life < 6; ++life) {
    SCOPED_TRACE("life " + std::to_string(life));
    std::string name = std::to_string(life);
    Session plain = plain_.create(name);
    std::optional<Session> drafted = drafted_.create(name);
    for (int number = 0; number < 3; ++number) {
      const std::string text = words(1 + static_cast<int>(random() % 60), random());
      TurnOptions options =
          turn(random() % 2 == 0 ? test::sampled(random()) : test::penalised(random()),
               1 + static_cast<std::int32_t>(random() % 60));
      if (random() % 4 == 0) options.output.response_format_json = kFormat;
      say(plain, text);
      const Reply expected = read_turn(plain.start_turn(options));
      oracle().learn(timeline(plain, expected));
      say(*drafted, text);
      for (;;) {
        const auto run = [&] {
          return drafted->info().turn_open ? drafted->resume_turn() : drafted->start_turn(options);
        };
        const bool cancels = random() % 3 != 0;
        const Reply reply = read_turn(
            cancels ? test::start_and_cancel(drafting_model(), static_cast<int>(random() % 14), run)
                    : run());
        ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
        n_accepted += reply.usage.drafts.accepted;
        if (reply.end_reason != EndReason::kCancelled) {
          EXPECT_EQ(reply.end_reason, expected.end_reason);
          break;
        }
        ++n_cancelled;
        if (random() % 3 == 0) {
          Result<Session> fork = drafted->fork(name + "'");
          ASSERT_TRUE(fork.ok()) << fork.status().to_string();
          name += "'";
          drafted.emplace(std::move(*fork));
          ++n_forked;
        }
        if (random() % 3 == 0) {
          drafted.reset();
          drafted_.reopen();
          if (random() % 2 == 0) {
            drafted_.lose_tail(name);
            ++n_without_tail;
          }
          drafted = drafted_.open_session(name);
          ++n_reopened;
        }
      }
      ASSERT_EQ(last_tokens(*drafted), last_tokens(plain));
    }
    // Both hold the same state: a turn that was cancelled after its last token has computed that
    // one as well, so the states are compared after another prompt.
    say(plain, "b");
    say(*drafted, "b");
    compare(plain, *drafted, turn(test::greedy(), 4));
  }
  EXPECT_GT(n_accepted, 0);
  EXPECT_GT(n_reopened, 0);
  std::printf(
      "seed %u: %d cancels, %d openings (%d without tail), %d forks, %lld drafts accepted\n", kSeed,
      n_cancelled, n_reopened, n_without_tail, n_forked, static_cast<long long>(n_accepted));
}

// Several sessions verify drafts in the same passes.
TEST_F(TurnDrafts, sessions_beside_each_other_say_the_same) {
  oracle().spoil(3);
  constexpr int kSessions = 4;
  std::vector<Left> expected;
  std::vector<Session> sessions;
  for (int i = 0; i < kSessions; ++i) {
    Session plain = plain_.create(std::to_string(i));
    say(plain, words(5 + 20 * i, static_cast<unsigned>(i)));
    const Reply reply =
        read_turn(plain.start_turn(turn(test::sampled(20u + static_cast<unsigned>(i)))));
    oracle().learn(timeline(plain, reply));
    expected.push_back(left_by(plain, reply));
    sessions.push_back(drafted_.create(std::to_string(i)));
    say(sessions.back(), words(5 + 20 * i, static_cast<unsigned>(i)));
  }
  std::vector<Turn> turns;
  {
    const test::HeldStrand held(drafting_model());
    for (int i = 0; i < kSessions; ++i) {
      turns.push_back(std::move(*sessions[static_cast<std::size_t>(i)].start_turn(
          turn(test::sampled(20u + static_cast<unsigned>(i))))));
    }
  }
  std::int64_t n_accepted = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Reply reply = read_turn(turns[i]);
    n_accepted += reply.usage.drafts.accepted;
    EXPECT_TRUE(left_by(sessions[i], reply) == expected[i]) << i;
  }
  EXPECT_GT(n_accepted, 0);
}

constexpr char kChildStore[] = "CAIRN_TEST_CHILD_STORE", kChildRounds[] = "CAIRN_TEST_CHILD_ROUNDS";

TurnOptions killed_turn() { return turn(test::sampled(3), 50); }

// What the test below runs in a process of its own, which dies in its n-th round.
TEST(TurnDraftsChild, is_killed_in_a_round) {
  const char* path = std::getenv(kChildStore);
  if (path == nullptr) GTEST_SKIP() << "runs as a child of another test";
  oracle().spoil(0);
  LiveStore plain;
  Session known = plain.create("known");
  say(known, "a");
  const Reply reply = read_turn(known.start_turn(killed_turn()));
  oracle().learn(timeline(known, reply));
  const Result<Store> store = Store::open(test::live_runtime(), path, test::run_options());
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  Result<Session> session = Session::open(drafting_model(), *store, "s");
  ASSERT_TRUE(session.ok());
  oracle().kill_at = std::atoi(std::getenv(kChildRounds));
  read_turn(session->info().turn_open ? session->resume_turn()
                                      : session->start_turn(killed_turn()));
}

TEST_F(TurnDrafts, one_killed_in_a_round_and_resumed_says_the_same) {
  oracle().spoil(3);
  Session plain = plain_.create("s");
  say(plain, "a");
  const Reply expected = read_turn(plain.start_turn(killed_turn()));
  oracle().learn(timeline(plain, expected));
  for (const char* n_rounds : {"1", "2", "6"}) {
    LiveStore store(drafting_model());
    {
      Session session = store.create("s");
      say(session, "a");
    }
    store.close();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv(kChildStore, store.path().c_str(), 1);
      setenv(kChildRounds, n_rounds, 1);
      execl("/proc/self/exe", "turn_drafts_test", "--gtest_filter=TurnDraftsChild.*",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << n_rounds;
    store.open();
    Session session = store.open_session("s");
    const Reply reply = read_turn(session.resume_turn());
    EXPECT_TRUE(left_by(session, reply) == left_by(plain, expected)) << n_rounds;
  }
}

}  // namespace
}  // namespace cairn
