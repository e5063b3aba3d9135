// A node stands for a set of schemas that all have to hold. Choices (anyOf) are multiplied out into
// alternatives, and what the schemas of an alternative say about one type is merged: ranges and
// patterns by intersecting their automata, items and properties as sets of schemas again. There are
// finitely many sets, so recursion through $ref closes.
#include "engine/schema_grammar.h"

#include <algorithm>
#include <set>

#include "engine/schema_pattern.h"

namespace cairn::engine {
namespace {

// Of one place, multiplied out.
constexpr std::size_t kMaxAlternatives = 1000;
constexpr std::size_t kMaxBranches = 20'000;
constexpr std::size_t kMaxChoicesInside = 500;

// So many names of one kind are listed one by one.
constexpr std::size_t kFewNames = 64;
constexpr std::size_t kMaxKindsOfNames = 32;

constexpr std::string_view kJsonContent =
    R"re(^(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))re"
    R"re(|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*$)re";
constexpr std::string_view kParameterName = R"re(^[^"<>\x00-\x1f]+$)re";
constexpr std::string_view kIntegers = "^(?:0|-?[1-9][0-9]{0,19})$";
constexpr std::string_view kNumbers =
    R"re(^(?:-?(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,24})?)re"
    R"re(|-?[0-9](?:\.[0-9]{1,24})?[eE][+-]?[0-2]?[0-9]?[0-9])$)re";
constexpr std::string_view kPlainNumbers = R"re(^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?$)re";
constexpr std::string_view kAtMost15Digits = R"re(^-?(?:[0-9]\.?){1,15}$)re";
constexpr std::string_view kWholeNumbers = "^-?[0-9]+$";

std::vector<SchemaId> as_set(std::vector<SchemaId> ids) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Multiplies the choices of schemas out.
class Alternatives {
 public:
  explicit Alternatives(const SchemaGraph& graph) : graph_(graph) {}

  // false: too many.
  bool expand(std::vector<SchemaId> todo, std::set<SchemaId> all,
              std::vector<const std::vector<SchemaId>*> choices, std::uint32_t types = kAnyType) {
    if (++n_branches_ > kMaxBranches) return false;
    while (!todo.empty()) {
      const SchemaId id = todo.back();
      todo.pop_back();
      if (!all.insert(id).second) continue;
      const Schema& schema = graph_.schemas[id];
      types &= schema.types;
      if (types == 0) return true;  // nothing meets them
      todo.insert(todo.end(), schema.all_of.begin(), schema.all_of.end());
      for (const auto& choice : schema.any_of) choices.push_back(&choice);
    }
    if (choices.empty()) {
      found.insert({all.begin(), all.end()});
      return found.size() <= kMaxAlternatives;
    }
    if (++depth_ > kMaxChoicesInside) return false;
    const std::vector<SchemaId>& choice = *choices.back();
    choices.pop_back();
    for (const SchemaId id : choice) {
      if (!expand({id}, all, choices, types)) return false;
    }
    --depth_;
    return true;
  }

  std::set<std::vector<SchemaId>> found;

