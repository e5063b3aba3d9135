// A disk that stops taking writes at any moment of a turn: the turn says so, the process lives, and
// after the store is opened again, or there is room again, the session goes on as if nothing had
// happened.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/live_session.h"
#include "tests/session/store_samples.h"

namespace cairn {
namespace {

using session::SessionState;
using session::StoreState;
using session::TurnState;
using test::live_model;
using test::read_turn;
using test::Reply;
using test::words;

constexpr const char* kName = "s";
const TurnOptions& options() {
  static const TurnOptions options = {.sampling = test::sampled(6), .max_tokens = 60};
  return options;
}
Message question() { return Message::user(words(40, 1)); }

// A session on a storage that a test can make fail.
class FailingSession {
 public:
  explicit FailingSession(const std::string& path) {
    test::ProbedStore probed = test::open_probed(path);
    storage_ = probed.storage;
    store_ = std::make_shared<StoreState>(test::live_runtime().state(), std::move(probed.store));
    auto session = SessionState::create(live_model().state(), store_, kName, {});
    if (session.status().code() == StatusCode::kAlreadyExists) {
      session = SessionState::open(live_model().state(), store_, kName, {});
    }
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    session_ = std::move(*session);
  }

  test::ProbedStorage& storage() { return *storage_; }
  SessionState& session() { return *session_; }

  Result<Turn> start() { return run(session_->begin_turn(options())); }
  Result<Turn> resume() { return run(session_->resume_turn()); }

 private:
  Result<Turn> run(Result<SessionState::TurnInput> input) {
    if (!input.ok()) return input.status();
    auto turn = TurnState::start(session_, std::move(*input));
    if (!turn.ok()) return turn.status();
    return Turn(std::move(*turn));
  }

