// The C ABI of cairn.h over the C++ API of include/cairn: handles hold C++ objects, every function
// is one guarded body, and the only work done here is translation between the two sets of types.
#include "cairn/cairn.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/boundary.h"
#include "cairn/engine.h"
#include "cairn/session.h"
#include "cairn/version.h"

using cairn::Result;
using cairn::Status;
using cairn::StatusCode;
using cairn::c_api::cleared;
using cairn::c_api::destroy;
using cairn::c_api::give;
using cairn::c_api::guarded;
using cairn::c_api::path_argument;
using cairn::c_api::read_options;
using cairn::c_api::required;
using cairn::c_api::text_argument;
using cairn::c_api::write_result;

struct cairn_buffer {
  std::string bytes;
};

struct cairn_token_list {
  std::vector<cairn::TokenId> ids;
};

struct cairn_runtime {
  cairn::Runtime rep;
};

struct cairn_model {
  cairn::Model rep;
};

struct cairn_store {
  cairn::Store rep;
};

struct cairn_session {
  cairn::Session rep;
  cairn::SessionInfo identity;  // what the borrowed strings of cairn_session_get_info point into
};

struct cairn_turn {
  cairn::Session session;  // pinned; destroyed after the turn
  cairn::Turn rep;
};

struct cairn_event {
  cairn::Event rep;
  cairn_error error;
};

struct cairn_session_list {
  std::vector<cairn::SessionInfo> sessions;
};

struct cairn_message_list {
  std::vector<cairn::Message> messages;
  std::vector<std::string> texts;  // of each message, its blocks joined
};

namespace {

// The host's sink with its user data. Once adopted, it finalises the user data when the last
// std::function that holds it goes; before that the user data is the caller's.
class HostLog {
 public:
  explicit HostLog(const cairn_runtime_options& options) : options_(options) {}
  HostLog(const HostLog&) = delete;
  HostLog& operator=(const HostLog&) = delete;
  ~HostLog() {
    if (adopted_ && options_.log_finalize != nullptr) options_.log_finalize(options_.log_user);
  }

  void adopt() { adopted_ = true; }

  void write(cairn::LogLevel level, std::string_view text) const {
    options_.log(options_.log_user, static_cast<std::int32_t>(level) + CAIRN_LOG_TRACE, text.data(),
                 text.size());
  }

 private:
  const cairn_runtime_options options_;
  bool adopted_ = false;
};

// `value` of an enumeration with the numbers 0..last, the same in C and C++.
template <class Enum>
Result<Enum> enum_option(std::int32_t value, Enum last, std::string_view name) {
  if (value >= 0 && value <= static_cast<std::int32_t>(last)) return static_cast<Enum>(value);
  return Status(StatusCode::kUnsupported,
                std::string(name) + ": unknown value " + std::to_string(value));
}

// A reserved option may get a meaning; a caller that sets it expects that meaning.
Status expect_reserved_zero(std::int32_t reserved) {
  if (reserved == 0) return {};
  return {StatusCode::kUnsupported, "options.reserved is " + std::to_string(reserved),
          "leave it zero"};
}

Result<cairn::RuntimeOptions> runtime_options(const cairn_runtime_options& given,
                                              std::shared_ptr<HostLog> log) {
  cairn::RuntimeOptions options;
  options.compute_threads = given.compute_threads;
  if (given.log_level != CAIRN_LOG_DEFAULT) {
    if (given.log_level < CAIRN_LOG_TRACE || given.log_level > CAIRN_LOG_ERROR) {
      return Status(StatusCode::kUnsupported,
                    "log_level: unknown value " + std::to_string(given.log_level));
    }
    options.log_level = static_cast<cairn::LogLevel>(given.log_level - CAIRN_LOG_TRACE);
  }
  if (given.log != nullptr) {
    options.log = [log = std::move(log)](cairn::LogLevel level, std::string_view text) {
      log->write(level, text);
    };
  }
  return options;
}

Result<cairn::ModelOptions> model_options(const cairn_model_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_model_options read, read_options(given, "options"));
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved));
  cairn::ModelOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.numerics,
                         enum_option(read.numerics, cairn::Numerics::kF32, "numerics"));
  if (read.prefill_chunk != 0) options.prefill_chunk = read.prefill_chunk;
  options.max_context = read.max_context;
  return options;
}