 private:
  const SchemaGraph& graph_;
  std::size_t n_branches_ = 0, depth_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Spellings>> Spellings::create(
    const std::vector<std::string>& forbidden) {
  auto out = std::make_shared<Spellings>();
  CAIRN_ASSIGN_OR_RETURN(out->without_forbidden, without_texts(forbidden));
  CAIRN_ASSIGN_OR_RETURN(out->any_text, compile_pattern(""));
  CAIRN_ASSIGN_OR_RETURN(out->text, intersection(out->any_text, out->without_forbidden));
  CAIRN_ASSIGN_OR_RETURN(const SharedDfa content, compile_pattern(kJsonContent));
  CAIRN_ASSIGN_OR_RETURN(out->json_content, intersection(content, out->without_forbidden));
  CAIRN_ASSIGN_OR_RETURN(const SharedDfa names, as_json_content(out->any_text));
  CAIRN_ASSIGN_OR_RETURN(out->json_names, intersection(names, out->without_forbidden));
  CAIRN_ASSIGN_OR_RETURN(out->parameter_names, compile_pattern(kParameterName));
  CAIRN_ASSIGN_OR_RETURN(out->integers, compile_pattern(kIntegers));
  CAIRN_ASSIGN_OR_RETURN(out->numbers, compile_pattern(kNumbers));
  CAIRN_ASSIGN_OR_RETURN(const SharedDfa plain, compile_pattern(kPlainNumbers));
  CAIRN_ASSIGN_OR_RETURN(const SharedDfa short_enough, compile_pattern(kAtMost15Digits));
  CAIRN_ASSIGN_OR_RETURN(out->bounded_numbers, intersection(plain, short_enough));
  CAIRN_ASSIGN_OR_RETURN(out->whole_numbers, compile_pattern(kWholeNumbers));
  return std::shared_ptr<const Spellings>(std::move(out));
}

Result<NodeId> SchemaGrammar::add_json(const SchemaGraph& graph) {
  return add(graph, ObjectSyntax::kJson);
}

Result<NodeId> SchemaGrammar::add_parameters(const SchemaGraph& graph) {
  return add(graph, ObjectSyntax::kParameters);
}

Result<NodeId> SchemaGrammar::add(const SchemaGraph& graph, ObjectSyntax syntax) {
  graph_ = &graph;
  values_.clear();
  waiting_.clear();
  scalars_.clear();
  kept_.clear();
  NodeId root = kNoNode;
  if (syntax == ObjectSyntax::kJson) {
    root = value({0}, Spelling::kJson);
  } else {
    ChoiceNode choice;
    CAIRN_ASSIGN_OR_RETURN(const std::vector<SchemaSet> sets, alternatives({0}));
    for (const SchemaSet& all : sets) {
      if ((types(all) & kTypeObject) == 0) continue;
      CAIRN_RETURN_IF_ERROR(add_object(all, syntax, choice));
    }
    CAIRN_ASSIGN_OR_RETURN(root, add_node(std::move(choice)));
  }
  CAIRN_RETURN_IF_ERROR(add_waiting());
  return root;
}

std::string SchemaGrammar::place(const SchemaSet& all) const {
  return all.empty() ? "#" : schema(all.front()).pointer;
}

Status SchemaGrammar::too_large(const SchemaSet& all, const std::string& what) const {
  return {StatusCode::kUnsupported, "schema at " + place(all) + ": " + what};
}

Result<NodeId> SchemaGrammar::add_node(GrammarNode node) {
  if (grammar_->size() >= OutputGrammar::kMaxNodes) {
    return Status(StatusCode::kUnsupported, "the schemas need more than " +
                                                std::to_string(OutputGrammar::kMaxNodes) +
                                                " nodes when written out");
  }
  return grammar_->add(std::move(node));
}

// The node of a value. Its choices are found later.
NodeId SchemaGrammar::value(SchemaSet schemas, Spelling spelling) {
  const auto [at, is_new] = values_.try_emplace({std::move(schemas), spelling}, kNoNode);
  if (is_new) {
    at->second = grammar_->add(ChoiceNode());
    waiting_.push_back(at->first);
  }
  return at->second;
}

Status SchemaGrammar::add_waiting() {
  while (!waiting_.empty()) {
    const ValueKey key = std::move(waiting_.front());
    waiting_.pop_front();
    if (grammar_->size() >= OutputGrammar::kMaxNodes) return add_node(ChoiceNode()).status();
    CAIRN_ASSIGN_OR_RETURN(ChoiceNode found, choices(key.first, key.second));
    grammar_->set(values_.at(key), std::move(found));
  }
  return {};
}

Result<std::vector<SchemaGrammar::SchemaSet>> SchemaGrammar::alternatives(
    const SchemaSet& schemas) const {
  Alternatives alternatives(*graph_);
  if (!alternatives.expand(schemas, {}, {})) {
    return too_large(schemas, "its anyOf, oneOf and enum multiply to more than " +
                                  std::to_string(kMaxAlternatives) + " alternatives");
  }
  return std::vector<SchemaSet>(alternatives.found.begin(), alternatives.found.end());
}

Result<ChoiceNode> SchemaGrammar::choices(const SchemaSet& schemas, Spelling spelling) {
  ChoiceNode out;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SchemaSet> sets, alternatives(schemas));
  for (const SchemaSet& all : sets) {
    const std::uint32_t types = this->types(all);
    if ((types & kTypeString) != 0 && spelling != Spelling::kJsonButNoString) {
      CAIRN_RETURN_IF_ERROR(add_strings(all, spelling == Spelling::kStringAsItIs, out));
    }
    if (spelling == Spelling::kStringAsItIs) continue;
    for (const auto& [type, text] :
         {std::pair(kTypeNull, "null"), {kTypeFalse, "false"}, {kTypeTrue, "true"}}) {
      if ((types & type) == 0) continue;
      CAIRN_ASSIGN_OR_RETURN(const NodeId id, add_node(LiteralNode{text}));
      out.choices.push_back(id);
    }
    if ((types & kTypeInteger) != 0) {
      CAIRN_RETURN_IF_ERROR(add_numbers(all, (types & kTypeFraction) == 0, out));
    }
    if ((types & kTypeArray) != 0) CAIRN_RETURN_IF_ERROR(add_array(all, out));
    if ((types & kTypeObject) != 0) {
      CAIRN_RETURN_IF_ERROR(add_object(all, ObjectSyntax::kJson, out));
    }
  }
  out.choices = as_set(std::move(out.choices));
  return out;
}

