// Random lives of sessions against a model of what they must hold: messages, calls and results,
// turns of several sessions at once, cancels in prefill and decode, turns that are resumed, forks,
// rewinds, closed stores, collections, histories that a client sends back edited and spelled anew.
// They are lived in a process that is killed at random instants of its work and started again.
// After each step, and each death, every session shows the model's conversation: the one before
// what was being done or the one after it. Each answer is what a session says which has never seen
// anything but these messages. The store, the same for all lives, keeps its quota and its
// descriptors. CAIRN_LIVES and CAIRN_LIVES_SEED choose how many and which.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/life_host.h"
#include "tests/session/life_process.h"
#include "tests/session/live_session.h"

namespace cairn {
namespace {

using test::LifeProcess;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::text_of;
using test::words;
namespace json = boost::json;

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

using Conversation = std::vector<Message>;

struct Tally {
  int turns = 0, together = 0, cancels = 0, resumed = 0, forks = 0, rewinds = 0, reopened = 0,
      collected = 0, syncs = 0;
};

struct Options {
  std::uint64_t seed = 0;
  int max_tokens = 0;
};

// What a session must show.
struct Known {
  std::string name;
  Conversation said;
  std::optional<Options> open;  // a turn that has begun and not ended
  std::map<std::uint64_t, Conversation> marks;
};

bool says(const Conversation& shown, const Conversation& said) {
  return std::ranges::equal(shown, said, [](const Message& a, const Message& b) {
    return a.role == b.role && text_of(a) == text_of(b) && a.sampled_tokens == b.sampled_tokens &&
           a.tool_calls.size() == b.tool_calls.size();
  });
}

class Life {
 public:
  Life(LifeProcess& host, LiveStore& cold, std::uint32_t seed, Tally& tally)
      : host_(host),
        cold_(cold),
        seed_(seed),
        name_("life " + std::to_string(seed)),
        random_(seed),
        tally_(tally) {
    sessions_.push_back({name_, {}, {}, {}});
    begin(sessions_[0]);
  }

  void live(int n_steps) {
    for (int i = 0; i < n_steps && !testing::Test::HasFailure(); ++i) step();
    kills_ = false;  // every life ends with an answer of each of its sessions
    for (std::size_t i = 0; i < sessions_.size() && !testing::Test::HasFailure(); ++i) {
      answer({i});
      if (sessions_[i].open) answer({i}, /*cancels=*/false);
    }
  }

 private:
  // What the host shows of a session.
  struct Shown {
    Conversation said;
    bool open = false;
  };

  // Half of the lives share their first message with others.
  void begin(Known& known) {
    append(known, Message::system("Be brief. " + words(12, seed_ % 2 == 0 ? 5 : seed_)));
  }
  static bool is_asked(const Known& known) {
    return !known.said.empty() &&
           (known.said.back().role == Role::kUser || known.said.back().role == Role::kTool);
  }

  std::uint32_t below(std::size_t n) { return random_() % static_cast<std::uint32_t>(n); }
  Known& any() { return sessions_[below(sessions_.size())]; }

  void step() {
    Known& session = any();
    if (session.said.empty()) return begin(session);  // killed at its birth
    switch (below(12)) {
      case 0:
        return append(session, Message::user(words(1 + static_cast<int>(below(40)), random_())));
      case 1:
        return call_a_tool(session);
      case 2:
      case 3:
      case 4:
        return answer_some();
      case 5:
        return mark(session);
      case 6:
        return rewind(session);
      case 7:
        return fork(session);
      case 8:
        return upkeep();
      default:
        return sync(session);
    }
  }

  // The answer, or nothing: the host was killed meanwhile.
  std::optional<json::object> ask(const json::object& request) {
    const bool kill = kills_ && below(4) == 0;
    const std::optional<json::object> answer =
        kill ? host_.ask_and_kill(request, random_) : std::optional(host_.ask(request));
    if (answer) {
      EXPECT_FALSE(answer->contains("error")) << json::serialize(request) << "\n"
                                              << json::serialize(*answer);
    }
    return answer;
  }

