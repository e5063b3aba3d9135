// Random operations on the trees of several sessions and on an obvious model of them in memory:
// every session is a list of events with parents, a fork has a copy of what it shares. Both must
// always show the same. CAIRN_TREE_SEED, _SEEDS and _STEPS choose other operations.
#include <gtest/gtest.h>

#include <algorithm>
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
#include <tuple>
#include <utility>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::text_of;

// The last events of the log are taken over when they are written; from then on they must stay.
struct ModelEvent {
  session::LogEvent logged;
  std::string owner;  // id of the session whose log has it
  std::int64_t n_tokens = 0;
};

struct Said {
  Role role = Role::kUser;
  std::string text;
  std::vector<TokenId> tokens;

  bool operator==(const Said&) const = default;
};

struct ModelSession {
  session::SessionId key;
  std::string id, forked_from;
  std::map<std::string, std::string> labels;
  std::map<std::uint64_t, ModelEvent> events;  // shared ones too
  std::uint64_t head = 0, fork_point = 0;
  std::optional<Session> handle;

  const session::LogEvent& at(std::uint64_t event) const { return events.at(event).logged; }

  // From the root on.
  std::vector<std::uint64_t> path(std::uint64_t event) const {
    std::vector<std::uint64_t> path;
    for (; event > 0; event = at(event).parent) path.push_back(event);
    std::ranges::reverse(path);
    return path;
  }

  std::int64_t n_own() const {
    return std::ranges::count_if(events, [&](const auto& e) { return e.second.owner == id; });
  }

  // Whether a turn is open, besides.
  std::pair<std::vector<Said>, bool> conversation() const {
    std::vector<Said> said;
    std::vector<TokenId> tokens;
    bool open = false;
    for (const std::uint64_t event : path(head)) {
      const session::EventBody& body = at(event).body;
      if (const auto* appended = std::get_if<session::MessageAppended>(&body)) {
        said.push_back({appended->message.role, text_of(appended->message), {}});
      } else if (std::holds_alternative<session::TurnStarted>(body)) {
        open = true;
        tokens.clear();
      } else if (const auto* generated = std::get_if<session::TokensGenerated>(&body)) {
        tokens.insert(tokens.end(), generated->tokens.begin(), generated->tokens.end());
      } else if (const auto* ended = std::get_if<session::TurnEnded>(&body)) {
        said.push_back({Role::kAssistant, text_of(ended->message), tokens});
        open = false;
      }
    }
    return {said, open};
  }

  using Place = std::tuple<std::uint64_t, bool, std::string, std::int64_t>;
  // Marks that the session may go to, and ends of branches that it left and that are there.
  std::set<Place> marks() const {
    std::set<Place> places;
    std::set<std::uint64_t> on_path;
    for (const std::uint64_t event : path(head)) on_path.insert(event);
    for (const auto& [number, event] : events) {
      if (const auto* mark = std::get_if<session::MarkSet>(&event.logged.body)) {
        places.insert({number, false, mark->name, event.n_tokens});
      }
      const auto* moved = std::get_if<session::HeadMoved>(&event.logged.body);
      if (moved == nullptr || event.owner != id) continue;
      std::uint64_t end = moved->from;
      while (events.contains(end) && events.at(end).owner == id &&
             std::holds_alternative<session::HeadMoved>(at(end).body)) {
        end = at(end).parent;
      }
      if (events.contains(end) && !on_path.contains(end)) {
        places.insert({end, true, "", events.at(end).n_tokens});
      }
    }
    return places;
  }
};

class Trees {
 public:
  explicit Trees(std::uint32_t seed) : random_(seed) {}

  void step() {
    switch (below(24)) {
      case 0:
        return reopen();
      case 1:
      case 2:
        return create();
      case 3:
      case 4:
        return fork();
      case 5:
        return remove();
      case 6:
        return rename();
      case 7:
        return set_labels();
      case 8:
      case 9:
        return remove_branches();
      case 10:
      case 11:
      case 12:
        return mark();
      case 13:
      case 14:
      case 15:
      case 16:
        return rewind();
      case 17:
      case 18:
      case 19:
        return take_turn();
      default:
        return append();
    }
  }