Result<cairn::StoreOptions> store_options(const cairn_store_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_store_options read, read_options(given, "options"));
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved));
  cairn::StoreOptions out;
  out.create_if_missing = read.must_exist == 0;
  return out;
}

Result<cairn::SessionOptions> session_options(const cairn_session_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_session_options read, read_options(given, "options"));
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved));
  cairn::SessionOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.restore,
                         enum_option(read.restore, cairn::RestorePolicy::kBounded, "restore"));
  options.thinking = read.thinking != 0;
  if (read.effort != 0) options.effort = read.effort;
  return options;
}

Result<cairn::TurnOptions> turn_options(const cairn_turn_options* given) {
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
  return options;
}

// `identity` owns the strings, `current` has the numbers.
cairn_session_info session_info(const cairn::SessionInfo& identity,
                                const cairn::SessionInfo& current) {
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  info.id = identity.id.c_str();
  info.name = identity.name.c_str();
  info.model_fingerprint = identity.model_fingerprint.c_str();
  info.created_ms = current.created_ms;
  info.used_ms = current.used_ms;
  info.n_events = current.n_events;
  info.n_tokens = current.n_tokens;
  info.turn_open = current.turn_open ? 1 : 0;
  return info;
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

cairn_message message(const cairn::Message& message, const std::string& text) {
  cairn_message values = CAIRN_MESSAGE_INIT;
  values.text = text.c_str();
  values.text_bytes = text.size();
  values.reasoning = message.reasoning.c_str();
  values.reasoning_bytes = message.reasoning.size();
  values.tool_call_id = message.tool_call_id.c_str();
  values.n_tool_calls = message.tool_calls.size();
  values.role = static_cast<std::int32_t>(message.role);
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
  return values;
}

Status give_session(Result<cairn::Session> opened, cairn_session** out) {
  CAIRN_ASSIGN_OR_RETURN(cairn::Session session, std::move(opened));
  cairn::SessionInfo identity = session.info();
  return give(out, std::move(session), std::move(identity));
}

Status give_turn(const cairn_session& session, Result<cairn::Turn> started, cairn_turn** out) {
  CAIRN_ASSIGN_OR_RETURN(cairn::Turn turn, std::move(started));
  return give(out, session.rep, std::move(turn));
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

const char* bytes_of(const std::string* text, std::size_t* n_bytes) {
  if (n_bytes != nullptr) *n_bytes = text == nullptr ? 0 : text->size();
  return text == nullptr ? "" : text->c_str();
}

}  // namespace

extern "C" {

// ---- Version

const char* cairn_version(void) { return cairn::version(); }

int32_t cairn_abi_version(void) { return CAIRN_ABI_VERSION; }

int32_t cairn_has_feature(const char* name) {
  constexpr std::array<std::string_view, 5> kFeatures = {"persistence", "exact_restore",
                                                         "bounded_restore", "tools", "thinking"};
  if (name == nullptr) return 0;
  return std::find(kFeatures.begin(), kFeatures.end(), name) != kFeatures.end() ? 1 : 0;
}

// ---- Codes and errors

const char* cairn_code_name(cairn_code code) {
  return cairn::status_code_name(static_cast<StatusCode>(code)).data();
}

cairn_code cairn_error_code(const cairn_error* error) {
  return error == nullptr ? CAIRN_OK : static_cast<cairn_code>(error->status.code());
}

const char* cairn_error_name(const cairn_error* error) {
  return cairn_code_name(cairn_error_code(error));
}

const char* cairn_error_message(const cairn_error* error) {
  return error == nullptr ? "" : error->status.message().data();
}

const char* cairn_error_hint(const cairn_error* error) {
  return error == nullptr ? "" : error->status.hint().data();
}

void cairn_error_destroy(cairn_error** error) { destroy(error); }

// ---- Owned results

const char* cairn_buffer_bytes(const cairn_buffer* buffer, size_t* n_bytes) {
  return bytes_of(buffer == nullptr ? nullptr : &buffer->bytes, n_bytes);
}

void cairn_buffer_destroy(cairn_buffer** buffer) { destroy(buffer); }

const int32_t* cairn_token_list_ids(const cairn_token_list* list, size_t* n_tokens) {
  const std::size_t size = list == nullptr ? 0 : list->ids.size();
  if (n_tokens != nullptr) *n_tokens = size;
  return size == 0 ? nullptr : list->ids.data();
}

void cairn_token_list_destroy(cairn_token_list** list) { destroy(list); }

// ---- Runtime

void cairn_runtime_options_init(cairn_runtime_options* options) {
  if (options != nullptr) *options = CAIRN_RUNTIME_OPTIONS_INIT;
}

cairn_code cairn_runtime_create(const cairn_runtime_options* options, cairn_runtime** runtime,
                                cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(runtime, "runtime"));
    CAIRN_ASSIGN_OR_RETURN(const cairn_runtime_options read, read_options(options, "options"));
    const auto log = std::make_shared<HostLog>(read);
    CAIRN_ASSIGN_OR_RETURN(const cairn::RuntimeOptions converted, runtime_options(read, log));
    CAIRN_ASSIGN_OR_RETURN(cairn::Runtime created, cairn::Runtime::create(converted));
    CAIRN_RETURN_IF_ERROR(give(runtime, std::move(created)));
    log->adopt();
    return {};
  });
}