  Shown show(const Known& known) {
    const json::object shown =
        host_.ask({{"do", "show"}, {"session", known.name}, {"create", true}});
    Shown found;
    if (shown.contains("error")) return found;
    for (const json::value& message : shown.at("messages").as_array()) {
      found.said.push_back(test::from_wire(message.as_object()));
    }
    found.open = shown.at("open").as_bool();
    return found;
  }

  // The session stands where it stood or, if something was done, where that leads.
  void check(Known& known, const Conversation& after, bool done) {
    const Shown shown = show(known);
    const bool as_after = says(shown.said, after) && !shown.open;
    const bool as_before = says(shown.said, known.said) && shown.open == known.open.has_value();
    EXPECT_TRUE(as_after || (!done && as_before))
        << known.name << " shows " << shown.said.size() << " messages, is "
        << (shown.open ? "open" : "closed") << "; before " << known.said.size() << ", after "
        << after.size() << (done ? "" : ", killed");
    if (as_after) known.open.reset();
    known.said = shown.said;
  }
  void check_others(const Known& but) {
    for (Known& known : sessions_) {
      if (&known == &but) continue;
      const Shown shown = show(known);
      EXPECT_TRUE(says(shown.said, known.said) && shown.open == known.open.has_value())
          << known.name << " has changed";
    }
  }
  void ask_and_check(Known& known, const json::object& request, const Conversation& after) {
    const bool done = ask(request).has_value();
    check(known, after, done);
    if (!done) check_others(known);
  }

  // -- messages --

  void append(Known& known, const Message& message) {
    Conversation after = known.said;
    if (known.open) after.push_back(interrupted(known));
    after.push_back(message);
    const json::object request = {{"do", "append"},
                                  {"session", known.name},
                                  {"create", true},
                                  {"message", test::to_wire(message)}};
    if (!known.open) return ask_and_check(known, request, after);
    // Closes the turn with what the log had of it, which only the session knows.
    const bool done = ask(request).has_value();
    const Shown shown = show(known);
    if (shown.said.size() == after.size()) {
      Message& answer = after[after.size() - 2];
      answer = shown.said[after.size() - 2];
      expect_beginning(answer.sampled_tokens, answer_of(known.said, *known.open));
    }
    check(known, after, done);
    if (!done) check_others(known);
  }
  static Message interrupted(const Known&) {
    Message answer;
    answer.role = Role::kAssistant;
    return answer;
  }
  static void expect_beginning(const std::vector<TokenId>& tokens,
                               const std::vector<TokenId>& whole) {
    ASSERT_LE(tokens.size(), whole.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin()));
  }

  // As if another had answered: a call and its result.
  void call_a_tool(Known& known) {
    if (known.open || !is_asked(known)) return;
    Message call;
    call.role = Role::kAssistant;
    const std::string id = "call_" + std::to_string(below(1000));
    call.tool_calls.push_back({id, "read_file", R"({"path": "a/b", "line": 12})"});
    append(known, call);
    if (is_asked(known)) return;  // killed before
    append(known, Message::tool_result(id, words(1 + static_cast<int>(below(20)), random_())));
  }

  // -- turns --

  void answer_some() {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      if (below(2) == 0) chosen.push_back(i);
    }
    if (!chosen.empty()) answer(chosen);
  }

