#include "engine/tool_schema.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {
namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view kSeparator = "::";

Status check_name_part(std::string_view part, std::string_view whole) {
  if (part.empty()) {
    return invalid_argument("tool name '" + std::string(whole) + "' has an empty part");
  }
  if (part.find(kSeparator) != std::string_view::npos) {
    return invalid_argument("tool name '" + std::string(whole) + "' has more than one '::'",
                            "only one namespace is possible");
  }
  if (part.find_first_of("\">") != std::string_view::npos) {
    return invalid_argument("tool name '" + std::string(whole) + "' contains '\"' or '>'",
                            "the prompt format cannot represent these; rename the tool");
  }
  return {};
}

Result<std::string> namespace_name(const JsonValue& name_space) {
  if (name_space.is(Kind::kString)) return name_space.text;
  const JsonValue* name = name_space.find("name");
  if (name != nullptr && name->is(Kind::kString)) return name->text;
  return invalid_argument("namespace is neither a string nor an object with a string `name`");
}

std::string_view namespace_description(const JsonValue& name_space) {
  const JsonValue* description = name_space.find("description");
  return description != nullptr && description->is(Kind::kString) ? description->text
                                                                  : std::string_view();
}

void prepend_description(std::string_view first, JsonValue& function) {
  if (function.find("description") == nullptr) {
    function.add("description", JsonValue::make_string(""));
  }
  JsonValue& description = *function.find("description");
  description = JsonValue::make_string(std::string(first) + "\n" + description.text);
}

void remove_member(JsonValue& object, std::string_view key) {
  std::erase_if(object.members, [&](const JsonMember& member) { return member.key == key; });
}

Result<JsonValue> printable_function(const JsonValue& tool) {
  const JsonValue* wrapped = tool.find("function");
  if (wrapped == nullptr || !wrapped->is(Kind::kObject)) {
    return invalid_argument("no `function` object");
  }
  JsonValue function = *wrapped;
  JsonValue* name = function.find("name");
  if (name == nullptr || !name->is(Kind::kString)) {
    return invalid_argument("function.name is missing or no string");
  }
  const JsonValue* name_space = tool.find("namespace");
  if (name_space == nullptr) name_space = wrapped->find("namespace");
  CAIRN_ASSIGN_OR_RETURN(name->text, qualified_tool_name(name_space, name->text));
  if (name_space != nullptr && !namespace_description(*name_space).empty()) {
    prepend_description(namespace_description(*name_space), function);
  }
  remove_member(function, "namespace");
  return function;
}

// `type` is "string", or a list that holds it and at most "null" beside it.
bool allows_only_strings(const JsonValue& schema) {
  const JsonValue* type = schema.find("type");
  if (type == nullptr) return false;
  if (type->is(Kind::kString)) return type->text == "string";
  const auto names = [&](std::string_view name) {
    return [name](const JsonValue& item) { return item.text == name; };
  };
  return std::ranges::any_of(type->items, names("string")) &&
         std::ranges::all_of(type->items, [](const JsonValue& item) {
           return item.text == "string" || item.text == "null";
         });
}

ToolSignature signature(const JsonValue& function) {
  ToolSignature tool;
  tool.name = function.find("name")->text;
  const JsonValue* schema = function.find("parameters");
  if (schema == nullptr) return tool;
  if (const JsonValue* properties = schema->find("properties")) {
    for (const JsonMember& property : properties->members) {
      tool.parameters.push_back({property.key, allows_only_strings(property.value)});
    }
  }
  if (const JsonValue* required = schema->find("required")) {
    for (const JsonValue& name : required->items) tool.required.push_back(name.text);
  }
  return tool;
}

}  // namespace

Result<std::string> qualified_tool_name(const JsonValue* name_space, std::string_view name) {
  const std::size_t split = name.find(kSeparator);
  const bool is_qualified = split != std::string_view::npos;
  const std::string_view own = is_qualified ? name.substr(split + kSeparator.size()) : name;
  std::string qualifier(is_qualified ? name.substr(0, split) : std::string_view());

  const bool has_namespace = name_space != nullptr && !name_space->is(Kind::kNull);
  if (has_namespace) {
    CAIRN_ASSIGN_OR_RETURN(std::string given, namespace_name(*name_space));
    if (is_qualified && given != qualifier) {
      return invalid_argument("tool name '" + std::string(name) + "' disagrees with namespace '" +
                              given + "'");
    }
    qualifier = std::move(given);
  }
  CAIRN_RETURN_IF_ERROR(check_name_part(own, name));
  if (!has_namespace && !is_qualified) return std::string(own);
  CAIRN_RETURN_IF_ERROR(check_name_part(qualifier, name));
  return qualifier + std::string(kSeparator) + std::string(own);
}

Result<std::vector<JsonValue>> parse_tools(std::string_view tools_json) {
  auto tools = parse_json(tools_json);
  if (!tools.ok()) return invalid_argument("tools: " + std::string(tools.status().message()));
  if (!tools->is(Kind::kArray)) {
    return invalid_argument("tools: expected an array, found " +
                            std::string(json_kind_name(tools->kind)));
  }
  std::vector<JsonValue> functions;
  for (std::size_t i = 0; i < tools->items.size(); ++i) {
    auto function = printable_function(tools->items[i]);
    if (!function.ok()) {
      return invalid_argument(
          "tools[" + std::to_string(i) + "]: " + std::string(function.status().message()),
          std::string(function.status().hint()));
    }
    functions.push_back(std::move(*function));
  }
  return functions;
}

const ToolSignature::Parameter* ToolSignature::find(std::string_view parameter) const {
  const auto found = std::ranges::find(parameters, parameter, &Parameter::name);
  return found == parameters.end() ? nullptr : &*found;
}

std::vector<ToolSignature> tool_signatures(std::string_view tools_json) {
  std::vector<ToolSignature> signatures;
  if (tools_json.empty()) return signatures;
  const auto functions = parse_tools(tools_json);
  if (!functions.ok()) return signatures;
  for (const JsonValue& function : *functions) signatures.push_back(signature(function));
  return signatures;
}

}  // namespace cairn::engine
