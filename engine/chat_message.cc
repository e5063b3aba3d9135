// Reads field by field into Message and reports the path of what does not fit, as in
// "content[1].type: unknown block type 'video'". What a message may carry in which role is the
// template's business (chat_template.h, check_message).
#include "engine/chat_message.h"

#include <charconv>
#include <utility>

#include "engine/python_json.h"
#include "engine/tool_schema.h"
#include "engine/utf8.h"

namespace cairn {

Message Message::system(std::string text, std::string tools_json) {
  Message message;
  message.role = Role::kSystem;
  message.content.push_back({ContentBlock::Kind::kText, std::move(text), {}});
  message.tools_json = std::move(tools_json);
  return message;
}

Message Message::user(std::string text) {
  Message message;
  message.role = Role::kUser;
  message.content.push_back({ContentBlock::Kind::kText, std::move(text), {}});
  return message;
}

Message Message::tool_result(std::string tool_call_id, std::string text) {
  Message message;
  message.role = Role::kTool;
  message.tool_call_id = std::move(tool_call_id);
  message.content.push_back({ContentBlock::Kind::kText, std::move(text), {}});
  return message;
}

}  // namespace cairn

namespace cairn::engine {
namespace {

using Kind = JsonValue::Kind;

Status wrong_kind(const std::string& path, std::string_view expected, const JsonValue& found) {
  return invalid_argument(path + ": expected " + std::string(expected) + ", found " +
                          std::string(json_kind_name(found.kind)));
}

Status at(const std::string& path, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), path + ": " + std::string(status.message()), std::string(status.hint())};
}

// The member, or null if it is absent or JSON null.
const JsonValue* given(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr || value->is(Kind::kNull) ? nullptr : value;
}

Status read_string(const JsonValue& object, const std::string& path, const char* key,
                   std::string& out) {
  const JsonValue* value = given(object, key);
  if (value == nullptr) return {};
  if (!value->is(Kind::kString)) return wrong_kind(path + key, "a string", *value);
  out = value->text;
  return {};
}

Status read_bool(const JsonValue& object, const std::string& path, const char* key, bool& out) {
  const JsonValue* value = given(object, key);
  if (value == nullptr) return {};
  if (!value->is(Kind::kBool)) return wrong_kind(path + key, "a boolean", *value);
  out = value->boolean;
  return {};
}

// "msg_17" is the message of event 17; clients have ids of their own, too.
constexpr std::string_view kIdPrefix = "msg_";
std::uint64_t event_of(std::string_view id) {
  if (!id.starts_with(kIdPrefix)) return 0;
  id.remove_prefix(kIdPrefix.size());
  std::uint64_t event = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), event);
  return error == std::errc() && end == id.data() + id.size() ? event : 0;
}

Result<Role> read_role(const JsonValue& object, std::size_t index) {
  const JsonValue* role = given(object, "role");
  if (role == nullptr) return invalid_argument("role: missing");
  if (!role->is(Kind::kString)) return wrong_kind("role", "a string", *role);
  if (role->text == "system") return Role::kSystem;
  if (role->text == "user") return Role::kUser;
  if (role->text == "assistant") return Role::kAssistant;
  if (role->text == "tool") return Role::kTool;
  if (role->text == "latest_reminder") return Role::kLatestReminder;
  if (role->text == "developer") return index == 0 ? Role::kSystem : Role::kUser;
  return invalid_argument("role: unknown role '" + role->text + "'",
                          "roles are system, developer, user, assistant, tool and latest_reminder");
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kLatestReminder:
      return "latest_reminder";
  }
  return "user";
}

// Result content inside a user message: a string, or a list of text blocks that the prompt joins
// by blank lines.
Status read_result_text(const JsonValue& block, const std::string& path, std::string& out) {
  const JsonValue* content = given(block, "content");
  if (content == nullptr) return {};
  if (content->is(Kind::kString)) {
    out = content->text;
    return {};
  }
  if (!content->is(Kind::kArray)) {
    return wrong_kind(path + "content", "a string or a list of text blocks", *content);
  }
  for (std::size_t i = 0; i < content->items.size(); ++i) {
    const std::string item = path + "content[" + std::to_string(i) + "].";
    const JsonValue* type = given(content->items[i], "type");
    if (type == nullptr || type->text != "text") {
      return invalid_argument(item + "type: only text blocks fit inside a tool_result block",
                              "send results with images as messages of role tool");
    }
    std::string text;
    CAIRN_RETURN_IF_ERROR(read_string(content->items[i], item, "text", text));
    if (i > 0) out += "\n\n";
    out += text;
  }
  return {};
}

