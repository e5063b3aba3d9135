// An agent's conversation with a person: the model answers, its calls run in a folder after the
// person agreed, their results go back, until it stops calling tools.
//
// It keeps no state of its own but what the person allowed for good: where the conversation stands
// is read from the session, so a process that was killed at any instant is continued by another.
#ifndef CAIRN_BINDINGS_CLI_CHAT_H_
#define CAIRN_BINDINGS_CLI_CHAT_H_

#include <set>
#include <string>
#include <vector>

#include "bindings/cli/chat_terminal.h"
#include "cairn/session.h"

namespace cairn::cli {

class Chat {
 public:
  // `terminal` outlives the chat. Tools work in the folder `workspace`.
  Chat(Session session, std::string workspace, TurnOptions turn, ChatTerminal& terminal);

  // Shows where the conversation stands; begins a new one.
  Status begin();
  // Reads what the person says and answers, until there is no more.
  Status converse();

 private:
  enum class Step { kDone, kStopped };  // kStopped: by the person, calls or the answer wait

  Status say(const std::string& text);
  Status go_on();
  bool is_unfinished(const std::vector<Message>& messages) const;
  Result<Step> run_calls(const std::vector<Message>& messages);
  Result<EndReason> answer(bool resume);
  void note_end(const Event& end);
  Status decline(const std::vector<ToolCall>& calls);
  enum class Consent { kYes, kNo, kStop };
  Consent ask(const ToolCall& call);
  void show_usage(const TurnUsage& usage);

  Session session_;
  std::string workspace_;
  TurnOptions turn_;
  ChatTerminal& terminal_;
  std::set<std::string> allowed_;  // names of tools
  bool input_ended_ = false;
};

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_CHAT_H_
