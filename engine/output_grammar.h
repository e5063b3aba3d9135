// What a constrained output may be, byte by byte: a graph of nodes, each a set of texts. Values of
// a JSON Schema become nodes (schema_grammar.h), the markup of a message too (output_constraint.h);
// grammar_run.h reads a text along the graph.
#ifndef CAIRN_ENGINE_OUTPUT_GRAMMAR_H_
#define CAIRN_ENGINE_OUTPUT_GRAMMAR_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/byte_dfa.h"

namespace cairn::engine {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFF;
inline constexpr std::uint32_t kUnlimited = 0xFFFFFFFF;

// Objects with more named properties are refused.
inline constexpr std::size_t kMaxProperties = 256;
using PropertySet = std::bitset<kMaxProperties>;

// Open arrays and objects in one output.
inline constexpr std::uint32_t kMaxDepth = 100;

// White space between the tokens of a JSON text: one blank, or a line break and this many blanks or
// tabs after it. None before and after the whole. So a text cannot go on for ever without saying
// anything.
inline constexpr std::uint32_t kMaxIndent = 64;

struct LiteralNode {
  std::string bytes;
};

// A scalar. `min_chars` and `max_chars` count characters; they are used where the texts are any
// characters at all, so that every state that accepts lies between two characters.
struct ScalarNode {
  SharedDfa dfa;
  bool is_quoted = false;  // `dfa` is what stands between the quotes of a JSON string
  std::uint32_t min_chars = 0, max_chars = kUnlimited;

  bool counts() const { return min_chars > 0 || max_chars != kUnlimited; }
};

struct ChoiceNode {
  std::vector<NodeId> choices;
};

struct SequenceNode {
  std::vector<NodeId> parts;  // at least one
};

struct ArrayNode {
  std::vector<NodeId> prefix;
  NodeId rest = kNoNode;  // items after the prefix
  std::uint32_t min = 0, max = kUnlimited;

  NodeId item(std::uint32_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

// The names of an object's properties in ascending order of their bytes, as a tree of prefixes.
class NameTrie {
 public:
  static constexpr std::uint32_t kRoot = 0, kNone = 0xFFFFFFFF;
  struct Range {
    std::uint32_t first = 0, end = 0;  // of the names below a node
  };

  NameTrie() = default;
  // `names` ascend and are unique.
  explicit NameTrie(std::span<const std::string> names);

  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;  // kNone if there is none
  Range names_below(std::uint32_t node) const { return nodes_[node].below; }
  // The name that ends here; kNone if none does.
  std::uint32_t name_at(std::uint32_t node) const { return nodes_[node].name; }

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // ascending
    Range below;
    std::uint32_t name = kNone;
  };
  std::vector<Node> nodes_ = {{}};
};

// How an object is written: as JSON, or as the parameters of a call.
enum class ObjectSyntax : std::uint8_t { kJson, kParameters };

struct ObjectNode {
  struct Value {
    NodeId json = kNoNode;  // kParameters: what is written as JSON, so no string
    NodeId text = kNoNode;  // kParameters: strings as they are
  };
  // Names that are not in `names` and have a value in common.
  struct Unlisted {
    SharedDfa spelling;         // of these names, and of listed ones where it `has_all`
    bool has_all = false;       // it has every name
    std::vector<bool> endless;  // by state of `spelling`; empty where it has_all
    Value value;
  };
  ObjectSyntax syntax = ObjectSyntax::kJson;
  NameTrie names;             // spelled as they are written
  std::vector<Value> values;  // by name
  PropertySet required;
  std::vector<Unlisted> unlisted;           // no name is in two of them
  std::uint32_t min = 0, max = kUnlimited;  // properties

  bool counts() const { return min > 0 || max != kUnlimited; }
};

using GrammarNode =
    std::variant<LiteralNode, ScalarNode, ChoiceNode, SequenceNode, ArrayNode, ObjectNode>;

// The tags around parameters.
struct ParameterMarkup {
  std::string begin;       // `<DSML parameter name="`
  std::string text_value;  // `" string="true">` after the name
  std::string json_value;  // `" string="false">`
  std::string end;         // `</DSML parameter>` and a line break
  std::string call_end;    // `</DSML invoke>`
};

// Immutable when complete.
class OutputGrammar {
 public:
  static constexpr std::size_t kMaxNodes = 50'000;
  static constexpr std::uint32_t kNeverEnds = 0xFFFFFFFF;

  NodeId add(GrammarNode node);
  void set(NodeId id, GrammarNode node);
  std::size_t size() const { return nodes_.size(); }
  const GrammarNode& node(NodeId id) const { return nodes_[id]; }

  // After the last node: finds out how deep each node has to nest.
  void complete();
  // How many arrays and objects a text of the node opens inside each other at least; kNeverEnds if
  // it has no text of at most kMaxDepth.
  std::uint32_t depth(NodeId id) const { return id == kNoNode ? kNeverEnds : depths_[id]; }

  ParameterMarkup markup;

 private:
  std::uint32_t depth_of(const GrammarNode& node) const;

  std::vector<GrammarNode> nodes_;
  std::vector<std::uint32_t> depths_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_OUTPUT_GRAMMAR_H_
