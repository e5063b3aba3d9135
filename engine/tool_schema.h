// Declared tools: the JSON array a host passes, as the prompt prints it and as the output parser
// needs it (spec/prompt-format.md sections 2.3 and 4.2).
#ifndef CAIRN_ENGINE_TOOL_SCHEMA_H_
#define CAIRN_ENGINE_TOOL_SCHEMA_H_

#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "engine/python_json.h"

namespace cairn::engine {

// "ns::name" from a tool's or call's `namespace` (null = none given; a string, or an object with
// `name`) and its name. A name that is qualified already is accepted unless the two disagree.
// kInvalidArgument: an empty part, `::` inside a part, or `"` or `>` anywhere, which the prompt
// format cannot carry.
Result<std::string> qualified_tool_name(const JsonValue* name_space, std::string_view name);

// The `function` object of each tool in `tools_json` (an array in the OpenAI shape), ready to be
// printed: qualified name, description of the namespace prepended, no `namespace` key.
// kInvalidArgument names the tool by its index.
Result<std::vector<JsonValue>> parse_tools(std::string_view tools_json);

// What the output parser asks about a tool.
struct ToolSignature {
  struct Parameter {
    std::string name;
    bool is_string = false;  // the schema allows a string (or null) and nothing else
  };
  std::string name;  // qualified
  std::vector<Parameter> parameters;
  std::vector<std::string> required;

  const Parameter* find(std::string_view parameter) const;  // null if there is none
};

// The signatures of `tools_json`; none if it is empty or malformed.
std::vector<ToolSignature> tool_signatures(std::string_view tools_json);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_TOOL_SCHEMA_H_