  test::ProbedStorage* storage_ = nullptr;
  std::shared_ptr<StoreState> store_;
  std::shared_ptr<SessionState> session_;
};

// What the host was told before something failed.
struct Outcome {
  bool appended = false, started = false, ended = false;
  std::string delivered;
  Status failure;
};

Outcome converse(FailingSession& failing) {
  Outcome outcome;
  outcome.failure = failing.session().append(question());
  outcome.appended = outcome.failure.ok();
  if (!outcome.appended) return outcome;
  Result<Turn> turn = failing.start();
  outcome.failure = turn.status();
  outcome.started = turn.ok();
  if (!outcome.started) return outcome;
  const Reply reply = read_turn(*turn);
  outcome.delivered = reply.text();
  outcome.failure = reply.status;
  outcome.ended = reply.status.ok();
  return outcome;
}

// Does what is left to do and returns the answer.
std::vector<TokenId> finish(FailingSession& failing, const Outcome& outcome) {
  SessionState& session = failing.session();
  if (!outcome.appended) {
    EXPECT_TRUE(session.append(question()).ok());
  }
  if (session.messages()->size() == 1) {
    const bool open = session.info().turn_open;
    EXPECT_TRUE(open || !outcome.started);
    const Reply reply = read_turn(open ? failing.resume() : failing.start());
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_TRUE(reply.reuse.exact);
    EXPECT_EQ(reply.text().substr(0, outcome.delivered.size()), outcome.delivered);
  }
  return session.messages()->back().sampled_tokens;
}

std::vector<TokenId> expected_answer() {
  const test::TemporaryFolder folder;
  FailingSession healthy(folder / "store");
  EXPECT_TRUE(converse(healthy).ended);
  return healthy.session().messages()->back().sampled_tokens;
}

// Fails every write from the n-th on, for n = 0, 1, ... until nothing fails. `go_on` gets the
// session on after a failure.
template <class GoOn>
void for_each_failing_write(const Status& failure, const GoOn& go_on) {
  int n = 0;
  for (bool failed = true; failed && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE("write " + std::to_string(n));
    const test::TemporaryFolder folder;
    auto failing = std::make_unique<FailingSession>(folder / "store");
    failing->storage().failure = failure;
    failing->storage().n_writes = 0;
    failing->storage().fail_writes_after = n;
    const Outcome outcome = converse(*failing);
    failed = !outcome.ended;
    if (!failed) break;
    EXPECT_EQ(outcome.failure.code(), failure.code());
    EXPECT_FALSE(outcome.failure.message().empty());
    // Refused, not hung, while the disk stays as it is; reading goes on.
    EXPECT_EQ(failing->session().append(question()).code(), failure.code());
    if (outcome.started) {
      const Reply again = read_turn(failing->resume());
      EXPECT_EQ(again.end_reason, EndReason::kError);
      EXPECT_EQ(again.status.code(), failure.code());
    }
    EXPECT_EQ(failing->session().messages()->size(), outcome.appended ? 1u : 0u);
    go_on(failing, folder / "store", outcome);
  }
  EXPECT_GT(n, 5);
}

TEST(TurnFault, after_a_failed_write_the_session_goes_on_from_a_reopened_store) {
  const std::vector<TokenId> expected = expected_answer();
  for_each_failing_write({StatusCode::kIoError, "the disk is gone"},
                         [&](std::unique_ptr<FailingSession>& failing, const std::string& path,
                             const Outcome& outcome) {
                           failing.reset();
                           failing = std::make_unique<FailingSession>(path);
                           EXPECT_EQ(failing->session().messages()->size(), outcome.appended);
                           EXPECT_EQ(failing->session().info().turn_open, outcome.started);
                           EXPECT_EQ(finish(*failing, outcome), expected);
                         });
}

TEST(TurnFault, a_session_goes_on_when_the_disk_has_room_again) {
  const std::vector<TokenId> expected = expected_answer();
  for_each_failing_write(
      {StatusCode::kOutOfDisk, "no space left"},
      [&](std::unique_ptr<FailingSession>& failing, const std::string&, const Outcome& outcome) {
        failing->storage().fail_writes_after = -1;
        EXPECT_EQ(finish(*failing, outcome), expected);
      });
}

TEST(TurnFault, an_append_that_fails_leaves_the_interrupted_turn_to_be_resumed) {
  const test::TemporaryFolder folder;
  FailingSession failing(folder / "store");
  ASSERT_TRUE(failing.session().append(question()).ok());
  EXPECT_TRUE(failing.start().ok());  // and dropped: interrupted
  for (const int n_good_writes : {0, 1}) {
    failing.storage().failure = {StatusCode::kOutOfDisk, "no space left"};
    failing.storage().n_writes = 0;
    failing.storage().fail_writes_after = n_good_writes;
    EXPECT_EQ(failing.session().append(Message::user("more")).ok(), n_good_writes == 1);
    EXPECT_EQ(failing.session().info().turn_open, n_good_writes == 0);
    EXPECT_EQ(failing.session().messages()->size(), n_good_writes == 0 ? 1u : 3u);
  }
}

TEST(TurnFault, a_disk_with_room_for_the_log_only_costs_no_turn) {
  const std::vector<TokenId> expected = expected_answer();
  const test::TemporaryFolder folder;
  auto failing = std::make_unique<FailingSession>(folder / "store");
  failing->storage().fail_batches_over = 3000;  // tails and blocks are larger, events smaller
  const Outcome outcome = converse(*failing);
  EXPECT_TRUE(outcome.ended) << outcome.failure.to_string();
  EXPECT_EQ(failing->session().messages()->back().sampled_tokens, expected);
  failing.reset();

  failing = std::make_unique<FailingSession>(folder / "store");
  EXPECT_EQ(failing->session().messages()->back().sampled_tokens, expected);
  ASSERT_TRUE(failing->session().append(question()).ok());
  const Reply reply = read_turn(failing->start());
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  EXPECT_EQ(reply.reuse.from_disk, 0);  // no state was stored
}

}  // namespace
}  // namespace cairn