std::uint32_t SchemaGrammar::types(const SchemaSet& all) const {
  std::uint32_t types = kAnyType;
  for (const SchemaId id : all) types &= schema(id).types;
  return types;
}

// --- Scalars

Result<SharedDfa> SchemaGrammar::whole_text(const std::vector<SharedDfa>& rules, std::uint32_t min,
                                            std::optional<std::uint32_t> max) const {
  SharedDfa text = spellings_->any_text;
  for (const SharedDfa& rule : rules) {
    CAIRN_ASSIGN_OR_RETURN(text, intersection(text, rule));
  }
  if (min == 0 && !max) return text;
  return with_length(text, min, max);
}

Result<SharedDfa> SchemaGrammar::text_of(const std::vector<SharedDfa>& rules, std::uint32_t min,
                                         std::optional<std::uint32_t> max, bool as_it_is) const {
  CAIRN_ASSIGN_OR_RETURN(SharedDfa text, whole_text(rules, min, max));
  if (!as_it_is) {
    CAIRN_ASSIGN_OR_RETURN(text, as_json_content(text));
  }
  return intersection(text, spellings_->without_forbidden);
}

// The automata of the strings that meet the schemas, and how long these are.
std::vector<SharedDfa> SchemaGrammar::text_rules(const SchemaSet& all, std::uint32_t& min,
                                                 std::optional<std::uint32_t>& max) const {
  std::vector<SharedDfa> rules;
  for (const SchemaId id : all) {
    min = std::max(min, schema(id).min_length);
    if (schema(id).max_length) {
      max = std::min(max.value_or(*schema(id).max_length), *schema(id).max_length);
    }
    rules.insert(rules.end(), schema(id).texts.begin(), schema(id).texts.end());
  }
  return rules;
}

Status SchemaGrammar::add_strings(const SchemaSet& all, bool as_it_is, ChoiceNode& out) {
  std::uint32_t min = 0;
  std::optional<std::uint32_t> max;
  const std::vector<SharedDfa> rules = text_rules(all, min, max);
  if (max && *max < min) return {};
  ScalarKey key{{}, min, max.value_or(kUnlimited), as_it_is ? 1 : 0};
  for (const SharedDfa& rule : rules) key.rules.push_back(rule.get());
  const auto known = scalars_.find(key);
  if (known != scalars_.end()) {
    out.choices.push_back(known->second);
    return {};
  }
  ScalarNode scalar;
  scalar.is_quoted = !as_it_is;
  if (rules.empty()) {
    scalar.dfa = as_it_is ? spellings_->text : spellings_->json_content;
    scalar.min_chars = min;
    scalar.max_chars = max.value_or(kUnlimited);
  } else {
    Result<SharedDfa> text = text_of(rules, min, max, as_it_is);
    if (!text.ok()) {
      return too_large(all, "the string " + std::string(text.status().message()));
    }
    scalar.dfa = std::move(*text);
    kept_.insert(kept_.end(), rules.begin(), rules.end());
  }
  CAIRN_ASSIGN_OR_RETURN(const NodeId id, add_node(std::move(scalar)));
  scalars_.emplace(std::move(key), id);
  out.choices.push_back(id);
  return {};
}

