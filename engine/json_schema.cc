// Schemas are read from a queue, each place of the document once, so that recursion through $ref
// ends and no nesting deepens the stack. A constant is turned into an ordinary schema that only it
// meets; enum is anyOf over those.
#include "engine/json_schema.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>

#include "engine/decimal_order.h"
#include "engine/schema_formats.h"
#include "engine/schema_negation.h"
#include "engine/schema_pattern.h"

namespace cairn::engine {
namespace {

using Kind = JsonValue::Kind;

constexpr std::array<std::pair<std::string_view, std::uint32_t>, 7> kTypeNames = {{
    {"null", kTypeNull},
    {"boolean", kTypeFalse | kTypeTrue},
    {"integer", kTypeInteger},
    {"number", kTypeInteger | kTypeFraction},
    {"string", kTypeString},
    {"array", kTypeArray},
    {"object", kTypeObject},
}};

constexpr std::array<std::string_view, 20> kIgnored = {"title",
                                                       "description",
                                                       "default",
                                                       "example",
                                                       "examples",
                                                       "deprecated",
                                                       "readOnly",
                                                       "writeOnly",
                                                       "$comment",
                                                       "$schema",
                                                       "$id",
                                                       "$defs",
                                                       "definitions",
                                                       "contentEncoding",
                                                       "contentMediaType",
                                                       "contentSchema",
                                                       "$anchor",
                                                       "if",
                                                       "then",
                                                       "else"};  // the last three are read together
// What these hold is no schema.
constexpr std::array<std::string_view, 5> kValues = {"enum", "const", "default", "example",
                                                     "examples"};

// The multiples of `divisor` among the integers of at most 15 digits, which a double can tell
// apart.
Result<SharedDfa> multiples(std::uint32_t divisor) {
  constexpr std::uint32_t kMaxDigits = 15;
  std::array<std::uint8_t, 256> classes{};
  classes['-'] = 1;
  for (std::size_t digit = 0; digit < 10; ++digit) classes['0' + digit] = std::uint8_t(2 + digit);
  // How many digits, and the remainder of them; one digit more after a sign alone.
  return DfaBuilder(classes).build(
      {0, 0, 0},
      [=](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        if (byte == '-' && key[0] == 0 && key[2] == 0) return DfaBuilder::Key{0, 0, 1};
        if (byte < '0' || byte > '9' || key[0] == kMaxDigits) return std::nullopt;
        return DfaBuilder::Key{key[0] + 1, (key[1] * 10 + (byte - '0')) % divisor, 1};
      },
      [](const DfaBuilder::Key& key) { return key[0] > 0 && key[1] == 0; });
}

// One step of a JSON pointer.
std::string escaped_step(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<std::string> unescaped_step(std::string_view step) {
  std::string out;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '~') {
      out += step[i];
      continue;
    }
    if (++i == step.size() || (step[i] != '0' && step[i] != '1')) return std::nullopt;
    out += step[i] == '0' ? '~' : '/';
  }
  return out;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return out;
}

class Reader {
 public:
  Reader(const JsonValue& root, std::string_view name) : root_(root), name_(name) {}

  Result<SchemaGraph> read() {
    find_anchors("#", root_);
    CAIRN_RETURN_IF_ERROR(schema_at("#", root_).status());
    CAIRN_RETURN_IF_ERROR(read_queue());
    // Only of what was read there is a negation.
    while (!to_negate_.empty()) {
      const SchemaId id = to_negate_.front();
      to_negate_.pop_front();
      const Schema schema = graph_.schemas[id];  // adding others may move it
      Result<Schema> negated = negation(schema, maker_);
      if (!negated.ok()) return in_place(negated.status(), schema.pointer);
      graph_.schemas[negations_.at(id)] = std::move(*negated);
    }
    return std::move(graph_);
  }

 private:
  using Member = std::function<Status(Reader&, const JsonValue&, Schema&)>;

  Status invalid(const std::string& pointer, const std::string& what) const {
    return invalid_argument(name_ + " at " + pointer + ": " + what);
  }
  Status unsupported(const std::string& pointer, const std::string& what) const {
    return {StatusCode::kUnsupported, name_ + " at " + pointer + ": " + what};
  }
  Status expected(const std::string& pointer, const std::string& what,
                  const JsonValue& found) const {
    return invalid(pointer,
                   "expected " + what + ", found " + std::string(json_kind_name(found.kind)));
  }

