// De Morgan: a schema's rules all hold, so one of its negation's alternatives is that one of them
// does not. A rule speaks about values of one type only: that it does not hold means that the value
// is of this type and breaks it.
#include "engine/schema_negation.h"

#include <algorithm>
#include <utility>

#include "engine/decimal_order.h"
#include "engine/schema_pattern.h"

namespace cairn::engine {
namespace {

constexpr std::uint32_t kNumber = kTypeInteger | kTypeFraction;

class Negation {
 public:
  Negation(const Schema& schema, const SchemaMaker& make) : schema_(schema), make_(make) {}

  Result<Schema> run() {
    CAIRN_RETURN_IF_ERROR(negate_types());
    CAIRN_RETURN_IF_ERROR(negate_strings());
    CAIRN_RETURN_IF_ERROR(negate_numbers());
    CAIRN_RETURN_IF_ERROR(negate_arrays());
    CAIRN_RETURN_IF_ERROR(negate_objects());
    CAIRN_RETURN_IF_ERROR(negate_combinations());
    Schema out;
    out.pointer = schema_.pointer;
    if (alternatives_.empty()) out.types = 0;
    if (!alternatives_.empty()) out.any_of.push_back(std::move(alternatives_));
    return out;
  }

 private:
  Schema of_type(std::uint32_t types) const {
    Schema out;
    out.pointer = schema_.pointer;
    out.types = types;
    return out;
  }
  Status add(Schema alternative) {
    CAIRN_ASSIGN_OR_RETURN(const SchemaId id, make_.add(std::move(alternative)));
    alternatives_.push_back(id);
    return {};
  }
  Status unsupported(const std::string& keyword) const {
    return {StatusCode::kUnsupported,
            "keyword '" + keyword + "' is not supported inside of not and if"};
  }

  Status negate_types() {
    const std::uint32_t others = kAnyType & ~schema_.types;
    if (others == 0) return {};
    Schema alternative = of_type(others);
    if ((others & kNumber) == kTypeFraction) {
      alternative.types |= kTypeInteger;
      CAIRN_ASSIGN_OR_RETURN(SharedDfa fractions,
                             compile_pattern("^-?[0-9]+\\.[0-9]*[1-9][0-9]*$"));
      alternative.ranges.push_back(std::move(fractions));
    }
    return add(std::move(alternative));
  }

