// The table of entry_calls.h, in the order of cairn.h.
#include "tests/bindings/entry_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::test {
namespace {

using W = World;
using E = cairn_error;

constexpr std::size_t kText = CAIRN_CSTRING;

// A function that cannot fail: what it says is noted, and must be right without any memory.
template <class Value>
cairn_code noted(World& world, Value value) {
  world.number = static_cast<std::int64_t>(value);
  return CAIRN_OK;
}
cairn_code done() { return CAIRN_OK; }

auto says(std::int64_t value) {
  return [value](World& w) { EXPECT_EQ(w.number, value); };
}

template <class Handle>
EntryCall destroys(const char* name, void (*function)(Handle**), Handle* Handles::*which,
                   std::function<void(World&)> prepare) {
  const auto call = [=](W& w, E**) {
    function(&(w.has.*which));
    return noted(w, w.has.*which == nullptr);
  };
  return {name, call, std::move(prepare), says(1)};
}

template <class Options>
EntryCall initialises(const char* name, void (*function)(Options*)) {
  const auto call = [=](W& w, E**) {
    Options options;
    function(&options);
    return noted(w, options.struct_size);
  };
  return {name, call, nullptr, says(sizeof(Options))};
}

// ---- What a call needs

void an_error(World& w) {
  EXPECT_EQ(cairn_model_open(W::runtime(), "/nowhere", kText, nullptr, &w.has.model, &w.has.error),
            CAIRN_NOT_FOUND);
}
void a_buffer(World& w) {
  W::expect_ok(cairn_model_render(W::model(), kBody, kText, 0, 0, &w.has.buffer, nullptr, nullptr));
}
void tokens(World& w) {
  W::expect_ok(cairn_model_tokenize(W::model(), "ab", 2, &w.has.tokens, nullptr));
}
void labels(World& w) {
  const char* key = "key";
  const char* value = "value";
  W::expect_ok(cairn_store_set_labels(w.has.store, "s", 1, &key, &value, 1, nullptr));
}
void sessions(World& w) {
  labels(w);
  W::expect_ok(cairn_store_list(w.has.store, &w.has.sessions, nullptr));
}
void messages(World& w) {
  W::expect_ok(cairn_session_get_messages(w.has.session, &w.has.messages, nullptr));
}
void a_mark(World& w) {
  std::uint64_t event = 0;
  W::expect_ok(cairn_session_mark(w.has.session, "here", kText, 0, &event, nullptr));
  w.number = static_cast<std::int64_t>(event);
}
void marks(World& w) {
  a_mark(w);
  W::expect_ok(cairn_session_get_marks(w.has.session, &w.has.marks, nullptr));
}
void a_reader(World& w) {
  W::expect_ok(
      cairn_store_reader_open(w.store_path.c_str(), kText, nullptr, &w.has.reader, nullptr));
}
void an_exported_session(World& w) {
  w.run_turn();
  a_reader(w);
  W::expect_ok(cairn_store_reader_export_session(w.has.reader, "s", 1, w.export_path.c_str(), kText,
                                                 nullptr));
}
void no_session(World& w) { cairn_session_destroy(&w.has.session); }
void no_store(World& w) {
  no_session(w);
  cairn_store_destroy(&w.has.store);
}
void a_finished_turn(World& w) { w.run_turn(); }
void an_answered_call(World& w) { w.answer_call(); }
void a_running_turn(World& w) { w.start_turn(4000); }
void a_stopped_turn(World& w) {
  w.start_turn(4000);
  w.read_until(CAIRN_EVENT_BLOCK_BYTES);
  cairn_event_destroy(&w.has.event);
  cairn_turn_destroy(&w.has.turn);
}
void a_detached_turn(World& w) {
  w.start_turn();
  cairn_turn_detach(&w.has.turn);
}
template <int kind>
void an_event(World& w) {
  w.start_turn();
  w.read_until(kind);
}
void a_sequence(World& w) {
  const std::int32_t ids[] = {5, 6, 7};
  W::expect_ok(cairn_raw_sequence_create(W::model(), &w.has.sequence, nullptr));
  W::expect_ok(cairn_raw_sequence_append(w.has.sequence, ids, 3, nullptr));
}

// ---- What it must have done

template <int more>
void has_more_messages(World& w) {
  EXPECT_EQ(w.n_messages(), 3u + more);
}
void has_second_session(World& w) { EXPECT_EQ(w.n_sessions(), 2u); }
void is_answered(World& w) {
  w.has.turn = std::exchange(w.made.turn, nullptr);
  EXPECT_EQ(w.read_to_end(), CAIRN_END_LENGTH);
}
void is_cancelled(World& w) { EXPECT_EQ(w.read_to_end(), CAIRN_END_CANCELLED); }
void opens_again(World& w) { w.open_store(); }
void session_opens_again(World& w) {
  W::expect_ok(cairn_session_open(W::model(), w.has.store, "s", 1, &w.has.session, nullptr));
}

std::vector<EntryCall> version_error_and_result_calls() {
  return {
      {"cairn_version", [](W& w, E**) { return noted(w, cairn_version()[0]); }, nullptr, says('0')},
      {"cairn_abi_version", [](W& w, E**) { return noted(w, cairn_abi_version()); }, nullptr,
       says(CAIRN_ABI_VERSION)},
      {"cairn_has_feature", [](W& w, E**) { return noted(w, cairn_has_feature("tools")); }, nullptr,
       says(1)},
      {"cairn_code_name", [](W& w, E**) { return noted(w, cairn_code_name(CAIRN_BUSY)[0]); },
       nullptr, says('B')},
      {"cairn_error_code", [](W& w, E**) { return noted(w, cairn_error_code(w.has.error)); },
       an_error, says(CAIRN_NOT_FOUND)},
      {"cairn_error_name", [](W& w, E**) { return noted(w, cairn_error_name(w.has.error)[0]); },
       an_error, says('N')},
      {"cairn_error_message",
       [](W& w, E**) {
         return noted(w, std::strstr(cairn_error_message(w.has.error), "/nowhere") != nullptr);
       },
       an_error, says(1)},
      {"cairn_error_hint",
       [](W& w, E**) { return noted(w, cairn_error_hint(w.has.error) != nullptr); }, an_error,
       says(1)},
      destroys("cairn_error_destroy", cairn_error_destroy, &Handles::error, an_error),
      {"cairn_buffer_bytes",
       [](W& w, E**) {
         std::size_t n_bytes = 0;
         const char* bytes = cairn_buffer_bytes(w.has.buffer, &n_bytes);
         return noted(w, n_bytes > 0 && bytes[n_bytes] == '\0');
       },
       a_buffer, says(1)},
      destroys("cairn_buffer_destroy", cairn_buffer_destroy, &Handles::buffer, a_buffer),
      {"cairn_token_list_ids",
       [](W& w, E**) {
         std::size_t n_tokens = 0;
         return noted(w, cairn_token_list_ids(w.has.tokens, &n_tokens) != nullptr && n_tokens > 0);
       },
       tokens, says(1)},
      destroys("cairn_token_list_destroy", cairn_token_list_destroy, &Handles::tokens, tokens),
  };
}

std::vector<EntryCall> runtime_and_model_calls() {
  return {
      initialises("cairn_runtime_options_init", cairn_runtime_options_init),
      {"cairn_runtime_create",
       [](W& w, E** error) {
         cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
         options.compute_threads = 2;
         options.log = [](void*, std::int32_t, const char*, std::size_t) {};
         options.log_user = &w.number;
         options.log_finalize = [](void* user) { ++*static_cast<std::int64_t*>(user); };
         return cairn_runtime_create(&options, &w.made.runtime, error);
       },
       nullptr,
       [](W& w) {
         EXPECT_EQ(w.number, 0);  // of all that failed, none has taken the user's data
         cairn_runtime_destroy(&w.made.runtime);
         EXPECT_EQ(w.number, 1);
       }},
      {"cairn_runtime_destroy",
       [](W& w, E**) {
         cairn_runtime_destroy(&w.has.runtime);
         return noted(w, w.has.runtime == nullptr);
       },
       [](W& w) { W::expect_ok(cairn_runtime_create(nullptr, &w.has.runtime, nullptr)); }, says(1)},
      initialises("cairn_model_options_init", cairn_model_options_init),
      {"cairn_model_open",
       [](W& w, E** error) {
         return cairn_model_open(W::runtime(), kCheckpoint, kText, nullptr, &w.made.model, error);
       }},
      {"cairn_model_get_info",
       [](W& w, E** error) {
         cairn_model_info info = CAIRN_MODEL_INFO_INIT;
         const cairn_code code = cairn_model_get_info(W::model(), &info, error);
         w.number = info.n_layers;
         return code;
       },
       nullptr, [](W& w) { EXPECT_GT(w.number, 0); }},
      {"cairn_model_tokenize",
       [](W& w, E** error) {
         return cairn_model_tokenize(W::model(), "some text", kText, &w.made.tokens, error);
       }},
      {"cairn_model_detokenize",
       [](W& w, E** error) {
         const std::int32_t ids[] = {70, 71, 72};
         return cairn_model_detokenize(W::model(), ids, 3, &w.made.buffer, error);
       }},
      {"cairn_model_render",
       [](W& w, E** error) {
         return cairn_model_render(W::model(), kBody, kText, 1, 80, &w.made.buffer, &w.number,
                                   error);
       },
       nullptr, [](W& w) { EXPECT_GT(w.number, 3); }},
      {"cairn_model_destroy",
       [](W& w, E**) {
         cairn_model_destroy(&w.has.model);
         return noted(w, w.has.model == nullptr);
       },
       [](W& w) {
         W::expect_ok(
             cairn_model_open(W::runtime(), kCheckpoint, kText, nullptr, &w.has.model, nullptr));
       },
       says(1)},
  };
}

std::vector<EntryCall> store_calls() {
  return {
      initialises("cairn_store_options_init", cairn_store_options_init),
      {"cairn_store_open",
       [](W& w, E** error) {
         return cairn_store_open(W::runtime(), w.store_path.c_str(), kText, nullptr, &w.made.store,
                                 error);
       },
       no_store,
       [](W& w) {
         w.has.store = std::exchange(w.made.store, nullptr);
         session_opens_again(w);
       }},
      {"cairn_store_list",
       [](W& w, E** error) { return cairn_store_list(w.has.store, &w.made.sessions, error); },
       labels},
      {"cairn_store_get_stats",
       [](W& w, E** error) {
         cairn_store_stats stats = CAIRN_STORE_STATS_INIT;
         const cairn_code code = cairn_store_get_stats(w.has.store, &stats, error);
         w.number = stats.n_sessions;
         return code;
       },
       nullptr, says(1)},
      {"cairn_store_count_misses",
       [](W& w, E** error) {
         return cairn_store_count_misses(w.has.store, CAIRN_MISS_NEW_TOKENS, &w.number, error);
       },
       a_finished_turn},
      {"cairn_store_remove",
       [](W& w, E** error) { return cairn_store_remove(w.has.store, "s", 1, error); },
       [](W& w) {
         w.run_turn();
         no_session(w);
       },
       [](W& w) {
         Handles left;
         W::expect_ok(cairn_store_list(w.has.store, &left.sessions, nullptr));
         EXPECT_EQ(cairn_session_list_size(left.sessions), 0u);
         W::expect_ok(cairn_session_create(W::model(), w.has.store, "s", 1, nullptr, &w.has.session,
                                           nullptr));
       },
       false, true},
      {"cairn_store_rename",
       [](W& w, E** error) {
         return cairn_store_rename(w.has.store, "s", 1, "renamed", kText, error);
       },
       nullptr,
       [](W& w) {
         no_session(w);
         W::expect_ok(cairn_session_open(W::model(), w.has.store, "renamed", kText, &w.has.session,
                                         nullptr));
       }},
      {"cairn_store_set_labels",
       [](W& w, E** error) {
         const char* keys[] = {"a", "b"};
         const char* values[] = {"1", "2"};
         return cairn_store_set_labels(w.has.store, "s", 1, keys, values, 2, error);
       },
       nullptr,
       [](W& w) {
         cairn_session_info info = CAIRN_SESSION_INFO_INIT;
         W::expect_ok(cairn_session_get_info(w.has.session, &info, nullptr));
         EXPECT_EQ(info.n_labels, 2u);
       }},
      initialises("cairn_collect_options_init", cairn_collect_options_init),
      {"cairn_store_collect",
       [](W& w, E** error) {
         cairn_collect_options options = CAIRN_COLLECT_OPTIONS_INIT;
         cairn_collect_report report = CAIRN_COLLECT_REPORT_INIT;
         options.target_bytes = 1;
         return cairn_store_collect(w.has.store, &options, &report, error);
       },
       a_finished_turn},
      {"cairn_store_import_session",
       [](W& w, E** error) {
         return cairn_store_import_session(w.has.store, w.export_path.c_str(), kText, "second",
                                           kText, error);
       },
       an_exported_session, has_second_session, false, true},
      {"cairn_store_destroy",
       [](W& w, E**) {
         cairn_store_destroy(&w.has.store);
         return done();
       },
       [](W& w) {
         w.run_turn();
         no_session(w);
       },
       [](W& w) {
         opens_again(w);
         session_opens_again(w);
       }},
      {"cairn_session_list_size",
       [](W& w, E**) { return noted(w, cairn_session_list_size(w.has.sessions)); }, sessions,
       says(1)},
      {"cairn_session_list_get",
       [](W& w, E** error) {
         cairn_session_info info = CAIRN_SESSION_INFO_INIT;
         const cairn_code code = cairn_session_list_get(w.has.sessions, 0, &info, error);
         w.number = code == CAIRN_OK ? info.name[0] : 0;
         return code;
       },
       sessions, says('s')},
      {"cairn_session_list_get_label",
       [](W& w, E** error) {
         const char* key = nullptr;
         const char* value = nullptr;
         const cairn_code code =
             cairn_session_list_get_label(w.has.sessions, 0, 0, &key, &value, error);
         w.number = code == CAIRN_OK ? value[0] : 0;
         return code;
       },
       sessions, says('v')},
      destroys("cairn_session_list_destroy", cairn_session_list_destroy, &Handles::sessions,
               sessions),
  };
}

std::vector<EntryCall> reader_calls() {
  return {
      {"cairn_store_reader_open",
       [](W& w, E** error) {
         return cairn_store_reader_open(w.store_path.c_str(), kText, nullptr, &w.made.reader,
                                        error);
       },
       a_finished_turn},
      {"cairn_store_reader_list",
       [](W& w, E** error) {
         return cairn_store_reader_list(w.has.reader, &w.made.sessions, error);
       },
       a_reader},
      {"cairn_store_reader_verify",
       [](W& w, E** error) {
         cairn_verify_report report = CAIRN_VERIFY_REPORT_INIT;
         const cairn_code code =
             cairn_store_reader_verify(w.has.reader, &report, &w.made.buffer, error);
         w.number = report.n_problems;
         return code;
       },
       [](W& w) {
         w.run_turn();
         a_reader(w);
       },
       says(0)},
      {"cairn_store_reader_export_session",
       [](W& w, E** error) {
         return cairn_store_reader_export_session(w.has.reader, "s", 1, w.export_path.c_str(),
                                                  kText, error);
       },
       [](W& w) {
         w.run_turn();
         a_reader(w);
       },
       [](W& w) {
         W::expect_ok(cairn_store_import_session(w.has.store, w.export_path.c_str(), kText,
                                                 "second", kText, nullptr));
       }},
      destroys("cairn_store_reader_destroy", cairn_store_reader_destroy, &Handles::reader,
               a_reader),
  };
}

std::vector<EntryCall> session_opening_calls() {
  const auto take_session = [](W& w) { w.has.session = std::exchange(w.made.session, nullptr); };
  return {
      initialises("cairn_session_options_init", cairn_session_options_init),
      initialises("cairn_open_options_init", cairn_open_options_init),
      initialises("cairn_turn_options_init", cairn_turn_options_init),
      {"cairn_session_create",
       [](W& w, E** error) {
         cairn_session_options options = CAIRN_SESSION_OPTIONS_INIT;
         options.salt = "salt";
         options.salt_bytes = 4;
         return cairn_session_create(W::model(), w.has.store, "second", kText, &options,
                                     &w.made.session, error);
       },
       nullptr, has_second_session, false, true},
      {"cairn_session_open",
       [](W& w, E** error) {
         return cairn_session_open(W::model(), w.has.store, "s", 1, &w.made.session, error);
       },
       no_session, take_session},
      {"cairn_session_open_with_options",
       [](W& w, E** error) {
         const cairn_open_options options = CAIRN_OPEN_OPTIONS_INIT;
         return cairn_session_open_with_options(W::model(), w.has.store, "s", 1, &options,
                                                &w.made.session, error);
       },
       no_session, take_session},
      {"cairn_session_open_or_create",
       [](W& w, E** error) {
         return cairn_session_open_or_create(W::model(), w.has.store, "second", kText, nullptr,
                                             &w.made.session, error);
       },
       nullptr, has_second_session, false, true},
      {"cairn_session_destroy",
       [](W& w, E**) {
         cairn_session_destroy(&w.has.session);
         return done();
       },
       a_finished_turn, session_opens_again},
  };
}

std::vector<EntryCall> message_calls() {
  return {
      {"cairn_session_append_system",
       [](W& w, E** error) {
         return cairn_session_append_system(w.has.session, "Be kind.", kText, kTools, kText, error);
       },
       an_answered_call, has_more_messages<2>},
      {"cairn_session_append_user",
       [](W& w, E** error) {
         return cairn_session_append_user(w.has.session, "A question.", kText, error);
       },
       an_answered_call, has_more_messages<2>},
      {"cairn_session_append_tool_result",
       [](W& w, E** error) {
         return cairn_session_append_tool_result(w.has.session, "c1", 2, "42", 2, error);
       },
       nullptr, has_more_messages<1>},
      {"cairn_session_append_json",
       [](W& w, E** error) {
         return cairn_session_append_json(
             w.has.session, R"({"role": "tool", "tool_call_id": "c1", "content": "42"})", kText,
             error);
       },
       nullptr, has_more_messages<1>},
      {"cairn_session_count_tokens",
       [](W& w, E** error) {
         return cairn_session_count_tokens(w.has.session, kBody, kText, nullptr, &w.number, error);
       },
       an_answered_call, [](W& w) { EXPECT_GT(w.number, 3); }},
      {"cairn_session_get_messages",
       [](W& w, E** error) {
         return cairn_session_get_messages(w.has.session, &w.made.messages, error);
       }},
      {"cairn_session_sync",
       [](W& w, E** error) {
         cairn_sync_options options = CAIRN_SYNC_OPTIONS_INIT;
         cairn_sync sync = CAIRN_SYNC_INIT;
         options.volatile_lines = "Date:";
         options.volatile_lines_bytes = 5;
         return cairn_session_sync(w.has.session, kBody, kText, &options, &sync, &w.made.buffer,
                                   error);
       },
       a_finished_turn, has_more_messages<0>, false, true},
      {"cairn_session_plan",
       [](W& w, E** error) {
         cairn_plan plan = CAIRN_PLAN_INIT;
         const cairn_code code = cairn_session_plan(w.has.session, kBody, kText, nullptr, nullptr,
                                                    &plan, &w.made.buffer, error);
         w.number = plan.prompt_tokens;
         return code;
       },
       a_finished_turn, [](W& w) { EXPECT_GT(w.number, 3); }},
      {"cairn_session_get_info",
       [](W& w, E** error) {
         cairn_session_info info = CAIRN_SESSION_INFO_INIT;
         const cairn_code code = cairn_session_get_info(w.has.session, &info, error);
         w.number = code == CAIRN_OK ? info.name[0] : 0;
         return code;
       },
       nullptr, says('s')},
      {"cairn_message_list_size",
       [](W& w, E**) { return noted(w, cairn_message_list_size(w.has.messages)); }, messages,
       says(3)},
      {"cairn_message_list_get",
       [](W& w, E** error) {
         cairn_message message = CAIRN_MESSAGE_INIT;
         const cairn_code code = cairn_message_list_get(w.has.messages, 1, &message, error);
         w.number = message.role;
         return code;
       },
       messages, says(CAIRN_ROLE_USER)},
      {"cairn_message_list_get_tool_call",
       [](W& w, E** error) {
         cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
         const cairn_code code =
             cairn_message_list_get_tool_call(w.has.messages, 2, 0, &call, error);
         w.number = code == CAIRN_OK ? call.id[0] : 0;
         return code;
       },
       messages, says('c')},
      destroys("cairn_message_list_destroy", cairn_message_list_destroy, &Handles::messages,
               messages),
  };
}

std::vector<EntryCall> tree_calls() {
  return {
      {"cairn_session_mark",
       [](W& w, E** error) {
         std::uint64_t event = 0;
         const cairn_code code = cairn_session_mark(w.has.session, "here", kText, 1, &event, error);
         w.number = static_cast<std::int64_t>(event);
         return code;
       },
       a_finished_turn,
       [](W& w) {
         Handles list;
         W::expect_ok(cairn_session_get_marks(w.has.session, &list.marks, nullptr));
         EXPECT_EQ(cairn_mark_list_size(list.marks), 1u);
       }},
      {"cairn_session_get_marks",
       [](W& w, E** error) { return cairn_session_get_marks(w.has.session, &w.made.marks, error); },
       a_mark},
      {"cairn_mark_list_size",
       [](W& w, E**) { return noted(w, cairn_mark_list_size(w.has.marks)); }, marks, says(1)},
      {"cairn_mark_list_get",
       [](W& w, E** error) {
         cairn_mark mark = CAIRN_MARK_INIT;
         const cairn_code code = cairn_mark_list_get(w.has.marks, 0, &mark, error);
         w.number = code == CAIRN_OK ? mark.name[0] : 0;
         return code;
       },
       marks, says('h')},
      destroys("cairn_mark_list_destroy", cairn_mark_list_destroy, &Handles::marks, marks),
      {"cairn_session_rewind",
       [](W& w, E** error) {
         return cairn_session_rewind(w.has.session, static_cast<std::uint64_t>(w.number), error);
       },
       [](W& w) {
         a_mark(w);
         w.run_turn();
       },
       has_more_messages<0>},
      {"cairn_session_fork",
       [](W& w, E** error) {
         return cairn_session_fork(w.has.session, 0, "second", kText, &w.made.session, error);
       },
       a_finished_turn, has_second_session, false, true},
  };
}

std::vector<EntryCall> turn_calls() {
  return {
      {"cairn_session_start_turn",
       [](W& w, E** error) {
         const char* stop[] = {"a stop string that the model does not say"};
         cairn_turn_options options = short_turn();
         options.stop = stop;
         options.n_stop = 1;
         return cairn_session_start_turn(w.has.session, &options, &w.made.turn, error);
       },
       an_answered_call, is_answered, false, true},
      {"cairn_session_resume_turn",
       [](W& w, E** error) {
         return cairn_session_resume_turn(w.has.session, &w.made.turn, error);
       },
       a_stopped_turn},
      {"cairn_session_attach_turn",
       [](W& w, E** error) {
         return cairn_session_attach_turn(w.has.session, 0, &w.made.turn, error);
       },
       a_detached_turn, is_answered, true},
      {"cairn_turn_next",
       [](W& w, E** error) { return cairn_turn_next(w.has.turn, -1, &w.made.event, error); },
       a_running_turn,
       [](W& w) { EXPECT_EQ(cairn_event_kind(w.made.event), CAIRN_EVENT_TURN_STARTED); }, true},
      {"cairn_turn_cancel",
       [](W& w, E**) {
         cairn_turn_cancel(w.has.turn);
         return done();
       },
       a_running_turn, is_cancelled, true},
      {"cairn_turn_end_thinking",
       [](W& w, E** error) { return cairn_turn_end_thinking(w.has.turn, error); }, a_running_turn,
       nullptr, true, false, CAIRN_UNSUPPORTED},
      {"cairn_turn_acknowledge",
       [](W& w, E**) {
         cairn_turn_acknowledge(w.has.turn, 1);
         return done();
       },
       a_running_turn, nullptr, true},
      {"cairn_turn_detach",
       [](W& w, E**) {
         cairn_turn_detach(&w.has.turn);
         return noted(w, w.has.turn == nullptr);
       },
       [](W& w) { w.start_turn(); },
       [](W& w) {
         EXPECT_EQ(w.number, 1);
         W::expect_ok(cairn_session_attach_turn(w.has.session, 0, &w.has.turn, nullptr));
         EXPECT_EQ(w.read_to_end(), CAIRN_END_LENGTH);
       },
       true},
      {"cairn_turn_wake_fd",
       [](W& w, E**) { return noted(w, cairn_turn_wake_fd(w.has.turn) >= 0); }, a_running_turn,
       says(1), true},
      {"cairn_turn_destroy",
       [](W& w, E**) {
         cairn_turn_destroy(&w.has.turn);
         return noted(w, w.has.turn == nullptr);
       },
       a_running_turn,
       [](W& w) {
         EXPECT_EQ(w.number, 1);
         W::expect_ok(cairn_session_resume_turn(w.has.session, &w.has.turn, nullptr));
       },
       true},
  };
}

std::vector<EntryCall> event_calls() {
  return {
      {"cairn_event_kind", [](W& w, E**) { return noted(w, cairn_event_kind(w.has.event)); },
       an_event<CAIRN_EVENT_USAGE>, says(CAIRN_EVENT_USAGE), true},
      {"cairn_event_sequence",
       [](W& w, E**) { return noted(w, cairn_event_sequence(w.has.event) > 0); },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, says(1), true},
      {"cairn_event_replayed",
       [](W& w, E**) { return noted(w, cairn_event_replayed(w.has.event)); },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, says(0), true},
      {"cairn_event_block", [](W& w, E**) { return noted(w, cairn_event_block(w.has.event)); },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, says(0), true},
      {"cairn_event_block_kind",
       [](W& w, E**) { return noted(w, cairn_event_block_kind(w.has.event)); },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, says(CAIRN_BLOCK_TEXT), true},
      {"cairn_event_end_reason",
       [](W& w, E**) { return noted(w, cairn_event_end_reason(w.has.event)); },
       an_event<CAIRN_EVENT_TURN_END>, says(CAIRN_END_LENGTH), true},
      {"cairn_event_bytes",
       [](W& w, E**) {
         std::size_t n_bytes = 0;
         return noted(w, cairn_event_bytes(w.has.event, &n_bytes) != nullptr && n_bytes > 0);
       },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, says(1), true},
      {"cairn_event_get_progress",
       [](W& w, E**) {
         std::int64_t done = 0, total = 0;
         cairn_event_get_progress(w.has.event, &done, &total);
         return noted(w, total > 0);
       },
       an_event<CAIRN_EVENT_PREFILL_PROGRESS>, says(1), true},
      {"cairn_event_get_estimate",
       [](W& w, E**) {
         double remaining = -2;
         cairn_event_get_estimate(w.has.event, nullptr, &remaining);
         return noted(w, remaining >= -1);
       },
       an_event<CAIRN_EVENT_PREFILL_PROGRESS>, says(1), true},
      {"cairn_event_get_tool_call",
       [](W& w, E** error) {
         cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
         return cairn_event_get_tool_call(w.has.event, &call, error);
       },
       an_event<CAIRN_EVENT_BLOCK_BYTES>, nullptr, true},
      {"cairn_event_get_reuse",
       [](W& w, E** error) {
         cairn_reuse reuse = CAIRN_REUSE_INIT;
         const cairn_code code = cairn_event_get_reuse(w.has.event, &reuse, error);
         w.number = reuse.prompt_tokens;
         return code;
       },
       an_event<CAIRN_EVENT_TURN_STARTED>, [](W& w) { EXPECT_GT(w.number, 3); }, true},
      {"cairn_event_get_usage",
       [](W& w, E** error) {
         cairn_usage usage = CAIRN_USAGE_INIT;
         const cairn_code code = cairn_event_get_usage(w.has.event, &usage, error);
         w.number = usage.output_tokens;
         return code;
       },
       an_event<CAIRN_EVENT_USAGE>, says(5), true},
      {"cairn_event_error",
       [](W& w, E**) { return noted(w, cairn_event_error(w.has.event) == nullptr); },
       an_event<CAIRN_EVENT_TURN_END>, says(1), true},
      {"cairn_event_destroy",
       [](W& w, E**) {
         cairn_event_destroy(&w.has.event);
         return noted(w, w.has.event == nullptr);
       },
       an_event<CAIRN_EVENT_USAGE>, says(1), true},
  };
}

std::vector<EntryCall> raw_calls() {
  return {
      {"cairn_raw_sequence_create",
       [](W& w, E** error) {
         return cairn_raw_sequence_create(W::model(), &w.made.sequence, error);
       }},
      {"cairn_raw_sequence_append",
       [](W& w, E** error) {
         const std::int32_t ids[] = {8, 9};
         return cairn_raw_sequence_append(w.has.sequence, ids, 2, error);
       },
       a_sequence, [](W& w) { EXPECT_EQ(cairn_raw_sequence_position(w.has.sequence), 5); }},
      {"cairn_raw_sequence_cancel",
       [](W& w, E**) {
         cairn_raw_sequence_cancel(w.has.sequence);
         return done();
       },
       a_sequence},
      {"cairn_raw_sequence_position",
       [](W& w, E**) { return noted(w, cairn_raw_sequence_position(w.has.sequence)); }, a_sequence,
       says(3)},
      {"cairn_raw_sequence_logits",
       [](W& w, E** error) {
         static float logits[1 << 17];
         return cairn_raw_sequence_logits(w.has.sequence, logits, 1 << 17, error);
       },
       a_sequence},
      destroys("cairn_raw_sequence_destroy", cairn_raw_sequence_destroy, &Handles::sequence,
               a_sequence),
  };
}

}  // namespace

const std::vector<EntryCall>& entry_calls() {
  static const std::vector<EntryCall> all = [] {
    std::vector<EntryCall> calls;
    for (const auto& part :
         {version_error_and_result_calls(), runtime_and_model_calls(), store_calls(),
          reader_calls(), session_opening_calls(), message_calls(), tree_calls(), turn_calls(),
          event_calls(), raw_calls()}) {
      calls.insert(calls.end(), part.begin(), part.end());
    }
    const std::set<std::string_view> slow = {"cairn_model_open", "cairn_store_open",
                                             "cairn_store_remove", "cairn_store_reader_open"};
    for (EntryCall& call : calls) call.is_slow = slow.contains(call.name);
    return calls;
  }();
  return all;
}

}  // namespace cairn::test