Result<ContentBlock> read_block(const JsonValue& value, const std::string& path) {
  if (!value.is(Kind::kObject)) return wrong_kind(path, "an object", value);
  const std::string inside = path + ".";
  std::string type;
  CAIRN_RETURN_IF_ERROR(read_string(value, inside, "type", type));
  ContentBlock block;
  if (type == "text") {
    CAIRN_RETURN_IF_ERROR(read_string(value, inside, "text", block.text));
    CAIRN_RETURN_IF_ERROR(read_bool(value, inside, "volatile", block.is_volatile));
  } else if (type == "image" || type == "image_url") {
    block.kind = ContentBlock::Kind::kImage;
  } else if (type == "tool_result") {
    block.kind = ContentBlock::Kind::kToolResult;
    CAIRN_RETURN_IF_ERROR(read_string(value, inside, "tool_use_id", block.tool_call_id));
    CAIRN_RETURN_IF_ERROR(read_string(value, inside, "tool_call_id", block.tool_call_id));
    CAIRN_RETURN_IF_ERROR(read_result_text(value, inside, block.text));
  } else {
    return invalid_argument(inside + "type: unknown block type '" + type + "'",
                            "blocks are text, image, image_url and tool_result");
  }
  return block;
}

Status read_content(const JsonValue& object, std::vector<ContentBlock>& out) {
  const JsonValue* content = given(object, "content");
  if (content == nullptr) return {};
  if (content->is(Kind::kString)) {
    out.push_back({ContentBlock::Kind::kText, content->text, {}});
    return {};
  }
  if (!content->is(Kind::kArray)) {
    return wrong_kind("content", "a string or a list of blocks", *content);
  }
  for (std::size_t i = 0; i < content->items.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(ContentBlock block,
                           read_block(content->items[i], "content[" + std::to_string(i) + "]"));
    out.push_back(std::move(block));
  }
  return {};
}

// Arguments as an object, a string that holds one, or a string that holds such a string. Anything
// else becomes the one argument `arguments`, as the reference does.
JsonValue read_arguments(const JsonValue* arguments) {
  if (arguments == nullptr) return JsonValue::make_object();
  JsonValue decoded = *arguments;
  for (int i = 0; i < 2 && decoded.is(Kind::kString); ++i) {
    auto inner = parse_json(decoded.text);
    if (!inner.ok()) break;
    decoded = std::move(*inner);
  }
  if (decoded.is(Kind::kObject)) return decoded;
  JsonValue wrapped = JsonValue::make_object();
  wrapped.add("arguments", *arguments);
  return wrapped;
}

Result<ToolCall> read_tool_call(const JsonValue& value, const std::string& path) {
  if (!value.is(Kind::kObject)) return wrong_kind(path, "an object", value);
  const JsonValue* function = given(value, "function");
  if (function == nullptr) return invalid_argument(path + ".function: missing");
  if (!function->is(Kind::kObject)) return wrong_kind(path + ".function", "an object", *function);

  ToolCall call;
  CAIRN_RETURN_IF_ERROR(read_string(value, path + ".", "id", call.id));
  std::string name;
  CAIRN_RETURN_IF_ERROR(read_string(*function, path + ".function.", "name", name));
  const JsonValue* name_space = given(value, "namespace");
  if (name_space == nullptr) name_space = given(*function, "namespace");
  auto qualified = qualified_tool_name(name_space, name);
  if (!qualified.ok()) return at(path + ".function.name", qualified.status());
  call.name = std::move(*qualified);
  call.arguments_json = to_python_json(read_arguments(function->find("arguments")));
  return call;
}

Status read_tool_calls(const JsonValue& object, std::vector<ToolCall>& out) {
  const JsonValue* calls = given(object, "tool_calls");
  if (calls == nullptr) return {};
  if (!calls->is(Kind::kArray)) return wrong_kind("tool_calls", "a list", *calls);
  for (std::size_t i = 0; i < calls->items.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(
        ToolCall call, read_tool_call(calls->items[i], "tool_calls[" + std::to_string(i) + "]"));
    out.push_back(std::move(call));
  }
  return {};
}

Status read_tools(const JsonValue& object, std::string& out) {
  const JsonValue* tools = given(object, "tools");
  if (tools == nullptr) return {};
  if (!tools->is(Kind::kArray)) return wrong_kind("tools", "a list", *tools);
  if (tools->items.empty()) return {};
  out = to_python_json(*tools);
  const auto functions = parse_tools(out);
  return functions.ok() ? Status() : functions.status();
}

