// Sessions, turns and events of cairn.h (see cairn.cc).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/handles.h"

using cairn::Result;
using cairn::Status;
using cairn::StatusCode;
using cairn::c_api::bytes_of;
using cairn::c_api::cleared;
using cairn::c_api::destroy;
using cairn::c_api::enum_option;
using cairn::c_api::expect_reserved_zero;
using cairn::c_api::give;
using cairn::c_api::guarded;
using cairn::c_api::read_options;
using cairn::c_api::required;
using cairn::c_api::Room;
using cairn::c_api::session_info;
using cairn::c_api::text_argument;
using cairn::c_api::turn_options;
using cairn::c_api::write_result;

namespace cairn::c_api {

namespace {

Result<OutputRules> output_rules(const cairn_turn_options& read) {
  OutputRules rules;
  rules.constrain_tools = read.constrain_tools != 0;
  CAIRN_ASSIGN_OR_RETURN(rules.tool_choice,
                         enum_option(read.tool_choice, ToolChoice::kNamed, "tool_choice"));
  CAIRN_ASSIGN_OR_RETURN(rules.tool_name,
                         text_argument(read.tool_name, read.tool_name_length, "tool_name"));
  CAIRN_ASSIGN_OR_RETURN(rules.response_format_json,
                         text_argument(read.response_format_json, read.response_format_json_length,
                                       "response_format_json"));
  return rules;
}

Result<TurnLimits> turn_limits(const cairn_turn_options& read) {
  TurnLimits limits;
  limits.reasoning_tokens = read.max_reasoning_tokens;
  limits.tool_calls = read.max_tool_calls;
  limits.context_tokens = read.max_context_tokens;
  limits.time = std::chrono::milliseconds(read.max_time_ms);
  if (read.n_stop > 0) CAIRN_RETURN_IF_ERROR(required(read.stop, "stop"));
  for (std::size_t i = 0; i < read.n_stop; ++i) {
    CAIRN_RETURN_IF_ERROR(required(read.stop[i], "stop[" + std::to_string(i) + "]"));
    limits.stop.emplace_back(read.stop[i]);
  }
  return limits;
}

}  // namespace

Result<TurnOptions> turn_options(const cairn_turn_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_turn_options read, read_options(given, "options"));
  cairn::TurnOptions options;
  cairn::SamplingParams& sampling = options.sampling;
  sampling.seed = read.seed;
  if (read.max_tokens != 0) options.max_tokens = read.max_tokens;
  if (read.temperature != 0) sampling.temperature = read.temperature;
  if (read.greedy != 0) sampling.temperature = 0;
  if (read.top_p != 0) sampling.top_p = read.top_p;
  if (read.repetition_penalty != 0) sampling.repetition_penalty = read.repetition_penalty;
  if (read.penalty_window != 0) sampling.penalty_window = read.penalty_window;
  sampling.min_p = read.min_p;
  sampling.frequency_penalty = read.frequency_penalty;
  sampling.presence_penalty = read.presence_penalty;
  sampling.top_k = read.top_k;
  CAIRN_ASSIGN_OR_RETURN(options.thinking,
                         enum_option(read.thinking, cairn::ThinkingMode::kOn, "thinking"));
  options.effort = read.effort;
  options.continue_answer = read.continue_answer != 0;
  CAIRN_ASSIGN_OR_RETURN(options.limits, turn_limits(read));
  CAIRN_ASSIGN_OR_RETURN(options.priority,
                         enum_option(read.priority, TurnPriority::kBackground, "priority"));
  CAIRN_ASSIGN_OR_RETURN(options.output, output_rules(read));
  return options;
}

}  // namespace cairn::c_api

namespace {

Result<cairn::SessionOptions> session_options(const cairn_session_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_session_options read, read_options(given, "options"));
  cairn::SessionOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.restore,
                         enum_option(read.restore, cairn::RestorePolicy::kBounded, "restore"));
  options.thinking = read.thinking != 0;
  if (read.effort != 0) options.effort = read.effort;
  CAIRN_ASSIGN_OR_RETURN(
      options.durability,
      enum_option(read.durability, cairn::SessionDurability::kBuffered, "durability"));
  if (read.salt_bytes > 0) {
    CAIRN_RETURN_IF_ERROR(required(read.salt, "salt"));
    options.salt.assign(read.salt, read.salt_bytes);
  }
  return options;
}