Status SchemaGrammar::add_numbers(const SchemaSet& all, bool integers_only, ChoiceNode& out) {
  std::vector<SharedDfa> rules;
  bool has_choices = false;
  for (const SchemaId id : all) {
    rules.insert(rules.end(), schema(id).ranges.begin(), schema(id).ranges.end());
    if (!schema(id).number_choices) continue;
    has_choices = true;
    rules.push_back(*schema(id).number_choices);
  }
  ScalarKey key{{}, 0, 0, integers_only ? 2 : 3};
  for (const SharedDfa& rule : rules) key.rules.push_back(rule.get());
  const auto known = scalars_.find(key);
  if (known != scalars_.end()) {
    out.choices.push_back(known->second);
    return {};
  }
  ScalarNode scalar;
  scalar.dfa = has_choices      ? (integers_only ? spellings_->whole_numbers : nullptr)
               : integers_only  ? spellings_->integers
               : !rules.empty() ? spellings_->bounded_numbers
                                : spellings_->numbers;
  for (const SharedDfa& rule : rules) {
    if (scalar.dfa == nullptr) {
      scalar.dfa = rule;
      continue;
    }
    Result<SharedDfa> both = intersection(scalar.dfa, rule);
    if (!both.ok()) return too_large(all, "the number " + std::string(both.status().message()));
    scalar.dfa = std::move(*both);
  }
  kept_.insert(kept_.end(), rules.begin(), rules.end());
  CAIRN_ASSIGN_OR_RETURN(const NodeId id, add_node(std::move(scalar)));
  scalars_.emplace(std::move(key), id);
  out.choices.push_back(id);
  return {};
}

// --- Arrays and objects

Status SchemaGrammar::add_array(const SchemaSet& all, ChoiceNode& out) {
  ArrayNode array;
  std::size_t n_prefix = 0;
  SchemaSet rest;
  for (const SchemaId id : all) {
    const Schema& rules = schema(id);
    array.min = std::max(array.min, rules.min_items);
    if (rules.max_items) array.max = std::min(array.max, *rules.max_items);
    n_prefix = std::max(n_prefix, rules.prefix_items.size());
    if (rules.items) rest.push_back(*rules.items);
  }
  for (std::size_t i = 0; i < n_prefix; ++i) {
    SchemaSet item;
    for (const SchemaId id : all) {
      const Schema& rules = schema(id);
      if (i < rules.prefix_items.size()) {
        item.push_back(rules.prefix_items[i]);
      } else if (rules.items) {
        item.push_back(*rules.items);
      }
    }
    array.prefix.push_back(value(as_set(std::move(item)), Spelling::kJson));
  }
  array.rest = value(as_set(std::move(rest)), Spelling::kJson);
  CAIRN_ASSIGN_OR_RETURN(const NodeId id, add_node(std::move(array)));
  out.choices.push_back(id);
  return {};
}

Result<ObjectNode::Value> SchemaGrammar::object_value(SchemaSet schemas, ObjectSyntax syntax) {
  ObjectNode::Value out;
  const bool is_json = syntax == ObjectSyntax::kJson;
  schemas = as_set(std::move(schemas));
  if (!is_json) out.text = value(schemas, Spelling::kStringAsItIs);
  out.json = value(std::move(schemas), is_json ? Spelling::kJson : Spelling::kJsonButNoString);
  return out;
}