Result<Message> read_message(const JsonValue& object, std::size_t index) {
  if (!object.is(Kind::kObject)) {
    return invalid_argument("expected an object, found " +
                            std::string(json_kind_name(object.kind)));
  }
  Message message;
  CAIRN_ASSIGN_OR_RETURN(message.role, read_role(object, index));
  CAIRN_RETURN_IF_ERROR(read_content(object, message.content));
  CAIRN_RETURN_IF_ERROR(read_tools(object, message.tools_json));
  if (const JsonValue* format = given(object, "response_format")) {
    message.response_format_json = to_python_json(*format);
  }
  CAIRN_RETURN_IF_ERROR(read_string(object, "", "reasoning_content", message.reasoning));
  CAIRN_RETURN_IF_ERROR(read_tool_calls(object, message.tool_calls));
  CAIRN_RETURN_IF_ERROR(read_string(object, "", "tool_call_id", message.tool_call_id));
  CAIRN_RETURN_IF_ERROR(read_string(object, "", "task", message.task));
  CAIRN_RETURN_IF_ERROR(read_bool(object, "", "wo_eos", message.leave_open));
  std::string id;
  CAIRN_RETURN_IF_ERROR(read_string(object, "", "id", id));
  message.event = event_of(id);
  return message;
}

// ---- writing ----

JsonValue string_value(std::string_view text) {
  return JsonValue::make_string(replace_invalid_utf8(text));
}

// JSON kept as text in a message. A host may have put anything there; what is no JSON is written as
// a string, so that the whole stays JSON.
JsonValue embedded_json(std::string_view json) {
  auto value = parse_json(json);
  return value.ok() ? std::move(*value) : string_value(json);
}

JsonValue block_value(const ContentBlock& block) {
  JsonValue value = JsonValue::make_object();
  switch (block.kind) {
    case ContentBlock::Kind::kText:
      value.add("type", string_value("text"));
      value.add("text", string_value(block.text));
      if (block.is_volatile) value.add("volatile", JsonValue::make_bool(true));
      break;
    case ContentBlock::Kind::kImage:
      value.add("type", string_value("image"));
      break;
    case ContentBlock::Kind::kToolResult:
      value.add("type", string_value("tool_result"));
      value.add("tool_call_id", string_value(block.tool_call_id));
      value.add("content", string_value(block.text));
      break;
  }
  return value;
}

JsonValue content_value(const std::vector<ContentBlock>& content) {
  if (content.empty()) return {};
  if (content.size() == 1 && content[0].kind == ContentBlock::Kind::kText &&
      !content[0].is_volatile) {
    return string_value(content[0].text);
  }
  JsonValue blocks = JsonValue::make_array();
  for (const ContentBlock& block : content) blocks.items.push_back(block_value(block));
  return blocks;
}

JsonValue tool_calls_value(const std::vector<ToolCall>& calls) {
  JsonValue list = JsonValue::make_array();
  for (const ToolCall& call : calls) {
    JsonValue function = JsonValue::make_object();
    function.add("name", string_value(call.name));
    function.add("arguments", string_value(call.arguments_json));
    JsonValue value = JsonValue::make_object();
    value.add("id", string_value(call.id));
    value.add("type", string_value("function"));
    value.add("function", std::move(function));
    list.items.push_back(std::move(value));
  }
  return list;
}

}  // namespace

Result<Message> parse_message(std::string_view json, std::size_t index) {
  auto object = parse_json(json);
  if (!object.ok()) return at("message", object.status());
  auto message = read_message(*object, index);
  if (!message.ok()) return at("message", message.status());
  return message;
}

Result<std::vector<Message>> parse_messages(std::string_view json) {
  auto list = parse_json(json);
  if (!list.ok()) return at("messages", list.status());
  if (!list->is(Kind::kArray)) return wrong_kind("messages", "a list", *list);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    auto message = read_message(list->items[i], i);
    if (!message.ok()) return at("messages[" + std::to_string(i) + "]", message.status());
    messages.push_back(std::move(*message));
  }
  return messages;
}

std::string message_to_json(const Message& message) {
  JsonValue object = JsonValue::make_object();
  if (message.event != 0) {
    object.add("id", string_value(std::string(kIdPrefix) + std::to_string(message.event)));
  }
  object.add("role", string_value(role_name(message.role)));
  if (!message.reasoning.empty()) {
    object.add("reasoning_content", string_value(message.reasoning));
  }
  object.add("content", content_value(message.content));
  if (!message.tools_json.empty()) object.add("tools", embedded_json(message.tools_json));
  if (!message.response_format_json.empty()) {
    object.add("response_format", embedded_json(message.response_format_json));
  }
  if (!message.tool_calls.empty()) object.add("tool_calls", tool_calls_value(message.tool_calls));
  if (!message.tool_call_id.empty()) {
    object.add("tool_call_id", string_value(message.tool_call_id));
  }
  if (!message.task.empty()) object.add("task", string_value(message.task));
  if (message.leave_open) object.add("wo_eos", JsonValue::make_bool(true));
  return to_python_json(object);
}

}  // namespace cairn::engine
