// JSON Schema (draft 2020-12) as a checked graph: what is not supported is refused here, by name.
//
// Keywords: type, enum, const; anyOf, oneOf (read as anyOf: that exactly one holds is not checked),
// allOf, not, if with then and else (what these two can hold: schema_negation.h), $ref into the
// same document (#, #/pointer, #anchor), $anchor, $defs, definitions; properties,
// patternProperties, propertyNames, required, additionalProperties, minProperties, maxProperties,
// dependentRequired, dependentSchemas; items, prefixItems, minItems, maxItems, uniqueItems where
// there is at most one; minLength, maxLength, pattern (schema_pattern.h), format (schema_formats.h:
// date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri, json-pointer); minimum,
// maximum, exclusiveMinimum, exclusiveMaximum, multipleOf an integer up to 1000 (of numbers that
// have at most 15 digits); true and false. As always in JSON Schema, a keyword speaks about values
// of its own type only, and all keywords of a schema have to hold. Annotations are ignored: title,
// description, default, example(s), deprecated, readOnly, writeOnly, $comment, $schema, $id at the
// root, content*, x-*.
#ifndef CAIRN_ENGINE_JSON_SCHEMA_H_
#define CAIRN_ENGINE_JSON_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/byte_dfa.h"
#include "engine/python_json.h"

namespace cairn::engine {

using SchemaId = std::uint32_t;  // index in SchemaGraph::schemas

// What a value can be; a schema has a set of these.
enum SchemaType : std::uint32_t {
  kTypeNull = 1,
  kTypeFalse = 2,
  kTypeTrue = 4,
  kTypeInteger = 8,
  kTypeFraction = 16,  // a number that is no integer; never without kTypeInteger
  kTypeString = 32,
  kTypeArray = 64,
  kTypeObject = 128,
};
inline constexpr std::uint32_t kAnyType = 255;

// One schema as written. Every rule holds for values of its type.
struct Schema {
  std::string pointer;  // where it stands: "#/properties/a"
  std::uint32_t types = kAnyType;
  std::vector<SchemaId> all_of;               // $ref among them
  std::vector<std::vector<SchemaId>> any_of;  // of each list at least one

  std::uint32_t min_length = 0;  // code points
  std::optional<std::uint32_t> max_length;
  std::vector<SharedDfa> texts;  // over the characters of a string, as UTF-8

  std::vector<SharedDfa> ranges;            // over the spelling of a number
  std::optional<SharedDfa> number_choices;  // spellings of the only numbers allowed:
  std::vector<std::string> numbers;

  std::vector<SchemaId> prefix_items;
  std::optional<SchemaId> items;
  std::uint32_t min_items = 0;
  std::optional<std::uint32_t> max_items;

  std::vector<std::pair<std::string, SchemaId>> properties;  // names are unique
  std::vector<std::string> required;
  std::vector<std::pair<SharedDfa, SchemaId>> pattern_properties;
  std::optional<SchemaId> additional_properties;
  bool closed = false;  // additional_properties is false
  std::optional<SchemaId> property_names;
  std::uint32_t min_properties = 0;
  std::optional<std::uint32_t> max_properties;

  const SchemaId* property(std::string_view name) const;  // null if not listed
};

struct SchemaGraph {
  static constexpr std::size_t kMaxSchemas = 20'000;
  static constexpr std::size_t kMaxBytes = 1 << 20;

  std::vector<Schema> schemas;  // 0 is the root
};

// `name` is what messages call the schema. kInvalidArgument: malformed, with the JSON pointer;
// kUnsupported: a keyword or value that is not supported, with its pointer, or too large.
Result<SchemaGraph> parse_json_schema(const JsonValue& schema, std::string_view name);
// From a text of at most kMaxBytes.
Result<SchemaGraph> parse_json_schema(std::string_view json, std::string_view name);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_JSON_SCHEMA_H_
