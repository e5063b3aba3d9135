// Whether a message that a client sent is one that the session has, however the client wrote it.
#ifndef CAIRN_SESSION_MESSAGE_MATCH_H_
#define CAIRN_SESSION_MESSAGE_MATCH_H_

#include <string>
#include <vector>

#include "cairn/message.h"
#include "cairn/session.h"

namespace cairn::session {

// What the prompt shows of the message's content: texts joined by blank lines.
std::string shown_text(const Message& message);

// What a person reads of an answer: without reasoning that a client put in front of the text, and
// without white space around it.
std::string visible_text(const Message& answer);

// Makes reasoning that a client put in front of the text the message's reasoning.
void take_reasoning_out(Message& answer);

// A value that two messages share if the prompt shows them alike or, for answers, if they are one
// answer but for reasoning and the ids of calls. Equal JSON counts as alike.
std::string message_key(const Message& message);

// By what `given` is the answer `stored`; kNone if it is not.
SyncMatch match_answer(const Message& given, const Message& stored);
// Whether a client's rewriting, rather than another answer, may be what made them differ.
bool is_rewritten(const Message& given, const Message& stored);

// The first tool in which two lists differ, and how.
struct ToolDifference {
  std::string tool;  // empty = they say the same, in whichever order
  std::string what;  // "added", "removed" or "changed"
};
ToolDifference compare_tools(const std::string& stored_json, const std::string& given_json);

// Whether the prompt needs `given` where `stored` is. Neither is an answer.
bool says_the_same(const Message& given, const Message& stored);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_MESSAGE_MATCH_H_