  void answer(const std::vector<std::size_t>& chosen, bool cancels = true) {
    json::array turns;
    for (const std::size_t i : chosen) {
      Known& known = sessions_[i];
      if (!known.open && !is_asked(known)) append(known, Message::user(words(3, random_())));
      if (!known.open && !is_asked(known)) return;  // killed before
      if (known.open) {
        ++tally_.resumed;
      } else {
        begun_[known.name] = {random_(), 1 + static_cast<int>(below(12))};
      }
      const Options& options = known.open ? *known.open : begun_[known.name];
      const int cancel_after = cancels && below(3) == 0 ? static_cast<int>(below(16)) : -1;
      turns.push_back({{"session", known.name},
                       {"seed", options.seed},
                       {"max_tokens", options.max_tokens},
                       {"cancel_after", cancel_after}});
    }
    tally_.together += static_cast<int>(chosen.size()) - 1;
    const std::optional<json::object> said = ask({{"do", "turns"}, {"turns", turns}});
    if (said && said->contains("error")) return;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Known& known = sessions_[chosen[i]];
      const json::object* turn = said ? &said->at("turns").at(i).as_object() : nullptr;
      check_answer(known, turn);
    }
    if (!said) {
      for (Known& known : sessions_) check(known, known.said, /*done=*/false);
    }
  }

  // After a turn, which came to its end or to a cancel (`turn`), or was killed (null).
  void check_answer(Known& known, const json::object* turn) {
    const Options options = known.open ? *known.open : begun_[known.name];
    const Shown shown = show(known);
    Conversation before = shown.said;
    if (shown.said.size() == known.said.size() + 1) before.pop_back();
    EXPECT_TRUE(says(before, known.said)) << known.name;
    const bool has_ended = shown.said.size() > known.said.size();
    EXPECT_FALSE(has_ended && shown.open);
    if (has_ended) {
      ++tally_.turns;
      EXPECT_EQ(shown.said.back().sampled_tokens, answer_of(known.said, options)) << known.name;
    }
    if (turn != nullptr) {
      const auto end = static_cast<EndReason>(turn->at("end").to_number<int>());
      tally_.cancels += end == EndReason::kCancelled;
      EXPECT_EQ(has_ended, end != EndReason::kCancelled);
      EXPECT_EQ(shown.open, end == EndReason::kCancelled);
      EXPECT_TRUE(turn->at("exact").as_bool());
    }
    known.said = shown.said;
    known.open = shown.open ? std::optional(options) : std::nullopt;
  }

  // Said by a session of its own that shares nothing.
  std::vector<TokenId> answer_of(const Conversation& said, const Options& options) {
    const std::string name = name_ + ", cold " + std::to_string(n_cold_++);
    Session session =
        cold_.create(name, {.durability = SessionDurability::kBuffered, .salt = name});
    for (const Message& message : said) EXPECT_TRUE(session.append(message).ok());
    const Reply reply = read_turn(session.start_turn(
        {.sampling = test::sampled(options.seed), .max_tokens = options.max_tokens}));
    EXPECT_EQ(reply.reuse.from_memory + reply.reuse.from_disk, 0);
    return test::last_tokens(session);
  }

  // -- the tree --

  void mark(Known& known) {
    if (known.open) return;
    const auto marked = ask({{"do", "mark"}, {"session", known.name}, {"state", below(2) == 0}});
    check(known, known.said, marked.has_value());
    if (marked && marked->contains("event")) {
      known.marks[marked->at("event").to_number<std::uint64_t>()] = known.said;
    }
  }

  // To a mark, or to a message: the last ones are the likeliest.
  struct Place {
    std::uint64_t event = 0;
    Conversation said;
  };
  Place place_in(const Known& known) {
    if (!known.marks.empty() && below(2) == 0) {
      const auto mark = std::next(known.marks.begin(), below(known.marks.size()));
      return {mark->first, mark->second};
    }
    const std::size_t back = below(2) == 0 ? below(3) : below(known.said.size());
    const std::size_t n = known.said.size() - std::min(back, known.said.size() - 1);
    return {known.said[n - 1].event, {known.said.begin(), known.said.begin() + n}};
  }

  void rewind(Known& known) {
    if (known.open) return;
    const Place place = place_in(known);
    ask_and_check(known, {{"do", "rewind"}, {"session", known.name}, {"event", place.event}},
                  place.said);
    ++tally_.rewinds;
  }

  // The life goes on with both, with few sessions at a time.
  void fork(Known& known) {
    if (known.open) return;
    Place place = {0, known.said};
    if (below(2) == 0) place = place_in(known);
    const std::string name = known.name + "'" + std::to_string(n_forks_++);
    const bool done =
        ask({{"do", "fork"}, {"session", known.name}, {"name", name}, {"event", place.event}})
            .has_value();
    check(known, known.said, /*done=*/true);
    Known forked = {name, {}, {}, {}};
    check(forked, place.said, done);
    ++tally_.forks;
    if (forked.said.empty()) {
      EXPECT_TRUE(ask_plainly({{"do", "remove"}, {"session", name}}));
      return;
    }
    sessions_.push_back(std::move(forked));
    if (sessions_.size() > 3) {
      EXPECT_TRUE(ask_plainly({{"do", "remove"}, {"session", sessions_[0].name}}));
      sessions_.erase(sessions_.begin());
    }
  }
  bool ask_plainly(const json::object& request) { return !host_.ask(request).contains("error"); }

  // -- the store --

  void upkeep() {
    if (below(2) == 0) {
      ask({{"do", "reopen"}});
      ++tally_.reopened;
    } else {
      ask({{"do", "collect"}, {"all", below(2) == 0}, {"branches", below(4) == 0}});
      ++tally_.collected;
    }
    for (Known& known : sessions_) {
      const Shown shown = show(known);
      EXPECT_TRUE(says(shown.said, known.said) && shown.open == known.open.has_value());
    }
  }

  // -- clients --

  // As a client that keeps no tokens sends it: whole, spelled its own way, with one message edited,
  // or cut, or longer.
  void sync(Known& known) {
    if (known.open) return;
    Conversation expected = known.said;
    const std::size_t at = below(expected.size());
    switch (below(4)) {
      case 0:
        break;
      case 1:
        if (expected[at].role != Role::kUser) break;
        expected[at] = Message::user(words(5, random_()));
        break;
      case 2:
        expected.resize(at + 1);
        break;
      default:
        expected.push_back(Message::user(words(6, random_())));
    }
    json::array sent;
    for (Message message : expected) {
      message.event = 0;
      sent.push_back(rewritten(json::parse(engine::message_to_json(message)).as_object()));
    }
    ask_and_check(known, {{"do", "sync"}, {"session", known.name}, {"messages", sent}}, expected);
    ++tally_.syncs;
  }

  json::object rewritten(json::object message) {
    if (message["role"] == "assistant") {
      message.erase("reasoning_content");
      if (json::value* content = message.if_contains("content"); content && below(2) == 0) {
        if (content->is_string() && content->as_string().empty()) *content = nullptr;
      }
    } else if (message["role"] == "user" && message["content"].is_string() && below(2) == 0) {
      message["content"] =
          json::array{json::object{{"type", "text"}, {"text", message["content"]}}};
    }
    if (json::value* calls = message.if_contains("tool_calls")) {
      for (json::value& call : calls->as_array()) {
        json::object& function = call.as_object()["function"].as_object();
        if (below(2) == 0) function["arguments"] = R"({"line":1.2e1,  "pa\u0074h":"a/b"})";
      }
    }
    return message;
  }

  LifeProcess& host_;
  LiveStore& cold_;
  const std::uint32_t seed_;
  const std::string name_;
  std::mt19937 random_;
  Tally& tally_;
  bool kills_ = true;
  int n_cold_ = 0, n_forks_ = 0;
  std::vector<Known> sessions_;
  std::map<std::string, Options> begun_;  // of turns, by session
};