Result<SchemaGrammar::Names> SchemaGrammar::names_of(const SchemaSet& all, ObjectSyntax syntax) {
  Names names;
  bool is_said = false;
  SchemaSet of_names;
  for (const SchemaId id : all) {
    const Schema& rules = schema(id);
    for (const auto& [name, value] : rules.properties) names.listed.insert(name);
    names.listed.insert(rules.required.begin(), rules.required.end());
    names.required.insert(rules.required.begin(), rules.required.end());
    for (const auto& [pattern, value] : rules.pattern_properties) {
      if (std::ranges::find(names.patterns, pattern) == names.patterns.end()) {
        names.patterns.push_back(pattern);
      }
    }
    if (rules.property_names) of_names.push_back(*rules.property_names);
    is_said = is_said || rules.additional_properties.has_value();
  }
  names.with_additional = is_said || syntax == ObjectSyntax::kJson;
  if (!of_names.empty()) {
    CAIRN_ASSIGN_OR_RETURN(names.allowed, texts_of_names(as_set(std::move(of_names))));
  }
  return names;
}

// What is left out by all alternatives is left out.
Result<SharedDfa> SchemaGrammar::texts_of_names(const SchemaSet& schemas) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SchemaSet> sets, alternatives(schemas));
  SharedDfa excluded = spellings_->any_text;
  for (const SchemaSet& all : sets) {
    if ((types(all) & kTypeString) == 0) continue;
    std::uint32_t min = 0;
    std::optional<std::uint32_t> max;
    const std::vector<SharedDfa> rules = text_rules(all, min, max);
    if (max && *max < min) continue;
    CAIRN_ASSIGN_OR_RETURN(const SharedDfa text, whole_text(rules, min, max));
    CAIRN_ASSIGN_OR_RETURN(excluded, difference(excluded, text));
  }
  return difference(spellings_->any_text, excluded);
}

SchemaGrammar::SchemaSet SchemaGrammar::value_of(
    const SchemaSet& all, const std::string* listed,
    const std::function<bool(const SharedDfa&)>& matches) const {
  SchemaSet value;
  for (const SchemaId id : all) {
    const Schema& rules = schema(id);
    const std::size_t n_before = value.size();
    if (listed != nullptr) {
      if (const SchemaId* const found = rules.property(*listed)) value.push_back(*found);
    }
    for (const auto& [pattern, of_it] : rules.pattern_properties) {
      if (matches(pattern)) value.push_back(of_it);
    }
    if (value.size() == n_before && rules.additional_properties) {
      value.push_back(*rules.additional_properties);
    }
  }
  return as_set(std::move(value));
}

Status SchemaGrammar::add_unlisted(const SchemaSet& all, Names& names, ObjectNode& object) {
  const bool is_json = object.syntax == ObjectSyntax::kJson;
  const SharedDfa& spellings = is_json ? spellings_->json_names : spellings_->parameter_names;
  const auto is_impossible = [&](const SchemaSet& value) {
    return std::ranges::any_of(value, [&](SchemaId id) { return schema(id).types == 0; });
  };
  if (names.patterns.empty() && !names.allowed) {
    const SchemaSet value = value_of(all, nullptr, [](const SharedDfa&) { return false; });
    if (!names.with_additional || is_impossible(value)) return {};
    CAIRN_ASSIGN_OR_RETURN(ObjectNode::Value node, object_value(value, object.syntax));
    object.unlisted.push_back({spellings, /*has_all=*/true, {}, node});
    return {};
  }
  // Names by the patterns that they match.
  struct Kind {
    SharedDfa names;
    std::vector<SharedDfa> matched;
  };
  std::vector<Kind> kinds = {{names.allowed ? names.allowed : spellings_->any_text, {}}};
  for (const SharedDfa& pattern : names.patterns) {
    std::vector<Kind> split;
    for (Kind& kind : kinds) {
      CAIRN_ASSIGN_OR_RETURN(SharedDfa with, intersection(kind.names, pattern));
      CAIRN_ASSIGN_OR_RETURN(SharedDfa without, difference(kind.names, pattern));
      if (with->start() != ByteDfa::kDead) {
        split.push_back({std::move(with), kind.matched});
        split.back().matched.push_back(pattern);
      }
      if (without->start() != ByteDfa::kDead) {
        split.push_back({std::move(without), std::move(kind.matched)});
      }
    }
    kinds = std::move(split);
    if (kinds.size() > kMaxKindsOfNames) {
      return too_large(all, "its patternProperties tell more than " +
                                std::to_string(kMaxKindsOfNames) + " kinds of names apart");
    }
  }
  std::vector<Kind> many;
  for (Kind& kind : kinds) {
    if (kind.matched.empty() && !names.with_additional) continue;
    const auto few = texts_of(*kind.names, kFewNames);
    if (!few) {
      many.push_back(std::move(kind));
    } else {
      names.listed.insert(few->begin(), few->end());
    }
  }
  const std::vector<std::string> listed(names.listed.begin(), names.listed.end());
  CAIRN_ASSIGN_OR_RETURN(const SharedDfa of_listed, any_of_texts(listed));
  for (const Kind& kind : many) {
    const SchemaSet value = value_of(all, nullptr, [&](const SharedDfa& pattern) {
      return std::ranges::find(kind.matched, pattern) != kind.matched.end();
    });
    if (is_impossible(value)) continue;
    CAIRN_ASSIGN_OR_RETURN(SharedDfa spelled, difference(kind.names, of_listed));
    if (is_json) {
      CAIRN_ASSIGN_OR_RETURN(spelled, as_json_content(spelled));
    }
    CAIRN_ASSIGN_OR_RETURN(spelled, intersection(spelled, spellings));
    if (spelled->start() == ByteDfa::kDead) continue;
    std::vector<bool> endless = endless_states(*spelled);
    if (object.min > kFewNames && !endless[spelled->start()]) {
      return too_large(all, "minProperties above " + std::to_string(kFewNames) +
                                " with names that are finitely many is not supported");
    }
    CAIRN_ASSIGN_OR_RETURN(ObjectNode::Value node, object_value(value, object.syntax));
    object.unlisted.push_back({std::move(spelled), false, std::move(endless), node});
  }
  return {};
}

