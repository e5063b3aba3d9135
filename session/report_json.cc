// Reports as JSON, for hosts that pass them on and for people's tools.
#include <array>
#include <charconv>

#include "cairn/session.h"
#include "engine/python_json.h"
#include "engine/utf8.h"

namespace cairn {
namespace {

using engine::JsonValue;

constexpr std::array<const char*, kMissCauseCount> kCauses = {
    "none",           "new_tokens",       "prompt_changed",    "not_stored",   "corrupt",
    "replay_needed",  "evicted",          "other_model",       "system",       "tools",
    "message_edited", "answer_rewritten", "reasoning_dropped", "mode_changed", "head_moved"};
constexpr std::array<const char*, 6> kMatches = {"none",     "equal",     "event",
                                                 "call_ids", "arguments", "text"};

JsonValue text(std::string_view value) {
  return JsonValue::make_string(engine::replace_invalid_utf8(value));
}

JsonValue number(std::int64_t value) {
  JsonValue out;
  out.kind = JsonValue::Kind::kNumber;
  out.text = std::to_string(value);
  return out;
}

JsonValue number(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), value, std::chars_format::fixed, 3);
  JsonValue out;
  out.kind = JsonValue::Kind::kNumber;
  out.text.assign(digits.begin(), end.ec == std::errc() ? end.ptr : digits.begin());
  if (out.text.empty()) out.text = "0";
  return out;
}

JsonValue difference_value(const PromptDifference& difference, std::int64_t token) {
  JsonValue out = JsonValue::make_object();
  out.add("token", number(token));
  out.add("message", number(std::int64_t{difference.message}));
  out.add("byte", number(difference.byte));
  out.add("stored", text(difference.stored));
  out.add("given", text(difference.given));
  out.add("tool", text(difference.tool));
  return out;
}

JsonValue message_value(const SyncedMessage& message) {
  JsonValue out = JsonValue::make_object();
  out.add("match", text(kMatches[static_cast<std::size_t>(message.match)]));
  out.add("event", number(static_cast<std::int64_t>(message.event)));
  out.add("appended", JsonValue::make_bool(message.appended));
  return out;
}

JsonValue sync_value(const SyncReport& report) {
  JsonValue messages = JsonValue::make_array();
  for (const SyncedMessage& message : report.messages) {
    messages.items.push_back(message_value(message));
  }
  JsonValue out = JsonValue::make_object();
  out.add("n_kept", number(report.n_kept));
  out.add("n_appended", number(report.n_appended));
  out.add("n_left", number(report.n_left));
  out.add("forked", JsonValue::make_bool(report.forked));
  out.add("forked_at", number(static_cast<std::int64_t>(report.forked_at)));
  out.add("prompt_tokens", number(report.prompt_tokens));
  out.add("common_tokens", number(report.common_tokens));
  out.add("cause", text(miss_cause_name(report.cause)));
  out.add("detail", text(report.detail));
  const bool differs = report.difference.byte >= 0;
  out.add("difference", difference_value(report.difference, differs ? report.common_tokens : -1));
  out.add("messages", std::move(messages));
  return out;
}

JsonValue reuse_value(const ReuseReport& reuse) {
  JsonValue out = JsonValue::make_object();
  out.add("prompt_tokens", number(reuse.prompt_tokens));
  out.add("from_memory", number(reuse.from_memory));
  out.add("from_disk", number(reuse.from_disk));
  out.add("replayed", number(reuse.replayed));
  out.add("prefilled", number(reuse.prefilled));
  out.add("exact", JsonValue::make_bool(reuse.exact));
  out.add("tail_restored", JsonValue::make_bool(reuse.tail_restored));
  out.add("cause", text(miss_cause_name(reuse.cause)));
  out.add("detail", text(reuse.detail));
  out.add("difference", difference_value(reuse.difference, reuse.first_difference));
  out.add("lost_tokens", number(reuse.lost_tokens));
  out.add("lost_ms", number(reuse.lost_ms));
  out.add("bytes_read", number(reuse.bytes_read));
  out.add("restore_ms", number(reuse.restore_ms));
  return out;
}

}  // namespace

const char* miss_cause_name(MissCause cause) {
  const auto index = static_cast<std::size_t>(cause);
  return index < kCauses.size() ? kCauses[index] : "unknown";
}

std::string to_json(const SyncReport& report) { return engine::to_python_json(sync_value(report)); }

std::string to_json(const TurnPlan& plan) {
  JsonValue out = JsonValue::make_object();
  out.add("reuse", reuse_value(plan.reuse));
  out.add("prefill_ms", number(plan.prefill_ms));
  out.add("memory_bytes", number(plan.memory_bytes));
  out.add("sync", sync_value(plan.sync));
  return engine::to_python_json(out);
}

}  // namespace cairn
