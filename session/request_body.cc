// Request bodies of the three protocols that agents speak, as messages: Chat Completions is what
// the message parser reads; the others are rewritten into it. What an assistant says in several
// items of a Responses body is one message here, as it is one turn of the model.
#include <optional>
#include <string>
#include <utility>

#include "cairn/session.h"
#include "engine/chat_message.h"
#include "engine/python_json.h"

namespace cairn {
namespace session {
namespace {

using engine::JsonValue;
using Kind = engine::JsonValue::Kind;

// The member, or null if it is absent or JSON null.
const JsonValue* given(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr || value->is(Kind::kNull) ? nullptr : value;
}

std::string text_member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = given(object, key);
  return value != nullptr && value->is(Kind::kString) ? value->text : std::string();
}

JsonValue text_block(std::string text) {
  JsonValue block = JsonValue::make_object();
  block.add("type", JsonValue::make_string("text"));
  block.add("text", JsonValue::make_string(std::move(text)));
  return block;
}

JsonValue message_of(std::string_view role, JsonValue content) {
  JsonValue message = JsonValue::make_object();
  message.add("role", JsonValue::make_string(std::string(role)));
  message.add("content", std::move(content));
  return message;
}

JsonValue call_of(std::string id, std::string name, JsonValue arguments) {
  JsonValue function = JsonValue::make_object();
  function.add("name", JsonValue::make_string(std::move(name)));
  function.add("arguments", std::move(arguments));
  JsonValue call = JsonValue::make_object();
  call.add("id", JsonValue::make_string(std::move(id)));
  call.add("type", JsonValue::make_string("function"));
  call.add("function", std::move(function));
  return call;
}

Status unknown_type(const std::string& path, const std::string& type) {
  return invalid_argument(path + ".type: '" + type + "' is not known here");
}

// -- tools --

// A tool of any of the shapes as one of the chat shape; nothing for tools that a provider runs.
std::optional<JsonValue> chat_tool(const JsonValue& tool) {
  if (given(tool, "function") != nullptr) return tool;
  const std::string type = text_member(tool, "type");
  const JsonValue* schema = given(tool, "input_schema");
  if (schema == nullptr) schema = given(tool, "parameters");
  if (schema == nullptr && type != "function" && type != "custom") return std::nullopt;
  JsonValue function = JsonValue::make_object();
  for (const std::string_view key : {"name", "description"}) {
    if (const JsonValue* value = given(tool, key)) function.add(std::string(key), *value);
  }
  if (schema != nullptr) function.add("parameters", *schema);
  JsonValue out = JsonValue::make_object();
  out.add("type", JsonValue::make_string("function"));
  if (const JsonValue* name_space = given(tool, "namespace")) out.add("namespace", *name_space);
  out.add("function", std::move(function));
  return out;
}

// The schema of `response_format` or `text.format`; null if any text will do.
const JsonValue* response_schema(const JsonValue& body) {
  const JsonValue* format = given(body, "response_format");
  if (const JsonValue* text = given(body, "text"); format == nullptr && text != nullptr) {
    format = given(*text, "format");
  }
  if (format == nullptr || text_member(*format, "type") != "json_schema") return nullptr;
  const JsonValue* named = given(*format, "json_schema");
  return given(named == nullptr ? *format : *named, "schema");
}

void set(JsonValue& object, std::string_view key, JsonValue value) {
  if (JsonValue* there = object.find(key)) {
    *there = std::move(value);
  } else {
    object.add(std::string(key), std::move(value));
  }
}

bool is_system(const JsonValue& message) {
  const std::string role = text_member(message, "role");
  return role == "system" || role == "developer";
}

// Puts what the whole request says about tools and format on its first system message.
void place_on_system(const JsonValue& body, JsonValue& messages) {
  JsonValue tools = JsonValue::make_array();
  if (const JsonValue* list = given(body, "tools"); list != nullptr && list->is(Kind::kArray)) {
    for (const JsonValue& tool : list->items) {
      if (auto converted = chat_tool(tool)) tools.items.push_back(std::move(*converted));
    }
  }
  const JsonValue* schema = response_schema(body);
  if (tools.items.empty() && schema == nullptr) return;
  if (messages.items.empty() || !is_system(messages.items[0])) {
    messages.items.insert(messages.items.begin(), message_of("system", JsonValue::make_string("")));
  }
  if (!tools.items.empty()) set(messages.items[0], "tools", std::move(tools));
  if (schema != nullptr) set(messages.items[0], "response_format", *schema);
}

// -- Anthropic Messages --

Result<JsonValue> from_messages_shape(const JsonValue& message, const std::string& path) {
  const JsonValue* content = given(message, "content");
  if (content == nullptr || !content->is(Kind::kArray)) return message;
  JsonValue blocks = JsonValue::make_array(), calls = JsonValue::make_array();
  std::string reasoning;
  for (std::size_t i = 0; i < content->items.size(); ++i) {
    const JsonValue& block = content->items[i];
    const std::string type = text_member(block, "type");
    if (type == "thinking") {
      reasoning += text_member(block, "thinking");
    } else if (type == "tool_use") {
      const JsonValue* input = given(block, "input");
      calls.items.push_back(call_of(text_member(block, "id"), text_member(block, "name"),
                                    input == nullptr ? JsonValue::make_object() : *input));
    } else if (type == "text" || type == "image" || type == "tool_result") {
      blocks.items.push_back(block);
    } else if (type != "redacted_thinking") {
      return unknown_type(path + ".content[" + std::to_string(i) + "]", type);
    }
  }
  JsonValue out = message_of(text_member(message, "role"), std::move(blocks));
  if (const JsonValue* id = given(message, "id")) out.add("id", *id);
  if (!reasoning.empty()) out.add("reasoning_content", JsonValue::make_string(reasoning));
  if (!calls.items.empty()) out.add("tool_calls", std::move(calls));
  return out;
}

// -- Chat Completions --

// Some servers call the reasoning of an answer `reasoning`.
JsonValue from_chat_shape(JsonValue message) {
  if (const JsonValue* reasoning = given(message, "reasoning");
      reasoning != nullptr && reasoning->is(Kind::kString) &&
      given(message, "reasoning_content") == nullptr) {
    set(message, "reasoning_content", *reasoning);
  }
  return message;
}

Result<JsonValue> messages_of(const JsonValue& list) {
  if (!list.is(Kind::kArray)) return invalid_argument("messages: expected a list");
  JsonValue messages = JsonValue::make_array();
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(
        JsonValue message,
        from_messages_shape(list.items[i], "messages[" + std::to_string(i) + "]"));
    messages.items.push_back(from_chat_shape(std::move(message)));
  }
  return messages;
}

// -- Responses --

// Texts of a list of parts, or a text, as content of the chat shape.
Result<JsonValue> content_of(const JsonValue* content, const std::string& path) {
  if (content == nullptr) return JsonValue();
  if (!content->is(Kind::kArray)) return *content;
  JsonValue blocks = JsonValue::make_array();
  for (std::size_t i = 0; i < content->items.size(); ++i) {
    const JsonValue& part = content->items[i];
    const std::string type = text_member(part, "type");
    if (type == "input_text" || type == "output_text" || type == "text" || type == "refusal") {
      blocks.items.push_back(text_block(text_member(part, type == "refusal" ? type : "text")));
    } else if (type == "input_image") {
      JsonValue image = JsonValue::make_object();
      image.add("type", JsonValue::make_string("image"));
      blocks.items.push_back(std::move(image));
    } else {
      return unknown_type(path + "[" + std::to_string(i) + "]", type);
    }
  }
  return blocks;
}

std::string reasoning_of(const JsonValue& item) {
  for (const std::string_view key : {"content", "summary"}) {
    const JsonValue* parts = given(item, key);
    if (parts == nullptr || !parts->is(Kind::kArray)) continue;
    std::string text;
    for (const JsonValue& part : parts->items) text += text_member(part, "text");
    if (!text.empty()) return text;
  }
  return {};
}

// Gathers the items that an assistant's turn consists of.
class ItemReader {
 public:
  Status add(const JsonValue& item, const std::string& path) {
    const std::string type = text_member(item, "type");
    if (type == "reasoning") return add_reasoning(item);
    if (type == "web_search_call") return {};  // the provider's, which keeps what it found
    if (type == "function_call" || type == "custom_tool_call" || type == "local_shell_call") {
      return add_call(item, type);
    }
    if (type == "function_call_output" || type == "custom_tool_call_output" ||
        type == "local_shell_call_output") {
      return add_result(item, path);
    }
    if (type == "message" || type.empty()) return add_message(item, path);
    return unknown_type(path, type);
  }
  JsonValue take() {
    end_answer();
    return std::move(messages_);
  }