Status SchemaGrammar::add_listed(const SchemaSet& all, const Names& names, ObjectNode& object) {
  const bool is_json = object.syntax == ObjectSyntax::kJson;
  const SharedDfa& spellings = is_json ? spellings_->json_names : spellings_->parameter_names;
  if (names.listed.size() > kMaxProperties) {
    return too_large(all, "an object with " + std::to_string(names.listed.size()) +
                              " named properties, at most " + std::to_string(kMaxProperties) +
                              " are supported");
  }
  std::map<std::string, std::string> by_spelling;
  for (const std::string& name : names.listed) {
    std::string spelling = name;
    if (is_json) {
      spelling.clear();
      append_json_escaped(name, spelling);
    }
    by_spelling.emplace(std::move(spelling), name);
  }
  std::vector<std::string> written;
  for (const auto& [spelling, name] : by_spelling) {
    object.required[written.size()] = names.required.contains(name);
    written.push_back(spelling);
    object.values.emplace_back();
    // What cannot be written, or must not be, has no value.
    if (!spellings->accepts_text(spelling)) continue;
    if (names.allowed && !names.allowed->accepts_text(name)) continue;
    SchemaSet value = value_of(all, &name, [&name = name](const SharedDfa& pattern) {
      return pattern->accepts_text(name);
    });
    CAIRN_ASSIGN_OR_RETURN(object.values.back(), object_value(std::move(value), object.syntax));
  }
  object.names = NameTrie(written);
  return {};
}

Status SchemaGrammar::add_object(const SchemaSet& all, ObjectSyntax syntax, ChoiceNode& out) {
  ObjectNode object;
  object.syntax = syntax;
  for (const SchemaId id : all) {
    object.min = std::max(object.min, schema(id).min_properties);
    if (schema(id).max_properties) object.max = std::min(object.max, *schema(id).max_properties);
  }
  Result<Names> names = names_of(all, syntax);
  Status added = names.status();
  if (added.ok()) added = add_unlisted(all, *names, object);
  if (added.ok()) added = add_listed(all, *names, object);
  if (!added.ok() && !added.message().starts_with("schema at")) {
    return too_large(all, "the names of its properties: " + std::string(added.message()));
  }
  CAIRN_RETURN_IF_ERROR(added);
  CAIRN_ASSIGN_OR_RETURN(const NodeId id, add_node(std::move(object)));
  out.choices.push_back(id);
  return {};
}

}  // namespace cairn::engine
