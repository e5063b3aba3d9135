// Histories and plans of cairn.h (see cairn.cc).
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/handles.h"

using cairn::Result;
using cairn::Status;
using cairn::c_api::give;
using cairn::c_api::guarded;
using cairn::c_api::read_options;
using cairn::c_api::required;
using cairn::c_api::text_argument;
using cairn::c_api::turn_options;
using cairn::c_api::write_result;

namespace {

Result<cairn::SyncOptions> sync_options(const cairn_sync_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_sync_options read, read_options(given, "options"));
  CAIRN_ASSIGN_OR_RETURN(
      std::string_view lines,
      text_argument(read.volatile_lines, read.volatile_lines_bytes, "volatile_lines"));
  cairn::SyncOptions options;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (end != 0) options.volatile_lines.emplace_back(lines.substr(0, end));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
  return options;
}

cairn_sync sync_values(const cairn::SyncReport& report) {
  cairn_sync values = CAIRN_SYNC_INIT;
  values.n_messages = static_cast<std::int64_t>(report.messages.size());
  values.n_kept = report.n_kept;
  values.n_appended = report.n_appended;
  values.n_left = report.n_left;
  values.forked_at = report.forked_at;
  values.prompt_tokens = report.prompt_tokens;
  values.common_tokens = report.common_tokens;
  values.difference_byte = report.difference.byte;
  values.difference_message = report.difference.message;
  values.cause = static_cast<std::int32_t>(report.cause);
  values.forked = report.forked ? 1 : 0;
  return values;
}

cairn_plan plan_values(const cairn::TurnPlan& plan) {
  cairn_plan values = CAIRN_PLAN_INIT;
  values.prompt_tokens = plan.reuse.prompt_tokens;
  values.from_memory = plan.reuse.from_memory;
  values.from_disk = plan.reuse.from_disk;
  values.replayed = plan.reuse.replayed;
  values.prefilled = plan.reuse.prefilled;
  values.lost_tokens = plan.reuse.lost_tokens;
  values.bytes_read = plan.reuse.bytes_read;
  values.memory_bytes = plan.memory_bytes;
  values.restore_ms = plan.reuse.restore_ms;
  values.prefill_ms = plan.prefill_ms;
  values.lost_ms = plan.reuse.lost_ms;
  values.exact = plan.reuse.exact ? 1 : 0;
  values.cause = static_cast<std::int32_t>(plan.reuse.cause);
  return values;
}

Result<cairn::TurnPlan> plan_of(const cairn::Session& session, std::string_view body,
                                const cairn::TurnOptions& turn, const cairn::SyncOptions& sync) {
  if (body.empty()) return session.plan(turn);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::Message> messages, cairn::parse_request(body));
  return session.plan_sync(messages, turn, sync);
}

}  // namespace

extern "C" {

cairn_code cairn_session_sync(cairn_session* session, const char* body, size_t body_length,
                              const cairn_sync_options* options, cairn_sync* sync,
                              cairn_buffer** details, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (details != nullptr) *details = nullptr;
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view json, text_argument(body, body_length, "body"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SyncOptions converted, sync_options(options));
    CAIRN_ASSIGN_OR_RETURN(const auto messages, cairn::parse_request(json));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SyncReport report, session->rep.sync(messages, converted));
    if (sync != nullptr) CAIRN_RETURN_IF_ERROR(write_result(sync_values(report), sync, "sync"));
    return details == nullptr ? Status() : give(details, cairn::to_json(report));
  });
}

cairn_code cairn_session_plan(const cairn_session* session, const char* body, size_t body_length,
                              const cairn_sync_options* options, const cairn_turn_options* turn,
                              cairn_plan* plan, cairn_buffer** details, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (details != nullptr) *details = nullptr;
    CAIRN_RETURN_IF_ERROR(required(session, "session"));
    CAIRN_RETURN_IF_ERROR(required(plan, "plan"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view json, text_argument(body, body_length, "body"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SyncOptions sync, sync_options(options));
    CAIRN_ASSIGN_OR_RETURN(const cairn::TurnOptions converted, turn_options(turn));
    CAIRN_ASSIGN_OR_RETURN(const cairn::TurnPlan planned,
                           plan_of(session->rep, json, converted, sync));
    CAIRN_RETURN_IF_ERROR(write_result(plan_values(planned), plan, "plan"));
    return details == nullptr ? Status() : give(details, cairn::to_json(planned));
  });
}

}  // extern "C"