  Status read_queue() {
    while (!queue_.empty()) {
      const auto [id, value] = queue_.front();
      queue_.pop_front();
      Schema schema;
      schema.pointer = graph_.schemas[id].pointer;
      CAIRN_RETURN_IF_ERROR(read_schema(*value, schema));
      graph_.schemas[id] = std::move(schema);
    }
    return {};
  }

  void find_anchors(const std::string& pointer, const JsonValue& value) {
    if (const JsonValue* anchor = value.find("$anchor"); anchor && anchor->is(Kind::kString)) {
      anchors_.emplace(anchor->text, std::pair(pointer, &value));
    }
    for (const JsonMember& member : value.members) {
      if (std::ranges::find(kValues, member.key) != kValues.end()) continue;
      find_anchors(pointer + "/" + escaped_step(member.key), member.value);
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      find_anchors(pointer + "/" + std::to_string(i), value.items[i]);
    }
  }

  Result<SchemaId> negation_of(SchemaId id) {
    const auto known = negations_.find(id);
    if (known != negations_.end()) return known->second;
    Schema schema;
    schema.pointer = graph_.schemas[id].pointer;
    CAIRN_ASSIGN_OR_RETURN(const SchemaId negated, add(std::move(schema)));
    negations_.emplace(id, negated);
    to_negate_.push_back(id);
    return negated;
  }

  Result<SchemaId> add(Schema schema) {
    if (graph_.schemas.size() >= SchemaGraph::kMaxSchemas) {
      return unsupported(schema.pointer, "more than " + std::to_string(SchemaGraph::kMaxSchemas) +
                                             " schemas in one document");
    }
    graph_.schemas.push_back(std::move(schema));
    return static_cast<SchemaId>(graph_.schemas.size() - 1);
  }

  // The schema at a place of the document; it is read later if it was not yet.
  Result<SchemaId> schema_at(const std::string& pointer, const JsonValue& value) {
    const auto known = by_pointer_.find(pointer);
    if (known != by_pointer_.end()) return known->second;
    n_pointer_bytes_ += pointer.size();
    if (n_pointer_bytes_ > kMaxPointerBytes) {
      return unsupported(pointer.substr(0, 200), "names and nesting are too long");
    }
    Schema schema;
    schema.pointer = pointer;
    CAIRN_ASSIGN_OR_RETURN(const SchemaId id, add(std::move(schema)));
    by_pointer_.emplace(pointer, id);
    queue_.emplace_back(id, &value);
    return id;
  }

  Status read_schema(const JsonValue& value, Schema& schema) {
    if (value.is(Kind::kBool)) {
      if (!value.boolean) schema.types = 0;
      return {};
    }
    if (!value.is(Kind::kObject)) {
      return expected(schema.pointer, "a schema (an object or a boolean)", value);
    }
    for (const JsonMember& member : value.members) {
      CAIRN_RETURN_IF_ERROR(read_keyword(member, schema));
    }
    if (const JsonValue* unique = value.find("uniqueItems")) {
      CAIRN_RETURN_IF_ERROR(check_unique(*unique, schema));
    }
    return read_if(value, schema);
  }

  // That items differ cannot be seen while they are read.
  Status check_unique(const JsonValue& unique, const Schema& schema) {
    const std::string pointer = schema.pointer + "/uniqueItems";
    if (!unique.is(Kind::kBool)) return expected(pointer, "a boolean", unique);
    if (!unique.boolean || schema.max_items.value_or(2) <= 1) return {};
    return unsupported(pointer, "keyword 'uniqueItems' is not supported for more than one item");
  }

