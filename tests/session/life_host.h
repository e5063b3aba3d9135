// What the program that lives in the random lives says to the test that drives it: one JSON object
// a line, each way.
#ifndef CAIRN_TESTS_SESSION_LIFE_HOST_H_
#define CAIRN_TESTS_SESSION_LIFE_HOST_H_

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/message.h"
#include "engine/chat_message.h"

namespace cairn::test {

namespace json = boost::json;

inline constexpr std::int64_t kLifeQuotaBytes = 64 << 20;

// A message as the chat shape has it, and besides that its tokens and its event.
inline json::object to_wire(const Message& message) {
  json::array tokens;
  for (const TokenId token : message.sampled_tokens) tokens.push_back(token);
  return {{"message", json::parse(engine::message_to_json(message))},
          {"tokens", tokens},
          {"event", message.event}};
}

inline Message from_wire(const json::object& wire) {
  const std::string text = json::serialize(wire.at("message"));
  Message message = *engine::parse_message(text);
  for (const json::value& token : wire.at("tokens").as_array()) {
    message.sampled_tokens.push_back(token.to_number<TokenId>());
  }
  message.event = wire.at("event").to_number<std::uint64_t>();
  return message;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_LIFE_HOST_H_