Result<cairn::OpenOptions> open_options(const cairn_open_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_open_options read, read_options(given, "options"));
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved));
  cairn::OpenOptions options;
  options.allow_other_model = read.allow_other_model != 0;
  return options;
}

cairn_tool_call tool_call(const cairn::ToolCall& call, bool malformed) {
  cairn_tool_call values = CAIRN_TOOL_CALL_INIT;
  values.id = call.id.c_str();
  values.name = call.name.c_str();
  values.arguments_json = call.arguments_json.c_str();
  values.arguments_bytes = call.arguments_json.size();
  values.malformed = malformed ? 1 : 0;
  return values;
}

cairn_mark mark(const cairn::Mark& mark) {
  cairn_mark values = CAIRN_MARK_INIT;
  values.event = mark.event;
  values.name = mark.name.c_str();
  values.time_ms = mark.time_ms;
  values.n_tokens = mark.n_tokens;
  values.has_state = mark.has_state ? 1 : 0;
  values.rewound = mark.rewound ? 1 : 0;
  return values;
}

cairn_message message(const cairn::Message& message, const std::string& text) {
  cairn_message values = CAIRN_MESSAGE_INIT;
  values.text = text.c_str();
  values.text_bytes = text.size();
  values.reasoning = message.reasoning.c_str();
  values.reasoning_bytes = message.reasoning.size();
  values.tool_call_id = message.tool_call_id.c_str();
  values.n_tool_calls = message.tool_calls.size();
  values.role = static_cast<std::int32_t>(message.role);
  values.event = message.event;
  return values;
}

std::string text_of(const cairn::Message& message) {
  std::string text;
  for (const cairn::ContentBlock& block : message.content) text += block.text;
  return text;
}

cairn_reuse reuse(const cairn::ReuseReport& report) {
  cairn_reuse values = CAIRN_REUSE_INIT;
  values.prompt_tokens = report.prompt_tokens;
  values.from_memory = report.from_memory;
  values.from_disk = report.from_disk;
  values.replayed = report.replayed;
  values.prefilled = report.prefilled;
  values.first_difference = report.first_difference;
  values.restore_ms = report.restore_ms;
  values.detail = report.detail.c_str();
  values.exact = report.exact ? 1 : 0;
  values.tail_restored = report.tail_restored ? 1 : 0;
  values.cause = static_cast<std::int32_t>(report.cause);
  values.bytes_read = report.bytes_read;
  values.difference_byte = report.difference.byte;
  values.stored_text = report.difference.stored.c_str();
  values.given_text = report.difference.given.c_str();
  values.tool = report.difference.tool.c_str();
  values.difference_message = report.difference.message;
  values.lost_tokens = report.lost_tokens;
  values.lost_ms = report.lost_ms;
  return values;
}

cairn_usage usage(const cairn::TurnUsage& report) {
  cairn_usage values = CAIRN_USAGE_INIT;
  values.output_tokens = report.output_tokens;
  values.reasoning_tokens = report.reasoning_tokens;
  values.resumed_tokens = report.resumed_tokens;
  values.context_used = report.context_used;
  values.context_size = report.context_size;
  values.bytes_written = report.bytes_written;
  values.queued_ms = report.queued_ms;
  values.prefill_ms = report.prefill_ms;
  values.first_token_ms = report.first_token_ms;
  values.decode_ms = report.decode_ms;
  static_assert(CAIRN_MAX_DRAFTS == cairn::kMaxDrafts);
  const cairn::DraftReport& drafts = report.drafts;
  values.draft_rounds = drafts.rounds;
  values.drafts_proposed = drafts.proposed;
  values.drafts_accepted = drafts.accepted;
  std::ranges::copy(drafts.rounds_by_accepted, values.rounds_by_accepted);
  values.draft_ms = drafts.draft_ms;
  values.verify_ms = drafts.verify_ms;
  values.drafts_withheld = drafts.withheld;
  return values;
}

Status give_session(Result<cairn::Session> opened, cairn_session** out) {
  CAIRN_ASSIGN_OR_RETURN(cairn::Session session, std::move(opened));
  cairn::SessionInfo identity = session.info();
  return give(out, std::move(session), std::move(identity));
}

