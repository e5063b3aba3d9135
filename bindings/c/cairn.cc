// The C ABI of cairn.h over the C++ API of include/cairn: handles hold C++ objects, every function
// is one guarded body, and the only work done here is translation between the two sets of types.
// This file has versions, errors, runtimes and models; store.cc and session.cc have the rest.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/handles.h"
#include "cairn/version.h"

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
using cairn::c_api::path_argument;
using cairn::c_api::read_options;
using cairn::c_api::required;
using cairn::c_api::text_argument;
using cairn::c_api::write_result;

namespace {

// The host's sink with its user data. Once adopted, it finalises the user data when the last
// std::function that holds it goes; before that the user data is the caller's.
class HostLog {
 public:
  explicit HostLog(const cairn_runtime_options& options) : options_(options) {}
  HostLog(const HostLog&) = delete;
  HostLog& operator=(const HostLog&) = delete;
  ~HostLog() {
    if (!adopted_ || options_.log_finalize == nullptr) return;
    try {
      options_.log_finalize(options_.log_user);
    } catch (...) {
    }
  }

  void adopt() { adopted_ = true; }

  // What a host in C++ throws ends here: the line is lost, the thread goes on.
  void write(cairn::LogLevel level, std::string_view text) const noexcept {
    try {
      options_.log(options_.log_user, static_cast<std::int32_t>(level) + CAIRN_LOG_TRACE,
                   text.data(), text.size());
    } catch (...) {
    }
  }

 private:
  const cairn_runtime_options options_;
  bool adopted_ = false;
};

Result<cairn::RuntimeOptions> runtime_options(const cairn_runtime_options& given,
                                              std::shared_ptr<HostLog> log) {
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(given.reserved));
  cairn::RuntimeOptions options;
  options.compute_threads = given.compute_threads;
  if (given.n_compute_cpus > 0) {
    CAIRN_RETURN_IF_ERROR(required(given.compute_cpus, "compute_cpus"));
    options.compute_cpus.assign(given.compute_cpus, given.compute_cpus + given.n_compute_cpus);
  }
  CAIRN_ASSIGN_OR_RETURN(
      options.instruction_set,
      enum_option(given.instruction_set, cairn::InstructionSet::kNeon, "instruction_set"));
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
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved_2));
  cairn::ModelOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.numerics,
                         enum_option(read.numerics, cairn::Numerics::kF32, "numerics"));
  if (read.prefill_chunk != 0) options.prefill_chunk = read.prefill_chunk;
  options.max_context = read.max_context;
  options.drafts = read.drafts;
  return options;
}

}  // namespace

extern "C" {

// ---- Version

const char* cairn_version(void) { return cairn::version(); }

int32_t cairn_abi_version(void) { return CAIRN_ABI_VERSION; }

int32_t cairn_has_feature(const char* name) {
  constexpr std::array<std::string_view, 8> kFeatures = {
      "persistence", "exact_restore", "bounded_restore", "tools",
      "thinking",    "fork",          "quota",           "encryption"};
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

cairn_code cairn_model_render(const cairn_model* model, const char* messages_json,
                              size_t messages_json_length, int32_t thinking, int32_t effort,
                              cairn_buffer** text, int64_t* n_tokens, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (text != nullptr) *text = nullptr;
    if (n_tokens != nullptr) *n_tokens = 0;
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view json,
                           text_argument(messages_json, messages_json_length, "messages_json"));
    CAIRN_ASSIGN_OR_RETURN(const auto messages, cairn::parse_request(json));
    cairn::PromptSettings settings;
    settings.thinking = thinking != 0;
    if (effort != 0) settings.effort = effort;
    CAIRN_ASSIGN_OR_RETURN(cairn::Prompt prompt, model->rep.render(messages, settings));
    if (n_tokens != nullptr) *n_tokens = static_cast<std::int64_t>(prompt.tokens.size());
    return text == nullptr ? Status() : give(text, std::move(prompt.text));
  });
}

void cairn_model_destroy(cairn_model** model) { destroy(model); }

}  // extern "C"
