#include "bindings/cli/session_text.h"

#include "bindings/cli/terminal_text.h"

namespace cairn::cli {

std::map<std::string, std::string> names_by_id(const std::vector<SessionInfo>& sessions) {
  std::map<std::string, std::string> names;
  for (const SessionInfo& session : sessions) names.emplace(session.id, session.name);
  return names;
}

std::string name_of(const std::string& id, const std::map<std::string, std::string>& names) {
  const auto found = names.find(id);
  return found == names.end() ? "a removed session" : printable(found->second);
}

std::string remarks(const SessionInfo& session, const std::map<std::string, std::string>& names) {
  std::string text;
  const auto add = [&](const std::string& remark) { text += (text.empty() ? "" : ", ") + remark; };
  if (session.turn_open) add("turn open");
  if (!session.forked_from.empty()) add("fork of " + name_of(session.forked_from, names));
  for (const auto& [key, value] : session.labels) add(printable(key) + "=" + printable(value));
  return text;
}

void write_session(const SessionInfo& session, JsonWriter& json) {
  json.begin_object();
  json.key("id").string(session.id);
  json.key("name").string(session.name);
  json.key("model_fingerprint").string(printable(session.model_fingerprint));
  json.key("created_ms").integer(session.created_ms);
  json.key("used_ms").integer(session.used_ms);
  json.key("n_events").integer(session.n_events);
  json.key("n_tokens").integer(session.n_tokens);
  json.key("turn_open").boolean(session.turn_open);
  json.key("forked_from").string(session.forked_from);
  json.key("labels").begin_object();
  for (const auto& [key, value] : session.labels) json.key(key).string(value);
  json.end_object();
  json.end_object();
}

}  // namespace cairn::cli
