// What the tests of sessions and turns share: one runtime and one tiny model for the program, and
// turns read to their end with their stream of events checked.
#ifndef CAIRN_TESTS_SESSION_LIVE_SESSION_H_
#define CAIRN_TESTS_SESSION_LIVE_SESSION_H_

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/session.h"
#include "engine/runtime.h"
#include "engine/utf8.h"
#include "session/session_state.h"
#include "session/store_state.h"
#include "session/turn_state.h"
#include "tests/session/run_options.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {

inline constexpr const char* kTinyA = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
inline constexpr const char* kTinyB = CAIRN_SOURCE_DIR "/tests/golden/tiny-b/model";
inline constexpr int kTinyContext = 4096;

// Opened once for the program: the model's steps are short, so a cancel has many places to fall.
// Without drafts, since how many steps a turn takes with them depends on time (turn_drafts_test).
inline const Runtime& live_runtime() {
  static const Runtime runtime = [] {
    RuntimeOptions options;
    options.compute_threads = 2;
    return *Runtime::create(options);
  }();
  return runtime;
}
inline const Model& live_model() {
  static const Model model =
      *Model::open(live_runtime(), kTinyA, {.prefill_chunk = 32, .drafts = -1});
  return model;
}

// --- Text.

// A text of about `n_words` words that follows from `seed`.
inline std::string words(int n_words, unsigned seed) {
  std::string text;
  for (int i = 0; i < n_words; ++i) {
    seed = seed * 1664525u + 1013904223u;
    text += static_cast<char>('a' + (seed >> 27) % 26);
    text += static_cast<char>('a' + (seed >> 22) % 26);
    text += ' ';
  }
  return text;
}

inline SamplingParams greedy() { return {.temperature = 0}; }
inline SamplingParams sampled(std::uint64_t seed) {
  return {.temperature = 1, .top_p = 1, .seed = seed};
}
inline SamplingParams penalised(std::uint64_t seed) {
  return {.temperature = 1,
          .top_k = 200,
          .repetition_penalty = 1.2f,
          .frequency_penalty = 0.3f,
          .presence_penalty = 0.2f,
          .penalty_window = 40,
          .seed = seed};
}

// --- Turns.

struct Reply {
  std::vector<Event> events;
  std::vector<std::string> blocks;  // the bytes of each
  std::string replayed;             // bytes of replayed events
  ReuseReport reuse;
  TurnUsage usage;
  EndReason end_reason = EndReason::kError;
  Status status;

  std::string text() const {
    std::string joined;
    for (const std::string& block : blocks) joined += block;
    return joined;
  }
};

// The stream's promises: rising numbers, nested blocks of whole characters, replayed events
// first, usage right before the end. A turn that stops early leaves its last block open.
class StreamCheck {
 public:
  void add(const Event& event, Reply& reply) {
    EXPECT_FALSE(ended_);
    EXPECT_TRUE(!started_ || event.sequence > last_);
    last_ = event.sequence;
    EXPECT_EQ(event.kind == EventKind::kTurnEnd, has_usage_);
    switch (event.kind) {
      case EventKind::kTurnStarted:
        EXPECT_FALSE(started_);
        started_ = true;
        reply.reuse = event.reuse;
        check_sum(event.reuse);
        break;
      case EventKind::kPrefillProgress:
        EXPECT_TRUE(started_ && !has_new_bytes_);
        EXPECT_GE(event.reused, 0);
        EXPECT_GE(event.done, event.reused);
        EXPECT_LE(event.done, event.total);
        break;
      case EventKind::kDurable:
        EXPECT_GT(event.done, 0);
        break;
      case EventKind::kBlockBegin:
      case EventKind::kBlockBytes:
      case EventKind::kBlockEnd:
        add_to_block(event, reply);
        break;
      case EventKind::kUsage:
        has_usage_ = true;
        reply.usage = event.usage;
        break;
      case EventKind::kTurnEnd:
        ended_ = true;
        reply.end_reason = event.end_reason;
        reply.status = event.status;
        EXPECT_TRUE(!open_block_ || event.end_reason >= EndReason::kCancelled);
        EXPECT_EQ(event.status.ok(), event.end_reason != EndReason::kError);
    }
  }

 private:
  static void check_sum(const ReuseReport& reuse) {
    EXPECT_EQ(reuse.prompt_tokens, reuse.from_memory + reuse.from_disk + reuse.prefilled);
    EXPECT_GE(reuse.prefilled, 0);
    EXPECT_GE(reuse.replayed, 0);
    EXPECT_LE(reuse.replayed, reuse.from_memory + reuse.from_disk);
    EXPECT_FALSE(reuse.detail.empty());
  }

  void add_to_block(const Event& event, Reply& reply) {
    EXPECT_TRUE(started_);
    EXPECT_FALSE(event.replayed && has_new_bytes_) << "a replayed event after one that is not";
    has_new_bytes_ = has_new_bytes_ || !event.replayed;
    if (event.kind == EventKind::kBlockBegin) {
      EXPECT_FALSE(open_block_);
      EXPECT_EQ(event.block, static_cast<std::int32_t>(reply.blocks.size()));
      reply.blocks.emplace_back();
      open_block_ = true;
      kind_ = event.block_kind;
      return;
    }
    ASSERT_TRUE(open_block_);
    EXPECT_EQ(event.block, static_cast<std::int32_t>(reply.blocks.size()) - 1);
    EXPECT_EQ(event.block_kind, kind_);
    if (event.kind == EventKind::kBlockEnd) {
      open_block_ = false;
      return;
    }
    EXPECT_FALSE(event.bytes.empty());
    EXPECT_EQ(engine::valid_utf8_prefix(event.bytes), event.bytes.size());
    reply.blocks.back() += event.bytes;
    if (event.replayed) reply.replayed += event.bytes;
  }

