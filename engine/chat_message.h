// Messages as JSON in the OpenAI chat shape, both ways.
#ifndef CAIRN_ENGINE_CHAT_MESSAGE_H_
#define CAIRN_ENGINE_CHAT_MESSAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn::engine {

// One message object. kInvalidArgument names the field.
Result<Message> parse_message(std::string_view json);
// An array of them.
Result<std::vector<Message>> parse_messages(std::string_view json);
std::string message_to_json(const Message& message);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_CHAT_MESSAGE_H_