void cairn_runtime_destroy(cairn_runtime** runtime) { destroy(runtime); }

// ---- Model

void cairn_model_options_init(cairn_model_options* options) {
  if (options != nullptr) *options = CAIRN_MODEL_OPTIONS_INIT;
}

cairn_code cairn_model_open(const cairn_runtime* runtime, const char* folder, size_t folder_length,
                            const cairn_model_options* options, cairn_model** model,
                            cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(model, "model"));
    CAIRN_RETURN_IF_ERROR(required(runtime, "runtime"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path, path_argument(folder, folder_length, "folder"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelOptions converted, model_options(options));
    CAIRN_ASSIGN_OR_RETURN(cairn::Model opened, cairn::Model::open(runtime->rep, path, converted));
    return give(model, std::move(opened));
  });
}

cairn_code cairn_model_get_info(const cairn_model* model, cairn_model_info* info,
                                cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    const cairn::ModelInfo& from = model->rep.info();
    cairn_model_info values = CAIRN_MODEL_INFO_INIT;
    values.architecture = from.architecture.c_str();
    values.fingerprint = from.fingerprint.c_str();
    values.n_layers = from.n_layers;
    values.n_encoder_layers = from.n_encoder_layers;
    values.vocab_size = from.vocab_size;
    values.max_context = from.max_context;
    values.window = from.window;
    values.weight_bytes = from.weight_bytes;
    values.window_bytes = from.window_bytes;
    values.global_kv_bytes_per_block = from.global_kv_bytes_per_block;
    values.global_kv_bytes_per_token = from.global_kv_bytes_per_token;
    return write_result(values, info, "info");
  });
}

cairn_code cairn_model_tokenize(const cairn_model* model, const char* text, size_t text_length,
                                cairn_token_list** tokens, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(tokens, "tokens"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(text, text_length, "text"));
    return give(tokens, model->rep.tokenize(view));
  });
}

