// Messages as JSON in the OpenAI chat shape, both ways (fields: spec/prompt-format.md section 2).
#ifndef CAIRN_ENGINE_CHAT_MESSAGE_H_
#define CAIRN_ENGINE_CHAT_MESSAGE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn::engine {

// One message object. `index` is its place in the conversation: a `developer` message is a system
// message at index 0 and a user message elsewhere. Fields this library does not know are ignored,
// null counts as absent. `id` "msg_17" is event 17. JSON that is kept as text (tools, schemas, arguments) is normalised to
// Python's spelling. kInvalidArgument names the field.
Result<Message> parse_message(std::string_view json, std::size_t index = 0);

// An array of them.
Result<std::vector<Message>> parse_messages(std::string_view json);

// parse_message of the result gives the same message, with two exceptions: sampled tokens are not
// part of this shape, and invalid UTF-8 becomes U+FFFD.
std::string message_to_json(const Message& message);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_CHAT_MESSAGE_H_
