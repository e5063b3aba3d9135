// From a checked JSON Schema to nodes of an OutputGrammar: the JSON texts, and the parameters of a
// call, that meet it.
//
// How values are spelled. Objects: any order of keys, none twice; names and constants in the one
// spelling that escapes only what must be. Strings without pattern, format or constant may use any
// escape (surrogates in pairs). White space: kMaxIndent. Numbers: integers of at most 20 digits
// without fraction or exponent (-0 and 1.0 are not offered); other numbers of at most 20 + 24
// digits, or one digit before the point and an exponent below 300; other numbers with bounds have
// no exponent and at most 15 digits, so that who reads them as a double finds them in bounds.
// Nesting is at most kMaxDepth. Every text of a node meets the schema; a value that meets it has
// such a text, but for numbers and nesting beyond these limits.
#ifndef CAIRN_ENGINE_SCHEMA_GRAMMAR_H_
#define CAIRN_ENGINE_SCHEMA_GRAMMAR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/json_schema.h"
#include "engine/output_grammar.h"

namespace cairn::engine {

// The automata that all schemas share.
struct Spellings {
  SharedDfa without_forbidden;  // byte strings
  SharedDfa any_text;           // UTF-8
  SharedDfa text;               // UTF-8 without the forbidden texts
  SharedDfa json_content;       // between the quotes of a JSON string
  SharedDfa json_names;         // likewise, in the one spelling of a name
  SharedDfa parameter_names;    // in a tag of a call
  SharedDfa integers, numbers, bounded_numbers;
  SharedDfa whole_numbers;  // integers of any length

  // `forbidden`: no string or name contains one of these texts as it is written (markup, see
  // output_constraint.h); a JSON string can escape a character of it.
  static Result<std::shared_ptr<const Spellings>> create(const std::vector<std::string>& forbidden);
};

class SchemaGrammar {
 public:
  // Borrows the grammar.
  SchemaGrammar(OutputGrammar& grammar, std::shared_ptr<const Spellings> spellings)
      : grammar_(&grammar), spellings_(std::move(spellings)) {}

  // The JSON texts of the values that meet the schema. Whether there are any is known when the
  // grammar is complete. kUnsupported: too large, with the place in the schema.
  Result<NodeId> add_json(const SchemaGraph& graph);
  // The objects that meet it, as parameters of a call and the call's end. Strings are written as
  // they are, in both marked; other values as JSON. Properties that are not listed are allowed
  // where the schema has `additionalProperties`, not if it is silent.
  Result<NodeId> add_parameters(const SchemaGraph& graph);

 private:
  // Schemas that all have to hold; ascending and unique.
  using SchemaSet = std::vector<SchemaId>;
  // How a value is written.
  enum class Spelling : std::uint8_t { kJson, kJsonButNoString, kStringAsItIs };
  using ValueKey = std::pair<SchemaSet, Spelling>;

  Result<NodeId> add(const SchemaGraph& graph, ObjectSyntax syntax);
  NodeId value(SchemaSet schemas, Spelling spelling);
  Status add_waiting();
  Result<std::vector<SchemaSet>> alternatives(const SchemaSet& schemas) const;
  Result<ChoiceNode> choices(const SchemaSet& schemas, Spelling spelling);

  std::uint32_t types(const SchemaSet& all) const;
  Status add_strings(const SchemaSet& all, bool as_it_is, ChoiceNode& out);
  Status add_numbers(const SchemaSet& all, bool integers_only, ChoiceNode& out);
  Status add_array(const SchemaSet& all, ChoiceNode& out);
  Status add_object(const SchemaSet& all, ObjectSyntax syntax, ChoiceNode& out);
  // What the schemas say together about the names of an object's properties.
  struct Names {
    std::set<std::string> listed, required;
    SharedDfa allowed;  // by propertyNames; null = any
    std::vector<SharedDfa> patterns;
    bool with_additional = true;  // those that no rule is about
  };
  Result<Names> names_of(const SchemaSet& all, ObjectSyntax syntax);
  // The texts that all of the schemas allow as a string.
  Result<SharedDfa> texts_of_names(const SchemaSet& schemas);
  // The values of a property; `matches`: whether its name matches the pattern.
  SchemaSet value_of(const SchemaSet& all, const std::string* listed,
                     const std::function<bool(const SharedDfa&)>& matches) const;
  // Adds the kinds of names that are not listed, each with its values. What has few names becomes
  // listed.
  Status add_unlisted(const SchemaSet& all, Names& names, ObjectNode& object);
  Status add_listed(const SchemaSet& all, const Names& names, ObjectNode& object);
  Result<ObjectNode::Value> object_value(SchemaSet schemas, ObjectSyntax syntax);
  std::vector<SharedDfa> text_rules(const SchemaSet& all, std::uint32_t& min,
                                    std::optional<std::uint32_t>& max) const;
  Result<SharedDfa> whole_text(const std::vector<SharedDfa>& rules, std::uint32_t min,
                               std::optional<std::uint32_t> max) const;
  // The same as it is written.
  Result<SharedDfa> text_of(const std::vector<SharedDfa>& rules, std::uint32_t min,
                            std::optional<std::uint32_t> max, bool as_it_is) const;
  Result<NodeId> add_node(GrammarNode node);

  const Schema& schema(SchemaId id) const { return graph_->schemas[id]; }
  std::string place(const SchemaSet& all) const;
  Status too_large(const SchemaSet& all, const std::string& what) const;

  OutputGrammar* grammar_;
  std::shared_ptr<const Spellings> spellings_;

  // Of the graph being added.
  const SchemaGraph* graph_ = nullptr;
  std::map<ValueKey, NodeId> values_;
  std::deque<ValueKey> waiting_;

  struct ScalarKey {
    std::vector<const ByteDfa*> rules;
    std::uint64_t min = 0, max = 0;
    int form = 0;
    auto operator<=>(const ScalarKey&) const = default;
  };
  std::map<ScalarKey, NodeId> scalars_;
  std::vector<SharedDfa> kept_;  // so that the addresses in scalars_ stay theirs
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SCHEMA_GRAMMAR_H_
