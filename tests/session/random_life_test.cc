// Random lives of a session against a model of what it must hold: messages, turns, cancels that are
// resumed, forks, rewinds, closed stores, collections, histories that a client sends back edited.
// After each step the session shows the model's conversation; each answer is the one that a session
// gives which has never seen anything but these messages. The store, the same for all lives, keeps
// its quota and its descriptors. CAIRN_LIVES and CAIRN_LIVES_SEED choose how many and which.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::text_of;
using test::words;

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

std::ptrdiff_t open_descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

using Conversation = std::vector<Message>;

struct Tally {
  int turns = 0, cancels = 0, forks = 0, rewinds = 0, reopened = 0, collected = 0, syncs = 0;
};

class Life {
 public:
  Life(LiveStore& store, LiveStore& cold, std::uint32_t seed, Tally& tally)
      : store_(store),
        cold_(cold),
        name_("life " + std::to_string(seed)),
        random_(seed),
        tally_(tally) {
    // Half of the lives share their first message with others.
    append(Message::system("Be brief. " + words(12, seed % 2 == 0 ? 5 : seed)));
  }

  void live(int n_steps) {
    for (int i = 0; i < n_steps && !testing::Test::HasFailure(); ++i) step();
    answer();  // every life ends with one
  }

 private:
  std::uint32_t below(std::uint32_t n) { return random_() % n; }

  void step() {
    switch (below(9)) {
      case 0:
      case 1:
        return append(Message::user(words(1 + static_cast<int>(below(40)), random_())));
      case 2:
      case 3:
        return answer();
      case 4:
        return mark_or_rewind();
      case 5:
        return fork();
      case 6:
        return reopen();
      case 7:
        return collect();
      default:
        return sync();
    }
  }

  Session& session() {
    if (!session_) session_.emplace(is_new_ ? store_.create(name_) : store_.open_session(name_));
    is_new_ = false;
    return *session_;
  }

  void append(Message message) {
    const Status status = session().append(message);
    ASSERT_TRUE(status.ok()) << status.to_string();
    expected_.push_back(std::move(message));
    check();
  }

  void answer() {
    if (expected_.back().role != Role::kUser) append(Message::user(words(3, random_())));
    const TurnOptions options = {.sampling = test::sampled(random_()),
                                 .max_tokens = 1 + static_cast<int>(below(12))};
    if (below(3) == 0) {
      answer_in_parts(options);
    } else {
      expect_answered(read_turn(session().start_turn(options)));
    }
    ++tally_.turns;
    const Conversation now = *session().messages();
    ASSERT_EQ(now.size(), expected_.size() + 1);
    EXPECT_EQ(now.back().sampled_tokens, cold_answer(options));
    expected_.push_back(now.back());
    check();
  }

  // Cancelled after some steps, perhaps with the store closed, then resumed.
  void answer_in_parts(const TurnOptions& options) {
    bool done = false;
    {
      Result<Turn> turn = test::start_and_cancel(test::live_model(), static_cast<int>(below(12)),
                                                 [&] { return session().start_turn(options); });
      ASSERT_TRUE(turn.ok()) << turn.status().to_string();
      const Reply reply = read_turn(*turn);
      done = reply.end_reason != EndReason::kCancelled;
    }
    if (done) return;
    ++tally_.cancels;
    if (below(2) == 0) reopen();
    expect_answered(read_turn(session().resume_turn()));
  }

  static void expect_answered(const Reply& reply) {
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_TRUE(reply.end_reason == EndReason::kLength || reply.end_reason == EndReason::kStop);
    EXPECT_TRUE(reply.reuse.exact);
  }

  // In a session of its own that shares nothing.
  std::vector<TokenId> cold_answer(const TurnOptions& options) {
    const std::string name = name_ + ", cold " + std::to_string(n_cold_++);
    Session session =
        cold_.create(name, {.durability = SessionDurability::kBuffered, .salt = name});
    for (const Message& message : expected_) EXPECT_TRUE(session.append(message).ok());
    const Reply reply = read_turn(session.start_turn(options));
    EXPECT_EQ(reply.reuse.from_memory + reply.reuse.from_disk, 0);
    return test::last_tokens(session);
  }