 private:
  struct Answer {
    std::string reasoning;
    std::optional<JsonValue> content, id;
    JsonValue calls = JsonValue::make_array();
  };

  // What comes after text or calls is another answer, unless it is more calls.
  Answer& answer(bool goes_on) {
    if (answer_ && !goes_on && (answer_->content || !answer_->calls.items.empty())) end_answer();
    if (!answer_) answer_.emplace();
    return *answer_;
  }
  void end_answer() {
    if (!answer_) return;
    JsonValue message = message_of("assistant", answer_->content.value_or(JsonValue()));
    if (answer_->id) message.add("id", std::move(*answer_->id));
    if (!answer_->reasoning.empty()) {
      message.add("reasoning_content", JsonValue::make_string(answer_->reasoning));
    }
    if (!answer_->calls.items.empty()) message.add("tool_calls", std::move(answer_->calls));
    messages_.items.push_back(std::move(message));
    answer_.reset();
  }

  Status add_reasoning(const JsonValue& item) {
    answer(false).reasoning += reasoning_of(item);
    return {};
  }
  Status add_call(const JsonValue& item, const std::string& type) {
    JsonValue arguments = JsonValue::make_object();
    std::string name = text_member(item, "name");
    if (type == "local_shell_call") {
      name = "local_shell";
      if (const JsonValue* action = given(item, "action")) arguments = *action;
    } else if (type == "custom_tool_call") {
      arguments.add("input", JsonValue::make_string(text_member(item, "input")));
    } else if (const JsonValue* there = given(item, "arguments")) {
      arguments = *there;
    }
    JsonValue call = call_of(text_member(item, "call_id"), std::move(name), std::move(arguments));
    if (const JsonValue* name_space = given(item, "namespace")) call.add("namespace", *name_space);
    answer(true).calls.items.push_back(std::move(call));
    return {};
  }
  Status add_result(const JsonValue& item, const std::string& path) {
    end_answer();
    CAIRN_ASSIGN_OR_RETURN(JsonValue content, content_of(given(item, "output"), path + ".output"));
    JsonValue message = message_of("tool", std::move(content));
    message.add("tool_call_id", JsonValue::make_string(text_member(item, "call_id")));
    messages_.items.push_back(std::move(message));
    return {};
  }
  Status add_message(const JsonValue& item, const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(JsonValue content,
                           content_of(given(item, "content"), path + ".content"));
    const std::string role = text_member(item, "role");
    if (role == "assistant") {
      Answer& open = answer(false);
      open.content = std::move(content);
      if (const JsonValue* id = given(item, "id")) open.id = *id;
      return {};
    }
    end_answer();
    messages_.items.push_back(message_of(role, std::move(content)));
    return {};
  }