  // Either `if` and `then` hold, or `else` and not `if`.
  Status read_if(const JsonValue& value, Schema& schema) {
    const JsonValue* condition = value.find("if");
    if (condition == nullptr) return {};
    const auto with = [&](SchemaId holds, const char* keyword) -> Result<SchemaId> {
      Schema both;
      both.pointer = schema.pointer;
      both.all_of.push_back(holds);
      if (const JsonValue* other = value.find(keyword)) {
        CAIRN_ASSIGN_OR_RETURN(const SchemaId id,
                               schema_at(schema.pointer + "/" + keyword, *other));
        both.all_of.push_back(id);
      }
      return add(std::move(both));
    };
    CAIRN_ASSIGN_OR_RETURN(const SchemaId holds, schema_at(schema.pointer + "/if", *condition));
    if (value.find("then") == nullptr && value.find("else") == nullptr) return {};
    CAIRN_ASSIGN_OR_RETURN(const SchemaId fails, negation_of(holds));
    CAIRN_ASSIGN_OR_RETURN(const SchemaId first, with(holds, "then"));
    CAIRN_ASSIGN_OR_RETURN(const SchemaId second, with(fails, "else"));
    schema.any_of.push_back({first, second});
    return {};
  }

  Status read_keyword(const JsonMember& member, Schema& schema) {
    static const std::map<std::string_view, Member> kKeywords = {
        {"type", &Reader::read_type},
        {"enum", &Reader::read_enum},
        {"const", &Reader::read_const},
        {"anyOf", &Reader::read_any_of},
        {"oneOf", &Reader::read_any_of},
        {"allOf", &Reader::read_all_of},
        {"not", &Reader::read_not},
        {"$ref", &Reader::read_ref},
        {"properties", &Reader::read_properties},
        {"required", &Reader::read_required},
        {"additionalProperties", &Reader::read_additional_properties},
        {"patternProperties", &Reader::read_pattern_properties},
        {"propertyNames", &Reader::read_property_names},
        {"minProperties", &Reader::read_min_properties},
        {"maxProperties", &Reader::read_max_properties},
        {"dependentRequired", &Reader::read_dependent_required},
        {"dependentSchemas", &Reader::read_dependent_schemas},
        {"items", &Reader::read_items},
        {"prefixItems", &Reader::read_prefix_items},
        {"minItems", &Reader::read_min_items},
        {"maxItems", &Reader::read_max_items},
        {"uniqueItems", &Reader::read_later},
        {"minLength", &Reader::read_min_length},
        {"maxLength", &Reader::read_max_length},
        {"pattern", &Reader::read_pattern},
        {"format", &Reader::read_format},
        {"minimum", &Reader::read_minimum},
        {"maximum", &Reader::read_maximum},
        {"exclusiveMinimum", &Reader::read_exclusive_minimum},
        {"exclusiveMaximum", &Reader::read_exclusive_maximum},
        {"multipleOf", &Reader::read_multiple_of},
    };
    keyword_ = schema.pointer + "/" + escaped_step(member.key);
    const auto found = kKeywords.find(member.key);
    if (found != kKeywords.end()) return found->second(*this, member.value, schema);
    if (member.key == "$id" && schema.pointer != "#") {
      return unsupported(keyword_, "keyword '$id' below the root is not supported");
    }
    if (std::ranges::find(kIgnored, member.key) != kIgnored.end() || member.key.starts_with("x-")) {
      return {};
    }
    return unsupported(keyword_, "keyword '" + member.key + "' is not supported");
  }

  Status read_later(const JsonValue&, Schema&) { return {}; }

  Result<std::uint32_t> type_named(const JsonValue& name) const {
    if (!name.is(Kind::kString)) return expected(keyword_, "the name of a type", name);
    for (const auto& [known, types] : kTypeNames) {
      if (known == name.text) return types;
    }
    return invalid(keyword_, "unknown type '" + name.text + "'");
  }

  Status read_type(const JsonValue& value, Schema& schema) {
    std::uint32_t types = 0;
    if (value.is(Kind::kArray)) {
      for (const JsonValue& name : value.items) {
        CAIRN_ASSIGN_OR_RETURN(const std::uint32_t named, type_named(name));
        types |= named;
      }
    } else {
      CAIRN_ASSIGN_OR_RETURN(types, type_named(value));
    }
    schema.types &= types;
    return {};
  }

  // --- Constants

  Status read_const(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(const auto choices, constants({&value, 1}, keyword_));
    schema.any_of.push_back(choices);
    return {};
  }

