// When blocks of a running turn reach the store: together, and never too late.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>

#include "tests/session/live_session.h"
#include "tests/session/store_samples.h"

namespace cairn {
namespace {

using session::SessionState;
using session::StoreState;
using session::TurnState;
using test::live_model;

// A session on a storage that counts.
class CountedSession {
 public:
  CountedSession() {
    test::ProbedStore probed = test::open_probed(folder_ / "store");
    storage_ = probed.storage;
    store_ = std::make_shared<StoreState>(test::live_runtime().state(), std::move(probed.store));
    session_ = *SessionState::create(live_model().state(), store_, "s", {});
  }

  test::ProbedStorage& storage() { return *storage_; }
  SessionState& session() { return *session_; }
  Result<Turn> start(const TurnOptions& options) {
    auto input = session_->begin_turn(options);
    if (!input.ok()) return input.status();
    auto turn = TurnState::start(session_, std::move(*input));
    if (!turn.ok()) return turn.status();
    return Turn(std::move(*turn));
  }
  std::int64_t n_live_blocks() { return session_->live().sequence().n_blocks(); }

 private:
  test::TemporaryFolder folder_;
  test::ProbedStorage* storage_ = nullptr;
  std::shared_ptr<StoreState> store_;
  std::shared_ptr<SessionState> session_;
};

TEST(BlockCommit, blocks_of_a_prompt_are_written_together) {
  CountedSession counted;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(counted.session().append(Message::user(test::words(1200, 1))).ok());
  const test::Reply reply =
      test::read_turn(counted.start({.sampling = test::greedy(), .max_tokens = 2}));
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const std::vector<int>& batches = counted.storage().block_batches;
  const std::int64_t n_blocks = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  EXPECT_EQ(n_blocks, counted.n_live_blocks());
  EXPECT_GT(n_blocks, 17);
  EXPECT_LE(std::ranges::max(batches), 16);
  // Full ones, the rest, and what five seconds each without one have brought.
  EXPECT_LE(static_cast<double>(batches.size()),
            static_cast<double>(n_blocks / 16) + 1 + seconds.count() / 5);
}

TEST(BlockCommit, a_cancelled_prompt_leaves_all_its_blocks_in_the_store) {
  CountedSession counted;
  ASSERT_TRUE(counted.session().append(Message::user(test::words(400, 1))).ok());
  const test::Reply reply = test::read_turn(test::start_and_cancel(
      live_model(), 14, [&] { return counted.start({.sampling = test::greedy()}); }));
  EXPECT_EQ(reply.end_reason, EndReason::kCancelled);
  const std::vector<int>& batches = counted.storage().block_batches;
  const std::int64_t n_blocks = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  EXPECT_GE(n_blocks, 2);
  EXPECT_EQ(n_blocks, counted.n_live_blocks());
  EXPECT_EQ(counted.session().live().n_new_blocks(), 0);
}

// What could not be stored for want of room is stored later, in commits of a bounded size.
TEST(BlockCommit, blocks_that_had_no_room_are_stored_when_there_is_some) {
  CountedSession counted;
  counted.storage().fail_batches_over = 3000;
  ASSERT_TRUE(counted.session().append(Message::user(test::words(250, 1))).ok());
  EXPECT_TRUE(
      test::read_turn(counted.start({.sampling = test::greedy(), .max_tokens = 2})).status.ok());
  EXPECT_TRUE(counted.storage().block_batches.empty());
  EXPECT_GT(counted.session().live().n_new_blocks(), 2);
  counted.storage().fail_batches_over = -1;
  ASSERT_TRUE(counted.session().append(Message::user("more")).ok());
  EXPECT_TRUE(
      test::read_turn(counted.start({.sampling = test::greedy(), .max_tokens = 2})).status.ok());
  EXPECT_EQ(counted.session().live().n_new_blocks(), 0);
}

}  // namespace
}  // namespace cairn
