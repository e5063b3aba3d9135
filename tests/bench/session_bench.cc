// Whether using a session depends on how much it has behind it: opening, appending, marking,
// rewinding and forking sessions with logs of different length, times and ratios to the shortest.
//
//   session_bench [--model DIR] [--rounds N] [--longest EVENTS]
//
// Commits are buffered, so that the disk's syncs hide nothing. Rounds alternate; medians.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cairn/session.h"
#include "session/session_log.h"
#include "session/store_state.h"
#include "tests/bench/measure.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr std::uint64_t kTurnEvents = 50;    // a message, a start, tokens, an end
constexpr std::size_t kCommitEvents = 1000;  // when the log is made
constexpr std::size_t kOperations = 5;
constexpr std::array<const char*, kOperations> kNames = {"open", "append", "mark", "rewind",
                                                         "fork"};

struct Subject {
  std::string name;
  std::uint64_t n_events = 0;
  std::array<std::vector<double>, kOperations> ms;
};

session::EventBody body_of(std::uint64_t sequence) {
  const std::uint64_t turn = (sequence - 1) / kTurnEvents, at = (sequence - 1) % kTurnEvents;
  if (at == 0) return session::MessageAppended{Message::user("and now?")};
  if (at == 1) {
    session::TurnStarted started;
    started.turn = turn;
    started.max_tokens = 400;
    return started;
  }
  if (at < kTurnEvents - 1) return session::TokensGenerated{turn, {5, 6, 7, 8, 9, 10, 11, 12}};
  session::TurnEnded ended;
  ended.turn = turn;
  ended.n_tokens = 8 * (kTurnEvents - 3);
  ended.message = Message::user("this");
  ended.message.role = Role::kAssistant;
  return ended;
}

// A session with whole turns in its log, as they would be written one by one. Its head claims few
// tokens, so that there is room for more.
void make(const Model& model, const Store& store, const Subject& subject) {
  checked(
      Session::create(model, store, subject.name, {.durability = SessionDurability::kBuffered}));
  session::SessionStore& sessions = store.state()->store();
  session::SessionRecord record = checked(sessions.find_by_name(subject.name));
  session::HeadState head = session::head_of(record);
  while (record.n_events < subject.n_events) {
    session::Commit commit;
    commit.session = record.id;
    for (std::size_t i = 0; i < kCommitEvents && record.n_events < subject.n_events; ++i) {
      session::LogEvent event = {record.head_sequence + 1, record.head_sequence, 1'700'000'000'000,
                                 body_of(record.head_sequence + 1)};
      session::advance(head, event);
      head.n_tokens = 400;
      head.appended_tokens = 0;
      event.head = head;
      commit.events.push_back(std::move(event));
      ++record.head_sequence;
      ++record.n_events;
    }
    session::set_head(record, head);
    commit.record = record;
    check(sessions.commit(commit).status());
  }
}

// Opens the session and uses it once in each way. What a rewind and a fork go to is the end of the
// turn in the middle of the log.
void use(const Model& model, const Store& store, Subject& subject, int round) {
  const std::uint64_t middle = subject.n_events / 2 / kTurnEvents * kTurnEvents;
  const auto keep = [&](std::size_t operation, Clock::time_point start) {
    subject.ms[operation].push_back(ms_since(start));
  };
  Clock::time_point start = Clock::now();
  Session session = checked(Session::open(model, store, subject.name));
  keep(0, start);
  start = Clock::now();
  check(session.append(Message::user("one more question")));
  keep(1, start);
  start = Clock::now();
  checked(session.mark("here"));
  keep(2, start);
  start = Clock::now();
  check(session.rewind(middle));
  keep(3, start);
  start = Clock::now();
  checked(session.fork(subject.name + "-" + std::to_string(round), middle));
  keep(4, start);
}

void report(const std::vector<Subject>& subjects) {
  std::printf("%-8s", "events");
  for (const Subject& subject : subjects) {
    std::printf("%12llu", static_cast<unsigned long long>(subject.n_events));
  }
  std::printf("   ratios to the first\n");
  for (std::size_t i = 0; i < kOperations; ++i) {
    std::printf("%-8s", kNames[i]);
    for (const Subject& subject : subjects) std::printf("%9.0f us", median(subject.ms[i]) * 1e3);
    for (const Subject& subject : subjects) {
      std::printf("  %5.2f", median(subject.ms[i]) / median(subjects[0].ms[i]));
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  const std::string given = flags.text("--model");
  const Runtime runtime = checked(Runtime::create({}));
  const Model model = checked(
      Model::open(runtime, given.empty() ? CAIRN_SOURCE_DIR "/examples/models/tiny-a" : given));
  const test::TemporaryFolder folder;
  const Store store = checked(Store::open(runtime, folder / "store"));
  print_load();
  std::vector<Subject> subjects;
  const auto longest = static_cast<std::uint64_t>(flags.number("--longest", 100'000));
  for (const std::uint64_t n_events : {100, 10'000, 100'000}) {
    if (n_events > longest) continue;
    subjects.push_back({.name = "s" + std::to_string(n_events), .n_events = n_events, .ms = {}});
    make(model, store, subjects.back());
  }
  check(store.state()->store().storage().flush());
  for (int round = 0; round < flags.number("--rounds", 51); ++round) {
    for (Subject& subject : subjects) use(model, store, subject, round);
  }
  report(subjects);
  print_load();
  return 0;
}