  JsonValue messages_ = JsonValue::make_array();
  std::optional<Answer> answer_;
};

Result<JsonValue> items_of(const JsonValue& input) {
  if (input.is(Kind::kString)) {
    JsonValue messages = JsonValue::make_array();
    messages.items.push_back(message_of("user", input));
    return messages;
  }
  if (!input.is(Kind::kArray)) return invalid_argument("input: expected a text or a list");
  ItemReader reader;
  for (std::size_t i = 0; i < input.items.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(reader.add(input.items[i], "input[" + std::to_string(i) + "]"));
  }
  return reader.take();
}

}  // namespace
}  // namespace session

Result<std::vector<Message>> parse_request(std::string_view json) {
  using session::given;
  using Kind = engine::JsonValue::Kind;
  CAIRN_ASSIGN_OR_RETURN(engine::JsonValue body, engine::parse_json(json));
  if (body.is(Kind::kArray)) {
    CAIRN_ASSIGN_OR_RETURN(const engine::JsonValue messages, session::messages_of(body));
    return engine::parse_messages(engine::to_python_json(messages));
  }
  const engine::JsonValue* list = given(body, "messages");
  const engine::JsonValue* input = given(body, "input");
  if (list == nullptr && input == nullptr) {
    return invalid_argument("request: it has neither messages nor input",
                            "give the body of a Chat Completions, Messages or Responses request");
  }
  if (given(body, "previous_response_id") != nullptr) {
    return invalid_argument("previous_response_id: responses are not kept for clients",
                            "send the whole conversation as input");
  }
  CAIRN_ASSIGN_OR_RETURN(engine::JsonValue messages,
                         list != nullptr ? session::messages_of(*list) : session::items_of(*input));
  const engine::JsonValue* system = given(body, list != nullptr ? "system" : "instructions");
  if (system != nullptr) {
    messages.items.insert(messages.items.begin(), session::message_of("system", *system));
  }
  session::place_on_system(body, messages);
  return engine::parse_messages(engine::to_python_json(messages));
}

}  // namespace cairn