  std::uint64_t last_ = 0;
  bool started_ = false, has_usage_ = false, ended_ = false, open_block_ = false;
  bool has_new_bytes_ = false;
  BlockKind kind_ = BlockKind::kText;
};

// Reads the turn to its end.
inline Reply read_turn(Turn& turn) {
  Reply reply;
  StreamCheck check;
  while (!testing::Test::HasFatalFailure()) {
    const Result<Event> event = turn.next();
    if (!event.ok()) {
      EXPECT_EQ(event.status().code(), StatusCode::kNotFound) << event.status().to_string();
      break;
    }
    check.add(*event, reply);
    reply.events.push_back(*event);
  }
  EXPECT_TRUE(!reply.events.empty() && reply.events.back().kind == EventKind::kTurnEnd);
  return reply;
}

inline Reply read_turn(Result<Turn> turn) {
  EXPECT_TRUE(turn.ok()) << turn.status().to_string();
  return turn.ok() ? read_turn(*turn) : Reply{};
}

// Keeps the strand from running anything while it lives.
class HeldStrand {
 public:
  explicit HeldStrand(const Model& model) {
    std::promise<void> reached;
    model.state()->runtime()->post([&reached, released = release_.get_future().share()] {
      reached.set_value();
      released.wait();
    });
    reached.get_future().wait();
  }
  HeldStrand(const HeldStrand&) = delete;
  HeldStrand& operator=(const HeldStrand&) = delete;
  ~HeldStrand() { release_.set_value(); }

 private:
  std::promise<void> release_;
};

// Starts a turn with `start` and cancels it after exactly `n_steps` steps: the strand is first in,
// first out, so a task that posts itself again runs once between any two steps of the turn.
inline Result<Turn> start_and_cancel(const Model& model, int n_steps,
                                     const std::function<Result<Turn>()>& start) {
  struct Counter : std::enable_shared_from_this<Counter> {
    std::shared_ptr<engine::RuntimeState> runtime;
    std::weak_ptr<session::TurnState> turn;
    int left = 0;
    void run() {
      if (left-- == 0) {
        if (const auto state = turn.lock()) state->cancel();
      } else {
        runtime->post([self = shared_from_this()] { self->run(); });
      }
    }
  };
  auto counter = std::make_shared<Counter>();
  const HeldStrand held(model);
  Result<Turn> turn = start();
  if (!turn.ok()) return turn;
  counter->runtime = model.state()->runtime();
  counter->turn = turn->state();
  counter->left = n_steps;
  if (n_steps == 0) {
    turn->cancel();
  } else {
    counter->left = n_steps - 1;  // the first run is behind the first step
    counter->runtime->post([counter] { counter->run(); });
  }
  return turn;
}

// --- Sessions.

// A store in a folder of its own that can be closed and opened again, with every session it made.
class LiveStore {
 public:
  explicit LiveStore(const Model& model = live_model(), StoreOptions options = run_options())
      : model_(model), options_(std::move(options)) {
    open();
  }

  void open() {
    Result<Store> store = Store::open(live_runtime(), folder_ / "store", options_);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_.emplace(std::move(*store));
  }
  // The caller has dropped its sessions and turns.
  void reopen() {
    close();
    open();
  }
  void close() { store_.reset(); }

  Store& store() { return *store_; }
  std::string path() const { return folder_ / "store"; }
  session::SessionStore& inside() { return store_->state()->store(); }

  Session create(const std::string& name, const SessionOptions& options = {}) {
    Result<Session> session = Session::create(model_, *store_, name, options);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return std::move(*session);
  }
  Session open_session(const std::string& name) {
    Result<Session> session = Session::open(model_, *store_, name);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return std::move(*session);
  }
  session::SessionId id_of(const std::string& name) { return inside().find_by_name(name)->id; }
  // As if no exact state of the session had ever been stored.
  void lose_tail(const std::string& name) {
    const session::SessionId id = id_of(name);
    const auto found = inside().find_tails(id);
    ASSERT_TRUE(found.ok());
    for (const session::TailRecord& tail : found->tails) {
      EXPECT_TRUE(inside().drop_tail(id, tail.slot).ok());
    }
    EXPECT_TRUE(inside().find_tails(id)->tails.empty());
  }

 private:
  TemporaryFolder folder_;
  Model model_;
  StoreOptions options_;
  std::optional<Store> store_;
};

inline void say(Session& session, const std::string& text) {
  const Status status = session.append(Message::user(text));
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// Appends, answers, reads.
inline Reply ask(Session& session, const std::string& text, const TurnOptions& options) {
  say(session, text);
  return read_turn(session.start_turn(options));
}

inline std::vector<TokenId> last_tokens(const Session& session) {
  const auto messages = session.messages();
  if (!messages.ok() || messages->empty()) return {};
  return messages->back().sampled_tokens;
}

inline std::string text_of(const Message& message) {
  std::string text;
  for (const ContentBlock& block : message.content) text += block.text;
  return text;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_LIVE_SESSION_H_