  void mark_or_rewind() {
    if (marks_.empty() || below(2) == 0) {
      const auto mark = session().mark("", below(2) == 0);
      ASSERT_TRUE(mark.ok()) << mark.status().to_string();
      marks_[*mark] = expected_;
      return;
    }
    const auto mark = std::next(marks_.begin(), below(static_cast<std::uint32_t>(marks_.size())));
    const Status status = session().rewind(mark->first);
    ASSERT_TRUE(status.ok()) << status.to_string();
    expected_ = mark->second;
    ++tally_.rewinds;
    check();
  }

  // Goes on with the fork; the origin stays or goes.
  void fork() {
    const std::string origin = name_;
    Result<Session> forked = session().fork(name_ + "'");
    ASSERT_TRUE(forked.ok()) << forked.status().to_string();
    session_.emplace(std::move(*forked));
    name_ += "'";
    if (below(2) == 0) {
      EXPECT_TRUE(store_.store().remove(origin).ok());
    }
    ++tally_.forks;
    check();
  }

  void reopen() {
    session_.reset();
    store_.reopen();
    ++tally_.reopened;
  }

  void collect() {
    const CollectOptions options = {.target_bytes = below(2) == 0 ? 1 : 0};
    const auto report = store_.store().collect(options);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    ++tally_.collected;
    check();
  }

  // As a client that keeps no tokens sends it: whole, with one message edited, cut, or longer.
  void sync() {
    Conversation sent = expected_;
    for (Message& message : sent) message.sampled_tokens.clear();
    const auto at = static_cast<std::size_t>(below(static_cast<std::uint32_t>(sent.size())));
    Conversation expected = expected_;
    switch (below(4)) {
      case 0:
        break;
      case 1:
        if (sent[at].role != Role::kUser) break;
        sent[at] = expected[at] = Message::user(words(5, random_()));
        break;
      case 2:
        sent.resize(at + 1);
        expected.resize(at + 1);
        break;
      default:
        sent.push_back(Message::user(words(6, random_())));
        expected.push_back(sent.back());
    }
    const auto report = session().sync(sent);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    expected_ = std::move(expected);
    ++tally_.syncs;
    check();
  }

  void check() {
    const auto messages = session().messages();
    ASSERT_TRUE(messages.ok()) << messages.status().to_string();
    ASSERT_EQ(messages->size(), expected_.size());
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      EXPECT_EQ((*messages)[i].role, expected_[i].role);
      EXPECT_EQ(text_of((*messages)[i]), text_of(expected_[i]));
      EXPECT_EQ((*messages)[i].sampled_tokens, expected_[i].sampled_tokens);
    }
  }

  LiveStore& store_;
  LiveStore& cold_;
  std::string name_;
  std::mt19937 random_;
  Tally& tally_;
  bool is_new_ = true;
  int n_cold_ = 0;
  std::optional<Session> session_;
  Conversation expected_;
  std::map<std::uint64_t, Conversation> marks_;
};

TEST(RandomLife, a_session_says_what_a_cold_one_says) {
  const std::int64_t n_lives = setting("CAIRN_LIVES", 50);
  const auto seed = static_cast<std::uint32_t>(setting("CAIRN_LIVES_SEED", std::random_device{}()));
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  StoreOptions options = test::run_options();
  options.quota_bytes = 64 << 20;
  LiveStore store(test::live_model(), options), cold;
  Tally tally;
  std::ptrdiff_t n_descriptors = 0;
  for (std::int64_t i = 0; i < n_lives && !HasFailure(); ++i) {
    const auto own = static_cast<std::uint32_t>(seed + i);
    SCOPED_TRACE("CAIRN_LIVES=1 CAIRN_LIVES_SEED=" + std::to_string(own));
    Life(store, cold, own, tally).live(8);
    EXPECT_LE(store.store().stats()->bytes_on_disk, options.quota_bytes);
    if (i == 10) n_descriptors = open_descriptors();
    if (i > 10) {
      EXPECT_LT(open_descriptors(), n_descriptors + 200);
    }
  }
  std::printf(
      "%lld lives: %d turns (%d cancelled and resumed), %d forks, %d rewinds, %d openings, "
      "%d collections, %d syncs\n",
      static_cast<long long>(n_lives), tally.turns, tally.cancels, tally.forks, tally.rewinds,
      tally.reopened, tally.collected, tally.syncs);
}

}  // namespace
}  // namespace cairn