  void check() {
    for (auto& [name, model] : sessions_) {
      SCOPED_TRACE("session " + name);
      Session& session = open(name, model);
      const auto [said, turn_open] = model.conversation();
      const auto messages = session.messages();
      ASSERT_TRUE(messages.ok()) << messages.status().to_string();
      std::vector<Said> actual;
      for (const Message& message : *messages) {
        actual.push_back({message.role, text_of(message), message.sampled_tokens});
      }
      ASSERT_TRUE(actual == said) << actual.size() << " messages, " << said.size() << " expected";
      const auto marks = session.marks();
      ASSERT_TRUE(marks.ok()) << marks.status().to_string();
      std::set<ModelSession::Place> places;
      for (const Mark& mark : *marks) {
        places.insert({mark.event, mark.rewound, mark.name, mark.n_tokens});
      }
      EXPECT_EQ(places, model.marks());
      EXPECT_EQ(places.size(), marks->size());
      const SessionInfo info = session.info();
      EXPECT_EQ(info.id, model.id);
      EXPECT_EQ(info.name, name);
      EXPECT_EQ(info.labels, model.labels);
      EXPECT_EQ(info.forked_from, model.forked_from);
      EXPECT_EQ(info.n_events, model.n_own());
      EXPECT_EQ(info.turn_open, turn_open);
      EXPECT_EQ(info.n_tokens, model.head == 0 ? 0 : model.events.at(model.head).n_tokens);
    }
    std::set<std::string> listed, expected;
    const auto list = store_.store().list();
    ASSERT_TRUE(list.ok()) << list.status().to_string();
    for (const SessionInfo& info : *list) listed.insert(info.name);
    for (const auto& [name, model] : sessions_) expected.insert(name);
    EXPECT_EQ(listed, expected);
    check_logs();
  }

 private:
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::string any_name() { return "s" + std::to_string(below(7)); }
  std::string any_text() { return test::words(1 + static_cast<int>(below(3)), below(1u << 30)); }

  Session& open(const std::string& name, ModelSession& model) {
    if (!model.handle) model.handle.emplace(store_.open_session(name));
    return *model.handle;
  }

  // Name and model of one that is there.
  std::pair<const std::string, ModelSession>* any() {
    if (sessions_.empty()) create();
    return &*std::next(sessions_.begin(), below(sessions_.size()));
  }

  // The store has every event that a session shows and no other, of removed sessions neither.
  void check_logs() {
    std::map<std::string, std::set<std::uint64_t>> needed;
    for (const auto& [name, model] : sessions_) {
      for (const auto& [number, event] : model.events) needed[event.owner].insert(number);
    }
    for (const session::SessionId& id : made_) {
      const auto events = store_.inside().read_events(id);
      ASSERT_TRUE(events.ok()) << events.status().to_string();
      std::set<std::uint64_t> stored;
      for (const session::LogEvent& event : *events) stored.insert(event.sequence);
      EXPECT_EQ(stored, needed[id.to_hex()]) << "of " << id.to_hex();
    }
  }

  // Takes over what the session has written after its model's newest event.
  void take_over(ModelSession& model) {
    const std::uint64_t newest =
        std::max(model.fork_point, model.events.empty() ? 0 : model.events.rbegin()->first);
    auto events = store_.inside().read_events(model.key, newest + 1);
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    for (session::LogEvent& event : *events) {
      ModelEvent taken = {std::move(event), model.id, 0};
      const auto parent = model.events.find(taken.logged.parent);
      if (parent != model.events.end()) taken.n_tokens = parent->second.n_tokens;
      const session::EventBody& body = taken.logged.body;
      if (const auto* started = std::get_if<session::TurnStarted>(&body)) {
        taken.n_tokens = started->n_prompt_tokens;
      } else if (const auto* generated = std::get_if<session::TokensGenerated>(&body)) {
        taken.n_tokens += std::ssize(generated->tokens);
      }
      model.head = taken.logged.sequence;
      model.events.emplace(model.head, std::move(taken));
    }
  }