template <class Start>
Status give_turn(const cairn_session& session, cairn_turn** out, const Start& start) {
  Room<cairn_turn> room;
  CAIRN_ASSIGN_OR_RETURN(cairn::Turn turn, start());
  return room.give(out, session.rep, std::move(turn));
}

Result<cairn::Session> open_or_create(const cairn::Model& model, const cairn::Store& store,
                                      const std::string& name,
                                      const cairn::SessionOptions& options) {
  Result<cairn::Session> opened = cairn::Session::open(model, store, name);
  if (opened.ok() || opened.status().code() != StatusCode::kNotFound) return opened;
  return cairn::Session::create(model, store, name, options);
}

Status append(cairn_session* session, const cairn::Message& message) {
  CAIRN_RETURN_IF_ERROR(required(session, "session"));
  return session->rep.append(message);
}

// What cairn_turn_next returns when there is nothing to read: answers, not failures.
bool is_answer(StatusCode code) {
  return code == StatusCode::kTimeout || code == StatusCode::kNotFound;
}

}  // namespace

extern "C" {

// ---- Session

void cairn_session_options_init(cairn_session_options* options) {
  if (options != nullptr) *options = CAIRN_SESSION_OPTIONS_INIT;
}

void cairn_open_options_init(cairn_open_options* options) {
  if (options != nullptr) *options = CAIRN_OPEN_OPTIONS_INIT;
}

void cairn_turn_options_init(cairn_turn_options* options) {
  if (options != nullptr) *options = CAIRN_TURN_OPTIONS_INIT;
}

cairn_code cairn_session_create(const cairn_model* model, const cairn_store* store,
                                const char* name, size_t name_length,
                                const cairn_session_options* options, cairn_session** session,
                                cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(session, "session"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SessionOptions converted, session_options(options));
    return give_session(
        cairn::Session::create(model->rep, store->rep, std::string(view), converted), session);
  });
}

cairn_code cairn_session_open(const cairn_model* model, const cairn_store* store, const char* name,
                              size_t name_length, cairn_session** session, cairn_error** error) {
  return cairn_session_open_with_options(model, store, name, name_length, nullptr, session, error);
}

cairn_code cairn_session_open_with_options(const cairn_model* model, const cairn_store* store,
                                           const char* name, size_t name_length,
                                           const cairn_open_options* options,
                                           cairn_session** session, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(session, "session"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::OpenOptions converted, open_options(options));
    return give_session(cairn::Session::open(model->rep, store->rep, std::string(view), converted),
                        session);
  });
}

cairn_code cairn_session_open_or_create(const cairn_model* model, const cairn_store* store,
                                        const char* name, size_t name_length,
                                        const cairn_session_options* options,
                                        cairn_session** session, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(session, "session"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SessionOptions converted, session_options(options));
    return give_session(open_or_create(model->rep, store->rep, std::string(view), converted),
                        session);
  });
}

cairn_code cairn_session_append_system(cairn_session* session, const char* text, size_t text_length,
                                       const char* tools_json, size_t tools_json_length,
                                       cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(text, text_length, "text"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view tools,
                           text_argument(tools_json, tools_json_length, "tools_json"));
    return append(session, cairn::Message::system(std::string(view), std::string(tools)));
  });
}

cairn_code cairn_session_append_user(cairn_session* session, const char* text, size_t text_length,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(text, text_length, "text"));
    return append(session, cairn::Message::user(std::string(view)));
  });
}

cairn_code cairn_session_append_tool_result(cairn_session* session, const char* tool_call_id,
                                            size_t tool_call_id_length, const char* text,
                                            size_t text_length, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view id,
                           text_argument(tool_call_id, tool_call_id_length, "tool_call_id"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(text, text_length, "text"));
    return append(session, cairn::Message::tool_result(std::string(id), std::string(view)));
  });
}

cairn_code cairn_session_append_json(cairn_session* session, const char* json, size_t json_length,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(json, json_length, "json"));
    return session->rep.append_json(view);
  });
}

cairn_code cairn_session_start_turn(cairn_session* session, const cairn_turn_options* options,
                                    cairn_turn** turn, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(turn, "turn"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::TurnOptions converted, turn_options(options));
    return give_turn(*session, turn, [&] { return session->rep.start_turn(converted); });
  });
}

cairn_code cairn_session_resume_turn(cairn_session* session, cairn_turn** turn,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(turn, "turn"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    return give_turn(*session, turn, [&] { return session->rep.resume_turn(); });
  });
}