  Status read_enum(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kArray)) return expected(keyword_, "an array", value);
    CAIRN_ASSIGN_OR_RETURN(const auto choices, constants(value.items, keyword_));
    schema.any_of.push_back(choices);
    return {};
  }

  // Schemas that together are met by these values and no other. Strings share one, as numbers do.
  Result<std::vector<SchemaId>> constants(std::span<const JsonValue> values,
                                          const std::string& pointer) {
    std::vector<std::string> strings, numbers;
    std::vector<SchemaId> choices;
    Schema simple;
    simple.pointer = pointer;
    simple.types = 0;
    for (const JsonValue& value : values) {
      switch (value.kind) {
        case Kind::kNull:
          simple.types |= kTypeNull;
          break;
        case Kind::kBool:
          simple.types |= value.boolean ? kTypeTrue : kTypeFalse;
          break;
        case Kind::kNumber:
          numbers.push_back(number_spelling(value.text));
          break;
        case Kind::kString:
          strings.push_back(value.text);
          break;
        case Kind::kArray:
        case Kind::kObject: {
          CAIRN_ASSIGN_OR_RETURN(const SchemaId id, container_constant(value, pointer));
          choices.push_back(id);
          break;
        }
      }
    }
    if (!strings.empty()) {
      simple.types |= kTypeString;
      CAIRN_ASSIGN_OR_RETURN(SharedDfa texts, in_place(any_of_texts(strings), pointer));
      simple.texts.push_back(std::move(texts));
    }
    if (!numbers.empty()) {
      simple.types |= kTypeInteger | kTypeFraction;
      CAIRN_ASSIGN_OR_RETURN(simple.number_choices, in_place(any_of_texts(numbers), pointer));
      simple.numbers = std::move(numbers);
    }
    if (simple.types != 0 || choices.empty()) {
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id, add(std::move(simple)));
      choices.push_back(id);
    }
    return choices;
  }

  // 1.0 is the integer 1. What is too long to be written out keeps its exponent.
  static std::string number_spelling(const std::string& literal) {
    constexpr std::size_t kMaxPlainDigits = 40;
    const Result<Decimal> decimal = parse_decimal(literal);
    if (!decimal.ok()) return literal;
    const std::string plain = decimal->text();
    return plain.size() <= kMaxPlainDigits ? plain : literal;
  }

  Result<SchemaId> container_constant(const JsonValue& value, const std::string& pointer) {
    Schema schema;
    schema.pointer = pointer;
    if (value.is(Kind::kArray)) {
      schema.types = kTypeArray;
      schema.min_items = static_cast<std::uint32_t>(value.items.size());
      schema.max_items = schema.min_items;
      for (const JsonValue& item : value.items) {
        CAIRN_ASSIGN_OR_RETURN(const SchemaId id, constant(item, pointer));
        schema.prefix_items.push_back(id);
      }
    } else {
      schema.types = kTypeObject;
      for (const JsonMember& member : value.members) {
        CAIRN_ASSIGN_OR_RETURN(const SchemaId id, constant(member.value, pointer));
        schema.properties.emplace_back(member.key, id);
        schema.required.push_back(member.key);
      }
      Schema nothing;
      nothing.pointer = pointer;
      nothing.types = 0;
      CAIRN_ASSIGN_OR_RETURN(schema.additional_properties, add(std::move(nothing)));
      schema.closed = true;
    }
    return add(std::move(schema));
  }

  Result<SchemaId> constant(const JsonValue& value, const std::string& pointer) {
    CAIRN_ASSIGN_OR_RETURN(const auto choices, constants({&value, 1}, pointer));
    return choices.front();
  }

  // --- Schemas of schemas

  Result<std::vector<SchemaId>> schemas_of(const JsonValue& value) {
    if (!value.is(Kind::kArray)) return expected(keyword_, "an array of schemas", value);
    if (value.items.empty()) return invalid(keyword_, "expected at least one schema");
    std::vector<SchemaId> ids;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id,
                             schema_at(keyword_ + "/" + std::to_string(i), value.items[i]));
      ids.push_back(id);
    }
    return ids;
  }

  Status read_any_of(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<SchemaId> ids, schemas_of(value));
    schema.any_of.push_back(ids);
    return {};
  }

  Status read_all_of(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<SchemaId> ids, schemas_of(value));
    schema.all_of.insert(schema.all_of.end(), ids.begin(), ids.end());
    return {};
  }

  Status read_not(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(const SchemaId id, schema_at(keyword_, value));
    CAIRN_ASSIGN_OR_RETURN(const SchemaId negated, negation_of(id));
    schema.all_of.push_back(negated);
    return {};
  }

  Status read_ref(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kString)) return expected(keyword_, "a reference", value);
    std::string_view reference = value.text;
    if (const JsonValue* id = root_.find("$id"); id != nullptr && !id->text.empty()) {
      if (reference.starts_with(id->text)) reference.remove_prefix(id->text.size());
      if (reference.empty()) reference = "#";
    }
    if (!reference.starts_with('#')) {
      return unsupported(keyword_, "reference '" + value.text +
                                       "' is not supported: it leads out of the document");
    }
    if (const auto anchor = anchors_.find(reference.substr(1)); anchor != anchors_.end()) {
      const auto& [pointer, target] = anchor->second;
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id, schema_at(pointer, *target));
      schema.all_of.push_back(id);
      return {};
    }
    const auto fragment = percent_decoded(reference.substr(1));
    if (!fragment) return invalid(keyword_, "malformed reference '" + value.text + "'");
    const JsonValue* target = target_of(*fragment);
    if (target == nullptr) return invalid(keyword_, "nothing at '" + value.text + "'");
    CAIRN_ASSIGN_OR_RETURN(const SchemaId id, schema_at("#" + *fragment, *target));
    schema.all_of.push_back(id);
    return {};
  }

  // The place of a JSON pointer; null if there is none.
  const JsonValue* target_of(std::string_view pointer) const {
    if (!pointer.empty() && !pointer.starts_with('/')) return nullptr;
    const JsonValue* at = &root_;
    while (!pointer.empty() && at != nullptr) {
      const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
      const auto step = unescaped_step(pointer.substr(1, end - 1));
      pointer.remove_prefix(end);
      if (!step) return nullptr;
      if (at->is(Kind::kArray)) {
        const bool is_index = !step->empty() && step->size() < 9 &&
                              step->find_first_not_of("0123456789") == std::string::npos;
        const std::size_t index = is_index ? std::stoul(*step) : at->items.size();
        at = index < at->items.size() ? &at->items[index] : nullptr;
      } else {
        at = at->find(*step);
      }
    }
    return at;
  }

  // --- Objects

  Status read_properties(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kObject)) return expected(keyword_, "an object", value);
    for (const JsonMember& member : value.members) {
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id,
                             schema_at(keyword_ + "/" + escaped_step(member.key), member.value));
      schema.properties.emplace_back(member.key, id);
    }
    return {};
  }

  Status read_required(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kArray)) return expected(keyword_, "an array of names", value);
    for (const JsonValue& name : value.items) {
      if (!name.is(Kind::kString)) return expected(keyword_, "an array of names", value);
      schema.required.push_back(name.text);
    }
    return {};
  }

  Status read_additional_properties(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.additional_properties, schema_at(keyword_, value));
    schema.closed = value.is(Kind::kBool) && !value.boolean;
    return {};
  }

  Status read_pattern_properties(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kObject)) return expected(keyword_, "an object", value);
    const std::string keyword = keyword_;
    for (const JsonMember& member : value.members) {
      keyword_ = keyword + "/" + escaped_step(member.key);
      CAIRN_ASSIGN_OR_RETURN(SharedDfa pattern, this->pattern(member.key));
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id, schema_at(keyword_, member.value));
      schema.pattern_properties.emplace_back(std::move(pattern), id);
    }
    return {};
  }

  Status read_property_names(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.property_names, schema_at(keyword_, value));
    return {};
  }

  Status read_min_properties(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.min_properties, count(value));
    return {};
  }
  Status read_max_properties(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.max_properties, count(value));
    return {};
  }

  // A property is not there, or it is and `then` holds.
  Status add_dependency(const std::string& property, Schema then, Schema& schema) {
    Schema nothing, absent;
    nothing.pointer = absent.pointer = then.pointer = schema.pointer;
    nothing.types = 0;
    CAIRN_ASSIGN_OR_RETURN(const SchemaId none, add(std::move(nothing)));
    absent.properties.emplace_back(property, none);
    then.required.push_back(property);
    CAIRN_ASSIGN_OR_RETURN(const SchemaId first, add(std::move(absent)));
    CAIRN_ASSIGN_OR_RETURN(const SchemaId second, add(std::move(then)));
    schema.any_of.push_back({first, second});
    return {};
  }

  Status read_dependent_required(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kObject)) return expected(keyword_, "an object", value);
    for (const JsonMember& member : value.members) {
      Schema then;
      CAIRN_RETURN_IF_ERROR(read_required(member.value, then));
      CAIRN_RETURN_IF_ERROR(add_dependency(member.key, std::move(then), schema));
    }
    return {};
  }

  Status read_dependent_schemas(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kObject)) return expected(keyword_, "an object", value);
    for (const JsonMember& member : value.members) {
      Schema then;
      CAIRN_ASSIGN_OR_RETURN(const SchemaId id,
                             schema_at(keyword_ + "/" + escaped_step(member.key), member.value));
      then.all_of.push_back(id);
      CAIRN_RETURN_IF_ERROR(add_dependency(member.key, std::move(then), schema));
    }
    return {};
  }

  // --- Arrays

  Status read_items(const JsonValue& value, Schema& schema) {
    if (value.is(Kind::kArray)) {
      return unsupported(keyword_, "keyword 'items' with a list is not supported: use prefixItems");
    }
    CAIRN_ASSIGN_OR_RETURN(schema.items, schema_at(keyword_, value));
    return {};
  }

  Status read_prefix_items(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.prefix_items, schemas_of(value));
    return {};
  }

  Result<std::uint32_t> count(const JsonValue& value) const {
    if (!value.is(Kind::kNumber)) return expected(keyword_, "a number", value);
    const Result<Decimal> decimal = parse_decimal(value.text);
    if (!decimal.ok() || !decimal->is_integer() || decimal->is_negative) {
      return invalid(keyword_, value.text + " is no count");
    }
    if (decimal->integer.size() > 9) return kMaxCount;
    return static_cast<std::uint32_t>(std::stoul(decimal->integer));
  }

  Status read_min_items(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.min_items, count(value));
    return {};
  }
  Status read_max_items(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.max_items, count(value));
    return {};
  }

  // --- Strings

  Status read_min_length(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.min_length, count(value));
    return {};
  }
  Status read_max_length(const JsonValue& value, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(schema.max_length, count(value));
    return {};
  }

  Status in_place(const Status& status, const std::string& pointer) const {
    if (status.message().starts_with(name_ + " at ")) return status;
    return {status.code(), name_ + " at " + pointer + ": " + std::string(status.message()),
            std::string(status.hint())};
  }
  Result<SharedDfa> in_place(Result<SharedDfa> dfa, const std::string& pointer) const {
    return dfa.ok() ? std::move(dfa) : in_place(dfa.status(), pointer);
  }

  Result<SharedDfa> pattern(const std::string& pattern) {
    auto [known, is_new] = patterns_.try_emplace(pattern);
    if (is_new) {
      CAIRN_ASSIGN_OR_RETURN(known->second, in_place(compile_pattern(pattern), keyword_));
      n_pattern_states_ += known->second->n_states();
      if (n_pattern_states_ > kMaxPatternStates) {
        return unsupported(keyword_, "the patterns need automata of more than " +
                                         std::to_string(kMaxPatternStates) + " states");
      }
    }
    return known->second;
  }

  Status add_pattern(const std::string& pattern, Schema& schema) {
    CAIRN_ASSIGN_OR_RETURN(SharedDfa text, this->pattern(pattern));
    schema.texts.push_back(std::move(text));
    return {};
  }

  Status read_pattern(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kString)) return expected(keyword_, "a string", value);
    return add_pattern(value.text, schema);
  }

  Status read_format(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kString)) return expected(keyword_, "a string", value);
    const auto pattern = format_pattern(value.text);
    if (!pattern) return unsupported(keyword_, "format '" + value.text + "' is not supported");
    return add_pattern(*pattern, schema);
  }

  // --- Numbers

  Status add_range(const JsonValue& value, DecimalOrder order, Schema& schema) {
    if (!value.is(Kind::kNumber)) return expected(keyword_, "a number", value);
    const Result<Decimal> bound = parse_decimal(value.text);
    if (!bound.ok()) return unsupported(keyword_, std::string(bound.status().message()));
    CAIRN_ASSIGN_OR_RETURN(SharedDfa range, in_place(decimals_in_order(order, *bound), keyword_));
    schema.ranges.push_back(std::move(range));
    return {};
  }

  Status read_minimum(const JsonValue& value, Schema& schema) {
    return add_range(value, DecimalOrder::kAtLeast, schema);
  }
  Status read_maximum(const JsonValue& value, Schema& schema) {
    return add_range(value, DecimalOrder::kAtMost, schema);
  }
  Status read_exclusive_minimum(const JsonValue& value, Schema& schema) {
    return add_range(value, DecimalOrder::kMoreThan, schema);
  }
  Status read_exclusive_maximum(const JsonValue& value, Schema& schema) {
    return add_range(value, DecimalOrder::kLessThan, schema);
  }

  Status read_multiple_of(const JsonValue& value, Schema& schema) {
    if (!value.is(Kind::kNumber)) return expected(keyword_, "a number", value);
    const Result<Decimal> divisor = parse_decimal(value.text);
    const bool is_positive = divisor.ok() && !divisor->is_negative && divisor->text() != "0";
    if (divisor.ok() && !is_positive) return invalid(keyword_, value.text + " is not above zero");
    const bool is_small = is_positive && divisor->is_integer() && divisor->integer.size() <= 4 &&
                          std::stoul(divisor->integer) <= kMaxDivisor;
    if (!is_small) {
      return unsupported(keyword_, "keyword 'multipleOf' is supported for integers up to " +
                                       std::to_string(kMaxDivisor) + ", not for " + value.text);
    }
    CAIRN_ASSIGN_OR_RETURN(
        SharedDfa numbers,
        in_place(multiples(static_cast<std::uint32_t>(std::stoul(divisor->integer))), keyword_));
    schema.ranges.push_back(std::move(numbers));
    return {};
  }

  static constexpr std::size_t kMaxDivisor = 1000;
  static constexpr std::uint32_t kMaxCount = 1'000'000'000;
  static constexpr std::size_t kMaxPatternStates = 200'000;
  static constexpr std::size_t kMaxPointerBytes = 1 << 24;

  const JsonValue& root_;
  std::string name_;
  SchemaGraph graph_;
  std::map<std::string, SchemaId> by_pointer_;
  std::size_t n_pointer_bytes_ = 0;
  std::deque<std::pair<SchemaId, const JsonValue*>> queue_;
  std::map<std::string, std::pair<std::string, const JsonValue*>, std::less<>> anchors_;
  std::map<SchemaId, SchemaId> negations_;
  std::deque<SchemaId> to_negate_;
  const SchemaMaker maker_ = {
      .add = [this](Schema schema) { return add(std::move(schema)); },
      .negation_of = [this](SchemaId id) { return negation_of(id); },
  };
  std::map<std::string, SharedDfa> patterns_;
  std::size_t n_pattern_states_ = 0;
  std::string keyword_;  // pointer of the keyword being read
};

}  // namespace

const SchemaId* Schema::property(std::string_view name) const {
  const auto found = std::ranges::find(properties, name, &std::pair<std::string, SchemaId>::first);
  return found == properties.end() ? nullptr : &found->second;
}

Result<SchemaGraph> parse_json_schema(const JsonValue& schema, std::string_view name) {
  return Reader(schema, name).read();
}

Result<SchemaGraph> parse_json_schema(std::string_view json, std::string_view name) {
  if (json.size() > SchemaGraph::kMaxBytes) {
    return Status(StatusCode::kUnsupported,
                  std::string(name) + " has " + std::to_string(json.size()) + " bytes, at most " +
                      std::to_string(SchemaGraph::kMaxBytes) + " are supported");
  }
  const Result<JsonValue> value = parse_json(json);
  if (!value.ok()) {
    return Status(value.status().code(),
                  std::string(name) + ": " + std::string(value.status().message()));
  }
  return parse_json_schema(*value, name);
}

}  // namespace cairn::engine