TEST(RandomLife, sessions_say_what_cold_ones_say) {
  const std::int64_t n_lives = setting("CAIRN_LIVES", 50);
  const auto seed = static_cast<std::uint32_t>(setting("CAIRN_LIVES_SEED", std::random_device{}()));
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  const test::TemporaryFolder folder;
  LifeProcess host(folder / "store");
  LiveStore cold;
  Tally tally;
  std::int64_t n_descriptors = 0;
  for (std::int64_t i = 0; i < n_lives && !HasFailure(); ++i) {
    const auto own = static_cast<std::uint32_t>(seed + i);
    SCOPED_TRACE("CAIRN_LIVES=1 CAIRN_LIVES_SEED=" + std::to_string(own));
    Life(host, cold, own, tally).live(10);
    const json::object measured = host.ask({{"do", "measure"}});
    if (measured.contains("error")) break;
    EXPECT_LE(measured.at("bytes").to_number<std::int64_t>(), test::kLifeQuotaBytes);
    const auto n_open = measured.at("descriptors").to_number<std::int64_t>();
    if (n_descriptors == 0) n_descriptors = n_open;
    EXPECT_LT(n_open, n_descriptors + 200);
  }
  std::printf(
      "%lld lives: %d kills, %d turns (%d beside others, %d cancelled, %d resumed), %d forks, "
      "%d rewinds, %d openings, %d collections, %d syncs\n",
      static_cast<long long>(n_lives), host.n_kills(), tally.turns, tally.together, tally.cancels,
      tally.resumed, tally.forks, tally.rewinds, tally.reopened, tally.collected, tally.syncs);
}

}  // namespace
}  // namespace cairn