cairn_code cairn_session_count_tokens(const cairn_session* session, const char* messages_json,
                                      size_t messages_json_length,
                                      const cairn_turn_options* options, int64_t* n_tokens,
                                      cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(n_tokens, "n_tokens"));
    *n_tokens = 0;
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view json,
                           text_argument(messages_json, messages_json_length, "messages_json"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::TurnOptions converted, turn_options(options));
    CAIRN_ASSIGN_OR_RETURN(const auto more, cairn::parse_request(json.empty() ? "[]" : json));
    CAIRN_ASSIGN_OR_RETURN(*n_tokens, session->rep.count_tokens(more, converted));
    return {};
  });
}

cairn_code cairn_session_attach_turn(cairn_session* session, uint64_t after, cairn_turn** turn,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(turn, "turn"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    return give_turn(*session, turn, [&] { return session->rep.attach_turn(after); });
  });
}

cairn_code cairn_session_get_messages(const cairn_session* session, cairn_message_list** list,
                                      cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(list, "list"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::Message> messages, session->rep.messages());
    std::vector<std::string> texts;
    for (const cairn::Message& each : messages) texts.push_back(text_of(each));
    return give(list, std::move(messages), std::move(texts));
  });
}

cairn_code cairn_session_mark(cairn_session* session, const char* name, size_t name_length,
                              int32_t keep_state, uint64_t* event, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(event, "event"));
    *event = 0;
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(*event, session->rep.mark(std::string(view), keep_state != 0));
    return {};
  });
}

cairn_code cairn_session_get_marks(const cairn_session* session, cairn_mark_list** list,
                                   cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(list, "list"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::Mark> marks, session->rep.marks());
    return give(list, std::move(marks));
  });
}

size_t cairn_mark_list_size(const cairn_mark_list* list) {
  return list == nullptr ? 0 : list->marks.size();
}

cairn_code cairn_mark_list_get(const cairn_mark_list* list, size_t index, cairn_mark* mark,
                               cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (index >= cairn_mark_list_size(list)) {
      return cairn::invalid_argument("index " + std::to_string(index) + ": no such mark");
    }
    return write_result(::mark(list->marks[index]), mark, "mark");
  });
}

void cairn_mark_list_destroy(cairn_mark_list** list) { destroy(list); }

cairn_code cairn_session_rewind(cairn_session* session, uint64_t event, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    return session->rep.rewind(event);
  });
}

cairn_code cairn_session_fork(const cairn_session* session, uint64_t event, const char* name,
                              size_t name_length, cairn_session** fork, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(fork, "fork"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    return give_session(session->rep.fork(std::string(view), event), fork);
  });
}

cairn_code cairn_session_get_info(const cairn_session* session, cairn_session_info* info,
                                  cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    return write_result(session_info(session->identity, session->rep.info()), info, "info");
  });
}

void cairn_session_destroy(cairn_session** session) { destroy(session); }

// ---- Messages

size_t cairn_message_list_size(const cairn_message_list* list) {
  return list == nullptr ? 0 : list->messages.size();
}

cairn_code cairn_message_list_get(const cairn_message_list* list, size_t index,
                                  cairn_message* message, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (index >= cairn_message_list_size(list)) {
      return cairn::invalid_argument("index " + std::to_string(index) + ": no such message");
    }
    return write_result(::message(list->messages[index], list->texts[index]), message, "message");
  });
}

cairn_code cairn_message_list_get_tool_call(const cairn_message_list* list, size_t index,
                                            size_t call_index, cairn_tool_call* call,
                                            cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (index >= cairn_message_list_size(list) ||
        call_index >= list->messages[index].tool_calls.size()) {
      return cairn::invalid_argument("message " + std::to_string(index) + ", call " +
                                     std::to_string(call_index) + ": no such tool call");
    }
    const cairn::ToolCall& from = list->messages[index].tool_calls[call_index];
    return write_result(tool_call(from, /*malformed=*/false), call, "call");
  });
}

void cairn_message_list_destroy(cairn_message_list** list) { destroy(list); }

// ---- Turn