cairn_code cairn_model_detokenize(const cairn_model* model, const int32_t* tokens, size_t n_tokens,
                                  cairn_buffer** bytes, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(bytes, "bytes"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    if (n_tokens != 0) CAIRN_RETURN_IF_ERROR(required(tokens, "tokens"));
    const std::vector<cairn::TokenId> ids(tokens, tokens + n_tokens);
    CAIRN_ASSIGN_OR_RETURN(std::string text, model->rep.detokenize(ids));
    return give(bytes, std::move(text));
  });
}

void cairn_model_destroy(cairn_model** model) { destroy(model); }

// ---- Store

void cairn_store_options_init(cairn_store_options* options) {
  if (options != nullptr) *options = CAIRN_STORE_OPTIONS_INIT;
}

cairn_code cairn_store_open(const cairn_runtime* runtime, const char* directory,
                            size_t directory_length, const cairn_store_options* options,
                            cairn_store** store, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(store, "store"));
    CAIRN_RETURN_IF_ERROR(required(runtime, "runtime"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path,
                           path_argument(directory, directory_length, "directory"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreOptions converted, store_options(options));
    CAIRN_ASSIGN_OR_RETURN(cairn::Store opened, cairn::Store::open(runtime->rep, path, converted));
    return give(store, std::move(opened));
  });
}

cairn_code cairn_store_list(const cairn_store* store, cairn_session_list** list,
                            cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(list, "list"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::SessionInfo> sessions, store->rep.list());
    return give(list, std::move(sessions));
  });
}

cairn_code cairn_store_get_stats(const cairn_store* store, cairn_store_stats* stats,
                                 cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreStats from, store->rep.stats());
    cairn_store_stats values = CAIRN_STORE_STATS_INIT;
    values.bytes_on_disk = from.bytes_on_disk;
    values.n_sessions = from.n_sessions;
    values.n_blocks = from.n_blocks;
    values.n_tails = from.n_tails;
    return write_result(values, stats, "stats");
  });
}

cairn_code cairn_store_remove(cairn_store* store, const char* name, size_t name_length,
                              cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    return store->rep.remove(std::string(view));
  });
}

void cairn_store_destroy(cairn_store** store) { destroy(store); }

size_t cairn_session_list_size(const cairn_session_list* list) {
  return list == nullptr ? 0 : list->sessions.size();
}

cairn_code cairn_session_list_get(const cairn_session_list* list, size_t index,
                                  cairn_session_info* info, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (index >= cairn_session_list_size(list)) {
      return cairn::invalid_argument("index " + std::to_string(index) + ": no such session");
    }
    const cairn::SessionInfo& from = list->sessions[index];
    return write_result(session_info(from, from), info, "info");
  });
}

void cairn_session_list_destroy(cairn_session_list** list) { destroy(list); }

// ---- Session

void cairn_session_options_init(cairn_session_options* options) {
  if (options != nullptr) *options = CAIRN_SESSION_OPTIONS_INIT;
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
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(session, "session"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    return give_session(cairn::Session::open(model->rep, store->rep, std::string(view)), session);
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
    return give_turn(*session, session->rep.start_turn(converted), turn);
  });
}

cairn_code cairn_session_resume_turn(cairn_session* session, cairn_turn** turn,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(turn, "turn"));
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    return give_turn(*session, session->rep.resume_turn(), turn);
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
    Result<cairn::Event> next = turn->rep.next(std::chrono::milliseconds(timeout_ms));
    if (!next.ok() && is_answer(next.status().code())) {
      answer = next.status().code();
      return {};
    }
    CAIRN_ASSIGN_OR_RETURN(cairn::Event got, std::move(next));
    cairn_error turn_error = {got.status};
    return give(event, std::move(got), std::move(turn_error));
  });
  return answer == StatusCode::kOk ? code : static_cast<cairn_code>(answer);
}

void cairn_turn_cancel(cairn_turn* turn) {
  (void)guarded(nullptr, [&]() -> Status {
    if (turn != nullptr) turn->rep.cancel();
    return {};
  });
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
