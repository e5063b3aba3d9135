// What the handles of cairn.h hold, and the translations that more than one file needs.
#ifndef CAIRN_BINDINGS_C_HANDLES_H_
#define CAIRN_BINDINGS_C_HANDLES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/boundary.h"
#include "cairn/engine.h"
#include "cairn/session.h"
#include "cairn/store.h"

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
  std::string recovery_detail;  // what opening found; borrowed by cairn_store_get_stats
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
  std::vector<std::vector<std::pair<std::string, std::string>>> labels;  // of each, ascending keys
};

struct cairn_store_reader {
  cairn::StoreReader rep;
};

struct cairn_mark_list {
  std::vector<cairn::Mark> marks;
};

struct cairn_message_list {
  std::vector<cairn::Message> messages;
  std::vector<std::string> texts;  // of each message, its blocks joined
};

namespace cairn::c_api {

// `value` of an enumeration with the numbers 0..last, the same in C and C++.
template <class Enum>
Result<Enum> enum_option(std::int32_t value, Enum last, std::string_view name) {
  if (value >= 0 && value <= static_cast<std::int32_t>(last)) return static_cast<Enum>(value);
  return Status(StatusCode::kUnsupported,
                std::string(name) + ": unknown value " + std::to_string(value));
}

Result<TurnOptions> turn_options(const cairn_turn_options* given);

// `identity` owns the strings, `current` has the numbers.
cairn_session_info session_info(const SessionInfo& identity, const SessionInfo& current);

// The text, followed by a zero, and its size; "" for none. `n_bytes` may be null.
inline const char* bytes_of(const std::string* text, std::size_t* n_bytes) {
  if (n_bytes != nullptr) *n_bytes = text == nullptr ? 0 : text->size();
  return text == nullptr ? "" : text->c_str();
}

}  // namespace cairn::c_api

#endif  // CAIRN_BINDINGS_C_HANDLES_H_