  void reopen() {
    for (auto& [name, model] : sessions_) model.handle.reset();
    store_.reopen();
  }

  void create() {
    const std::string name = any_name();
    Result<Session> session = Session::create(live_model(), store_.store(), name);
    if (sessions_.contains(name)) {
      EXPECT_EQ(session.status().code(), StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    ModelSession& model = sessions_[name];
    model.key = made_.emplace_back(store_.id_of(name));
    model.id = session->info().id;
    model.handle.emplace(std::move(*session));
  }

  void append() {
    auto& [name, model] = *any();
    const std::string text = any_text();
    auto [expected, turn_open] = model.conversation();
    const Status status = open(name, model).append(Message::user(text));
    ASSERT_TRUE(status.ok()) << status.to_string();
    take_over(model);
    expected.push_back({Role::kUser, text, {}});
    std::vector<Said> said = model.conversation().first;
    if (turn_open) said.erase(said.end() - 2);  // what the interrupted turn had said
    EXPECT_TRUE(said == expected);
  }

  void mark() {
    auto& [name, model] = *any();
    const std::string mark_name = below(2) == 0 ? "" : any_text();
    const Result<std::uint64_t> mark = open(name, model).mark(mark_name, below(2) == 0);
    ASSERT_TRUE(mark.ok()) << mark.status().to_string();
    const std::uint64_t before = model.head;
    take_over(model);
    EXPECT_EQ(*mark, model.head);
    EXPECT_EQ(model.at(*mark).parent, before);
  }

  // An event of the session, or what is none; 0 = none.
  std::uint64_t any_event(const ModelSession& model) {
    const std::uint64_t end = std::max(model.head, model.fork_point) + 2;
    return below(end);
  }

  void rewind() {
    auto& [name, model] = *any();
    const std::uint64_t event = any_event(model), before = model.head;
    const Status status = open(name, model).rewind(event);
    if (!model.events.contains(event)) {
      EXPECT_EQ(status.code(), StatusCode::kNotFound) << "to event " << event;
      return;
    }
    ASSERT_TRUE(status.ok()) << status.to_string();
    take_over(model);
    if (event == before) {
      EXPECT_EQ(model.head, before);
    } else {
      EXPECT_EQ(model.at(model.head).parent, event);
    }
  }

  void fork() {
    auto& [name, model] = *any();
    const std::uint64_t event = any_event(model);
    const std::string fork_name = any_name();
    Result<Session> fork = open(name, model).fork(fork_name, event);
    if (event != 0 && !model.events.contains(event)) {
      EXPECT_EQ(fork.status().code(), StatusCode::kNotFound) << "at event " << event;
      return;
    }
    if (sessions_.contains(fork_name)) {
      EXPECT_EQ(fork.status().code(), StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_TRUE(fork.ok()) << fork.status().to_string();
    ModelSession copy;
    copy.key = made_.emplace_back(store_.id_of(fork_name));
    copy.id = fork->info().id;
    copy.forked_from = model.id;
    copy.head = copy.fork_point = event != 0 ? event : model.head;
    for (const std::uint64_t shared : model.path(copy.head)) {
      copy.events.emplace(shared, model.events.at(shared));
    }
    copy.handle.emplace(std::move(*fork));
    sessions_.emplace(fork_name, std::move(copy));
  }

  void remove() {
    auto& [name, model] = *any();
    if (model.handle && below(2) == 0) {
      EXPECT_EQ(store_.store().remove(name).code(), StatusCode::kBusy);
      return;
    }
    model.handle.reset();
    const Status status = store_.store().remove(name);
    ASSERT_TRUE(status.ok()) << status.to_string();
    sessions_.erase(std::string(name));
  }

  void rename() {
    const std::string name = any()->first, new_name = any_name();
    const Status status = store_.store().rename(name, new_name);
    if (name != new_name && sessions_.contains(new_name)) {
      EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_TRUE(status.ok()) << status.to_string();
    auto node = sessions_.extract(name);
    node.key() = new_name;
    sessions_.insert(std::move(node));
  }

  void set_labels() {
    auto& [name, model] = *any();
    model.labels.clear();
    for (std::uint32_t i = below(3); i > 0; --i) model.labels["k" + any_text()] = any_text();
    EXPECT_TRUE(store_.store().set_labels(name, model.labels).ok());
  }

  // What no head, mark or fork leads through goes.
  void remove_branches() {
    auto& [name, model] = *any();
    std::set<std::uint64_t> kept;
    const auto keep = [&](std::uint64_t event) {
      for (const std::uint64_t on_path : model.path(event)) kept.insert(on_path);
    };
    keep(model.head);
    for (const auto& [number, event] : model.events) {
      if (std::holds_alternative<session::MarkSet>(event.logged.body)) keep(number);
    }
    for (const auto& [other_name, other] : sessions_) {
      for (const auto& [number, event] : other.events) {
        if (other.id != model.id && event.owner == model.id) kept.insert(number);
      }
    }
    const std::size_t removed = std::erase_if(model.events, [&](const auto& event) {
      return event.second.owner == model.id && !kept.contains(event.first);
    });
    const auto n_removed =
        store_.inside().remove_branches(model.key, std::numeric_limits<std::int64_t>::max());
    ASSERT_TRUE(n_removed.ok()) << n_removed.status().to_string();
    EXPECT_EQ(*n_removed, static_cast<std::int64_t>(removed));
  }

  // Ends or is cancelled; continues the one that is open.
  void take_turn() {
    auto& [name, model] = *any();
    const auto [said, turn_open] = model.conversation();
    if (!turn_open && (said.empty() || said.back().role != Role::kUser)) return append();
    Session& session = open(name, model);
    const TurnOptions options = {.sampling = test::sampled(below(100)),
                                 .max_tokens = 1 + static_cast<int>(below(4))};
    const auto start = [&] {
      return turn_open ? session.resume_turn() : session.start_turn(options);
    };
    const int n_steps = below(2) == 0 ? 1000 : static_cast<int>(below(9));
    const Reply reply = read_turn(test::start_and_cancel(live_model(), n_steps, start));
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    take_over(model);
    EXPECT_EQ(model.conversation().second, reply.end_reason == EndReason::kCancelled);
    if (reply.end_reason != EndReason::kCancelled) {
      EXPECT_EQ(model.conversation().first.back().text, reply.text());
    }
  }

  std::mt19937 random_;
  LiveStore store_;
  std::map<std::string, ModelSession> sessions_;
  std::vector<session::SessionId> made_;  // all that there ever were
};

std::uint32_t setting(const char* name, std::uint32_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoll(value));
}

TEST(Tree, equals_a_model_in_memory_under_random_operations) {
  const std::uint32_t first = setting("CAIRN_TREE_SEED", 1);
  const std::uint32_t n_seeds = setting("CAIRN_TREE_SEEDS", 4);
  const std::uint32_t n_steps = setting("CAIRN_TREE_STEPS", 500);
  for (std::uint32_t seed = first; seed < first + n_seeds && !HasFailure(); ++seed) {
    Trees trees(seed);
    std::uint32_t step = 0;
    for (; step < n_steps && !HasFailure(); ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      trees.step();
      if (!HasFailure()) trees.check();
    }
    std::printf("seed %u: %u operations\n", seed, step);
  }
}

}  // namespace
}  // namespace cairn
