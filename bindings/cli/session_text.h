// One session in words: shared by the list and the detailed view.
#ifndef CAIRN_BINDINGS_CLI_SESSION_TEXT_H_
#define CAIRN_BINDINGS_CLI_SESSION_TEXT_H_

#include <map>
#include <string>
#include <vector>

#include "bindings/cli/json_writer.h"
#include "cairn/store.h"

namespace cairn::cli {

std::map<std::string, std::string> names_by_id(const std::vector<SessionInfo>& sessions);

// The session's name for a person; its id where it is gone.
std::string name_of(const std::string& id, const std::map<std::string, std::string>& names);

// "turn open, fork of main, project=x": empty for a plain session.
std::string remarks(const SessionInfo& session, const std::map<std::string, std::string>& names);

void write_session(const SessionInfo& session, JsonWriter& json);

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_SESSION_TEXT_H_