  Status negate_strings() {
    for (const SharedDfa& text : schema_.texts) {
      Schema alternative = of_type(kTypeString);
      CAIRN_ASSIGN_OR_RETURN(const SharedDfa any, compile_pattern(""));
      CAIRN_ASSIGN_OR_RETURN(SharedDfa others, difference(any, text));
      alternative.texts.push_back(std::move(others));
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (schema_.min_length > 0) {
      Schema alternative = of_type(kTypeString);
      alternative.max_length = schema_.min_length - 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (schema_.max_length) {
      Schema alternative = of_type(kTypeString);
      alternative.min_length = *schema_.max_length + 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    return {};
  }

  Status negate_numbers() {
    for (const SharedDfa& range : schema_.ranges) {
      Schema alternative = of_type(kNumber);
      CAIRN_ASSIGN_OR_RETURN(SharedDfa others, numbers_without(range));
      alternative.ranges.push_back(std::move(others));
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (!schema_.number_choices) return {};
    Schema alternative = of_type(kNumber);
    for (const std::string& literal : schema_.numbers) {
      CAIRN_ASSIGN_OR_RETURN(const Decimal value, parse_decimal(literal));
      CAIRN_ASSIGN_OR_RETURN(const SharedDfa least,
                             decimals_in_order(DecimalOrder::kAtLeast, value));
      CAIRN_ASSIGN_OR_RETURN(const SharedDfa most, decimals_in_order(DecimalOrder::kAtMost, value));
      CAIRN_ASSIGN_OR_RETURN(const SharedDfa equal, intersection(least, most));
      CAIRN_ASSIGN_OR_RETURN(SharedDfa others, numbers_without(equal));
      alternative.ranges.push_back(std::move(others));
    }
    return add(std::move(alternative));
  }
  static Result<SharedDfa> numbers_without(const SharedDfa& numbers) {
    CAIRN_ASSIGN_OR_RETURN(const SharedDfa all, compile_pattern("^-?[0-9]+(?:\\.[0-9]+)?$"));
    return difference(all, numbers);
  }

  Status negate_arrays() {
    if (schema_.min_items > 0) {
      Schema alternative = of_type(kTypeArray);
      alternative.max_items = schema_.min_items - 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (schema_.max_items) {
      Schema alternative = of_type(kTypeArray);
      alternative.min_items = *schema_.max_items + 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    std::vector<SchemaId> before;
    for (const SchemaId item : schema_.prefix_items) {
      Schema alternative = of_type(kTypeArray);
      alternative.prefix_items = before;
      CAIRN_ASSIGN_OR_RETURN(const SchemaId other, make_.negation_of(item));
      alternative.prefix_items.push_back(other);
      alternative.min_items = static_cast<std::uint32_t>(before.size() + 1);
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
      CAIRN_ASSIGN_OR_RETURN(const SchemaId any, make_.add(of_type(kAnyType)));
      before.push_back(any);
    }
    return schema_.items ? unsupported("items") : Status();
  }

  Status negate_objects() {
    for (const auto& [name, value] : schema_.properties) {
      Schema alternative = of_type(kTypeObject);
      CAIRN_ASSIGN_OR_RETURN(const SchemaId other, make_.negation_of(value));
      alternative.properties.emplace_back(name, other);
      alternative.required.push_back(name);
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    for (const std::string& name : schema_.required) {
      Schema alternative = of_type(kTypeObject);
      CAIRN_ASSIGN_OR_RETURN(const SchemaId nothing, make_.add(of_type(0)));
      alternative.properties.emplace_back(name, nothing);
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (schema_.min_properties > 0) {
      Schema alternative = of_type(kTypeObject);
      alternative.max_properties = schema_.min_properties - 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (schema_.max_properties) {
      Schema alternative = of_type(kTypeObject);
      alternative.min_properties = *schema_.max_properties + 1;
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    if (!schema_.pattern_properties.empty()) return unsupported("patternProperties");
    if (schema_.property_names) return unsupported("propertyNames");
    return negate_additional();
  }

  // Where all that are listed are there, one more is one that is not.
  Status negate_additional() {
    if (!schema_.additional_properties) return {};
    const bool all_are_required =
        std::ranges::all_of(schema_.properties, [&](const auto& property) {
          return std::ranges::find(schema_.required, property.first) != schema_.required.end();
        });
    if (!schema_.closed || !all_are_required) return unsupported("additionalProperties");
    Schema alternative = of_type(kTypeObject);
    alternative.min_properties = static_cast<std::uint32_t>(schema_.properties.size() + 1);
    return add(std::move(alternative));
  }

  Status negate_combinations() {
    for (const SchemaId id : schema_.all_of) {
      CAIRN_ASSIGN_OR_RETURN(const SchemaId other, make_.negation_of(id));
      alternatives_.push_back(other);
    }
    for (const std::vector<SchemaId>& choice : schema_.any_of) {
      Schema alternative = of_type(kAnyType);
      for (const SchemaId id : choice) {
        CAIRN_ASSIGN_OR_RETURN(const SchemaId other, make_.negation_of(id));
        alternative.all_of.push_back(other);
      }
      CAIRN_RETURN_IF_ERROR(add(std::move(alternative)));
    }
    return {};
  }

  const Schema& schema_;
  const SchemaMaker& make_;
  std::vector<SchemaId> alternatives_;
};

}  // namespace

Result<Schema> negation(const Schema& schema, const SchemaMaker& make) {
  return Negation(schema, make).run();
}

}  // namespace cairn::engine
