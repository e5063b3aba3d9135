// The values of JSON Schema's `format` as patterns. Each is a subset of what its standard allows,
// as its comment says: a text that is offered is valid, and what programs write is offered.
#ifndef CAIRN_ENGINE_SCHEMA_FORMATS_H_
#define CAIRN_ENGINE_SCHEMA_FORMATS_H_

#include <optional>
#include <string>
#include <string_view>

namespace cairn::engine {

// For compile_pattern. Empty: the format is not known.
std::optional<std::string> format_pattern(std::string_view format);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SCHEMA_FORMATS_H_