cairn_code cairn_turn_next(cairn_turn* turn, int64_t timeout_ms, cairn_event** event,
                           cairn_error** error) {
  StatusCode answer = StatusCode::kOk;
  const cairn_code code = guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(event, "event"));
    CAIRN_RETURN_IF_ERROR(required(turn, "turn"));
    Room<cairn_event> room;
    Result<cairn::Event> next = turn->rep.next(std::chrono::milliseconds(timeout_ms));
    if (!next.ok() && is_answer(next.status().code())) {
      answer = next.status().code();
      return {};
    }
    CAIRN_ASSIGN_OR_RETURN(cairn::Event got, std::move(next));
    cairn_error turn_error = {got.status};
    return room.give(event, std::move(got), std::move(turn_error));
  });
  return answer == StatusCode::kOk ? code : static_cast<cairn_code>(answer);
}

void cairn_turn_cancel(cairn_turn* turn) {
  (void)guarded(nullptr, [&]() -> Status {
    if (turn != nullptr) turn->rep.cancel();
    return {};
  });
}

cairn_code cairn_turn_end_thinking(cairn_turn* turn, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(turn, "turn"));
    return turn->rep.end_thinking();
  });
}

void cairn_turn_acknowledge(cairn_turn* turn, uint64_t sequence) {
  if (turn == nullptr) return;
  (void)guarded(nullptr, [&]() -> Status {
    turn->rep.acknowledge(sequence);
    return {};
  });
}

void cairn_turn_detach(cairn_turn** turn) {
  if (turn == nullptr || *turn == nullptr) return;
  (void)guarded(nullptr, [&]() -> Status {
    (*turn)->rep.detach();
    return {};
  });
  destroy(turn);
}

int cairn_turn_wake_fd(const cairn_turn* turn) {
  return turn == nullptr ? -1 : turn->rep.wake_fd();
}

void cairn_turn_destroy(cairn_turn** turn) { destroy(turn); }

// ---- Event

int32_t cairn_event_kind(const cairn_event* event) {
  return event == nullptr ? -1 : static_cast<std::int32_t>(event->rep.kind);
}

uint64_t cairn_event_sequence(const cairn_event* event) {
  return event == nullptr ? 0 : event->rep.sequence;
}

int32_t cairn_event_replayed(const cairn_event* event) {
  return event != nullptr && event->rep.replayed ? 1 : 0;
}

int32_t cairn_event_block(const cairn_event* event) {
  return event == nullptr ? -1 : event->rep.block;
}

int32_t cairn_event_block_kind(const cairn_event* event) {
  return event == nullptr ? 0 : static_cast<std::int32_t>(event->rep.block_kind);
}

int32_t cairn_event_end_reason(const cairn_event* event) {
  return event == nullptr ? 0 : static_cast<std::int32_t>(event->rep.end_reason);
}

const char* cairn_event_bytes(const cairn_event* event, size_t* n_bytes) {
  return bytes_of(event == nullptr ? nullptr : &event->rep.bytes, n_bytes);
}

void cairn_event_get_progress(const cairn_event* event, int64_t* done, int64_t* total) {
  if (done != nullptr) *done = event == nullptr ? 0 : event->rep.done;
  if (total != nullptr) *total = event == nullptr ? 0 : event->rep.total;
}

void cairn_event_get_estimate(const cairn_event* event, int64_t* reused, double* remaining_ms) {
  if (reused != nullptr) *reused = event == nullptr ? 0 : event->rep.reused;
  if (remaining_ms != nullptr) *remaining_ms = event == nullptr ? -1 : event->rep.remaining_ms;
}

cairn_code cairn_event_get_tool_call(const cairn_event* event, cairn_tool_call* call,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(event, "event"));
    return write_result(tool_call(event->rep.tool_call, event->rep.malformed), call, "call");
  });
}

cairn_code cairn_event_get_reuse(const cairn_event* event, cairn_reuse* reuse,
                                 cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(event, "event"));
    const bool in_usage = event->rep.kind == cairn::EventKind::kUsage;
    return write_result(::reuse(in_usage ? event->rep.usage.reuse : event->rep.reuse), reuse,
                        "reuse");
  });
}

cairn_code cairn_event_get_usage(const cairn_event* event, cairn_usage* usage,
                                 cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(event, "event"));
    return write_result(::usage(event->rep.usage), usage, "usage");
  });
}

const cairn_error* cairn_event_error(const cairn_event* event) {
  return event == nullptr || event->error.status.ok() ? nullptr : &event->error;
}

void cairn_event_destroy(cairn_event** event) { destroy(event); }

}  // extern "C"
