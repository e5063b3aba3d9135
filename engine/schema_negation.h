// What a JSON Schema does not allow, as a schema: for `not`, and for `if` where it does not hold.
#ifndef CAIRN_ENGINE_SCHEMA_NEGATION_H_
#define CAIRN_ENGINE_SCHEMA_NEGATION_H_

#include <functional>

#include "engine/json_schema.h"

namespace cairn::engine {

// Makes schemas that belong to a negation.
struct SchemaMaker {
  std::function<Result<SchemaId>(Schema)> add;            // a schema as it is
  std::function<Result<SchemaId>(SchemaId)> negation_of;  // of another one
};

// The schema that a value meets exactly where it does not meet `schema`. oneOf is read as anyOf, so
// what meets several of its schemas is not allowed by its negation. kUnsupported: a keyword whose
// negation is no schema (`items`, `patternProperties`, `propertyNames`, mostly
// `additionalProperties`), by name but without its place.
Result<Schema> negation(const Schema& schema, const SchemaMaker& make);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SCHEMA_NEGATION_H_
