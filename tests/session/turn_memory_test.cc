// Memory that runs out on the strand in the middle of a turn: the turn stops, the process lives,
// and nothing of the broken step is in what a resumed turn says. A program of its own, since it
// replaces the allocator.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/session/live_session.h"
#include "tests/support/failing_allocations.h"

using cairn::test::allocations_left;
using cairn::test::fails_once;

namespace cairn {
namespace {

using test::live_model;
using test::LiveStore;
using test::Reply;

// Makes the strand's memory short for some steps of a turn that is about to start.
class ShortMemory : public std::enable_shared_from_this<ShortMemory> {
 public:
  explicit ShortMemory(std::int64_t n_allocations) : n_allocations_(n_allocations) {}

  void run() {
    const std::int64_t left = n_runs_ == 0 ? n_allocations_ : allocations_left;
    allocations_left = -1;  // posting takes memory too
    if (n_runs_++ == kSteps) return;
    live_model().state()->runtime()->post([self = shared_from_this()] { self->run(); });
    allocations_left = left;
  }

 private:
  static constexpr int kSteps = 3;  // redelivery and two chunks, none of which enters the database
  std::int64_t n_allocations_;
  int n_runs_ = 0;
};

const TurnOptions kOptions = {.sampling = test::sampled(8), .max_tokens = 10};

// Starts a turn whose n-th allocation behind its restore fails. Returns why the turn stopped.
Status answer_with_short_memory(Session& session, std::int64_t n, bool once) {
  Result<Turn> turn = Status();
  {
    const test::HeldStrand held(live_model());
    turn = session.start_turn(kOptions);
    EXPECT_TRUE(turn.ok());
    live_model().state()->runtime()->post([once] { fails_once = once; });
    live_model().state()->runtime()->post(
        [memory = std::make_shared<ShortMemory>(n)] { memory->run(); });
  }
  for (;;) {
    const Result<Event> event = turn->next();
    if (!event.ok()) return event.status();
    if (event->kind == EventKind::kTurnEnd) return event->status;
  }
}

void fail_each_allocation(bool once) {
  LiveStore store;
  const auto ask = [&](const std::string& name) {
    Session session = store.create(name);
    test::say(session, test::words(40, 1));
    return session;
  };
  Session healthy = ask("healthy");
  EXPECT_TRUE(test::read_turn(healthy.start_turn(kOptions)).status.ok());
  const std::vector<TokenId> expected = test::last_tokens(healthy);

  int n_failed = 0;
  for (std::int64_t n = 0; !testing::Test::HasFailure(); n += 1 + n / 4) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    Session session = ask(std::to_string(n));
    const Status status = answer_with_short_memory(session, n, once);
    if (status.ok()) break;
    ++n_failed;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.to_string();
    EXPECT_TRUE(session.info().turn_open);
    const Reply reply = test::read_turn(session.resume_turn());
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_EQ(test::last_tokens(session), expected);
  }
  EXPECT_GT(n_failed, 20);
}

TEST(TurnMemory, a_failed_allocation_ends_the_turn_with_an_event) { fail_each_allocation(true); }

TEST(TurnMemory, a_turn_stops_even_without_memory_to_say_so) { fail_each_allocation(false); }

}  // namespace
}  // namespace cairn
