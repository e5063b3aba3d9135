// What the tests of every entry of the C API work on: a store with one session of a few messages,
// and a slot for each kind of handle that a call may make.
#ifndef CAIRN_TESTS_BINDINGS_C_WORLD_H_
#define CAIRN_TESTS_BINDINGS_C_WORLD_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "cairn/cairn.h"
#include "cairn/cairn_raw.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {

inline constexpr const char* kCheckpoint = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
inline constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
inline constexpr const char* kCall =
    R"({"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls":
        [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}]})";
inline constexpr const char* kBody =
    R"([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "go on"}])";

// Every kind of handle once; destroyed with it.
struct Handles {
  cairn_runtime* runtime = nullptr;
  cairn_model* model = nullptr;
  cairn_store* store = nullptr;
  cairn_store_reader* reader = nullptr;
  cairn_session* session = nullptr;
  cairn_turn* turn = nullptr;
  cairn_event* event = nullptr;
  cairn_buffer* buffer = nullptr;
  cairn_token_list* tokens = nullptr;
  cairn_session_list* sessions = nullptr;
  cairn_message_list* messages = nullptr;
  cairn_mark_list* marks = nullptr;
  cairn_raw_sequence* sequence = nullptr;
  cairn_error* error = nullptr;

  Handles() = default;
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() { destroy(); }

  void destroy() {
    cairn_error_destroy(&error);
    cairn_raw_sequence_destroy(&sequence);
    cairn_mark_list_destroy(&marks);
    cairn_message_list_destroy(&messages);
    cairn_session_list_destroy(&sessions);
    cairn_token_list_destroy(&tokens);
    cairn_buffer_destroy(&buffer);
    cairn_event_destroy(&event);
    cairn_turn_destroy(&turn);
    cairn_session_destroy(&session);
    cairn_store_reader_destroy(&reader);
    cairn_store_destroy(&store);
    cairn_model_destroy(&model);
    cairn_runtime_destroy(&runtime);
  }

  bool all_null() const {
    return !runtime && !model && !store && !reader && !session && !turn && !event && !buffer &&
           !tokens && !sessions && !messages && !marks && !sequence && !error;
  }
};

inline cairn_turn_options short_turn(std::int32_t max_tokens = 5) {
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  options.max_tokens = max_tokens;
  options.greedy = 1;
  return options;
}

// What a session has said and where it stands, as its host sees it.
using SessionState = std::tuple<std::int64_t, std::int64_t, std::int32_t, std::size_t>;

class World {
 public:
  World() {
    store_path = folder_ / "store";
    store_path_2 = folder_ / "second";
    export_path = folder_ / "session.export";
    open_store();
    expect_ok(cairn_session_create(model(), has.store, "s", 1, nullptr, &has.session, nullptr));
    expect_ok(cairn_session_append_system(has.session, "Hi.", CAIRN_CSTRING, nullptr, 0, nullptr));
    expect_ok(cairn_session_append_user(has.session, "hello", CAIRN_CSTRING, nullptr));
    expect_ok(cairn_session_append_json(has.session, kCall, CAIRN_CSTRING, nullptr));
  }

  // One for the whole program: opening it takes longer than most tests.
  static cairn_runtime* runtime() { return shared().runtime; }
  static cairn_model* model() { return shared().model; }

  void open_store() {
    expect_ok(cairn_store_open(runtime(), store_path.c_str(), CAIRN_CSTRING, nullptr, &has.store,
                               nullptr));
  }
  // The result of the open call, so that a turn may start.
  void answer_call() {
    expect_ok(cairn_session_append_tool_result(has.session, "c1", 2, "42", 2, nullptr));
  }
  void start_turn(std::int32_t max_tokens = 5) {
    answer_call();
    const cairn_turn_options options = short_turn(max_tokens);
    expect_ok(cairn_session_start_turn(has.session, &options, &has.turn, nullptr));
  }
  // Reads the turn up to its first event of this kind, which stays in has.event.
  void read_until(std::int32_t kind) {
    do {
      cairn_event_destroy(&has.event);
      ASSERT_EQ(cairn_turn_next(has.turn, -1, &has.event, nullptr), CAIRN_OK);
    } while (cairn_event_kind(has.event) != kind);
  }
  // How the turn ended.
  std::int32_t read_to_end() {
    read_until(CAIRN_EVENT_TURN_END);
    EXPECT_EQ(cairn_event_error(has.event), nullptr)
        << cairn_error_message(cairn_event_error(has.event));
    return cairn_event_end_reason(has.event);
  }
  void run_turn() {
    start_turn();
    read_to_end();
    cairn_event_destroy(&has.event);
    cairn_turn_destroy(&has.turn);
  }

  SessionState state() const {
    if (has.store == nullptr) return {};
    cairn_session_info info = CAIRN_SESSION_INFO_INIT;
    if (has.session != nullptr) {
      expect_ok(cairn_session_get_info(has.session, &info, nullptr));
    }
    Handles list;
    expect_ok(cairn_store_list(has.store, &list.sessions, nullptr));
    if (has.turn != nullptr) info.n_tokens = 0;  // grows while the turn runs
    return {info.n_events, info.n_tokens, info.turn_open, cairn_session_list_size(list.sessions)};
  }
  std::size_t n_messages() const {
    Handles list;
    expect_ok(cairn_session_get_messages(has.session, &list.messages, nullptr));
    return cairn_message_list_size(list.messages);
  }
  std::size_t n_sessions() const { return std::get<3>(state()); }

  // A question and its answer, whatever has happened before.
  void expect_usable() {
    if (has.session == nullptr || has.store == nullptr) return;
    cairn_turn_destroy(&has.turn);
    cairn_event_destroy(&has.event);
    expect_ok(cairn_session_append_user(has.session, "So?", CAIRN_CSTRING, nullptr));
    const cairn_turn_options options = short_turn(2);
    expect_ok(cairn_session_start_turn(has.session, &options, &has.turn, nullptr));
    read_to_end();
  }

  static void expect_ok(cairn_code code) { EXPECT_STREQ(cairn_code_name(code), "OK"); }

  Handles has;   // what calls work on
  Handles made;  // what the call under test makes
  std::string store_path, store_path_2, export_path;
  std::int64_t number = 0;  // for the case to note something

 private:
  static Handles& shared() {
    static Handles handles;
    if (handles.runtime == nullptr) {
      expect_ok(cairn_runtime_create(nullptr, &handles.runtime, nullptr));
      expect_ok(cairn_model_open(handles.runtime, kCheckpoint, CAIRN_CSTRING, nullptr,
                                 &handles.model, nullptr));
    }
    return handles;
  }

  TemporaryFolder folder_;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_BINDINGS_C_WORLD_H_
