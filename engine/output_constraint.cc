#include "engine/output_constraint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/prompt_markers.h"
#include "engine/python_json.h"
#include "engine/schema_grammar.h"
#include "engine/tool_schema.h"

namespace cairn::engine {
namespace {

constexpr std::size_t kMaxMasks = 1024;  // kept by a constraint
constexpr std::size_t kFramesBeforeCompaction = 4096;
constexpr std::string_view kAsciiDsml = "|DSML|";

std::string dsml(MarkupSpelling spelling) {
  return spelling.dsml_as_text ? std::string(kDsml) : std::string(1, kDsmlCode);
}

std::string think_end(MarkupSpelling spelling) {
  return spelling.think_as_text ? std::string(kThinkEnd) : std::string(1, kThinkEndCode);
}

// What the output parser would not take for text.
std::vector<std::string> markup_starts(MarkupSpelling spelling) {
  std::vector<std::string> starts = {"<" + std::string(kAsciiDsml), "</" + std::string(kAsciiDsml)};
  for (const char code : {kThinkBeginCode, kThinkEndCode, kDsmlCode}) starts.emplace_back(1, code);
  if (spelling.dsml_as_text) {
    starts.push_back("<" + std::string(kDsml));
    starts.push_back("</" + std::string(kDsml));
  }
  if (spelling.think_as_text) {
    starts.emplace_back(kThinkBegin);
    starts.emplace_back(kThinkEnd);
  }
  return starts;
}

// Builds the grammar of a message.
class MessageGrammar {
 public:
  MessageGrammar(OutputGrammar& grammar, const ConstraintVocabulary& vocabulary)
      : grammar_(grammar),
        spelling_(vocabulary.masker.trie().spelling()),
        spellings_(vocabulary.spellings),
        schemas_(grammar, vocabulary.spellings) {
    const std::string begin = "<" + dsml(spelling_), end = "</" + dsml(spelling_);
    grammar_.markup.begin = begin + " parameter name=\"";
    grammar_.markup.text_value = "\" string=\"true\">";
    grammar_.markup.json_value = "\" string=\"false\">";
    grammar_.markup.end = end + " parameter>\n";
    grammar_.markup.call_end = end + " invoke>";
  }

  Result<NodeId> message(const OutputConstraintOptions& options) {
    CAIRN_ASSIGN_OR_RETURN(const NodeId content, this->content(options));
    if (!options.starts_in_reasoning) return content;
    ScalarNode reasoning;
    reasoning.dfa = spellings_->without_forbidden;  // may be made to end inside a character
    return sequence({grammar_.add(std::move(reasoning)), literal(think_end(spelling_)), content});
  }

  Result<NodeId> json(const SchemaGraph& schema) { return schemas_.add_json(schema); }

  // After the grammar is complete: what can never be written.
  Status check(NodeId root) const {
    for (const auto& [node, what] : checked_) {
      if (grammar_.depth(node) == OutputGrammar::kNeverEnds) {
        return invalid_argument("no value meets " + what,
                                "values nest at most " + std::to_string(kMaxDepth) + " deep");
      }
    }
    if (grammar_.depth(root) != OutputGrammar::kNeverEnds) return {};
    return invalid_argument("no value meets the schema",
                            "values nest at most " + std::to_string(kMaxDepth) + " deep");
  }

 private:
  NodeId literal(std::string bytes) { return grammar_.add(LiteralNode{std::move(bytes)}); }
  NodeId sequence(std::vector<NodeId> parts) {
    return grammar_.add(SequenceNode{std::move(parts)});
  }
  NodeId choice(std::vector<NodeId> choices) {
    return grammar_.add(ChoiceNode{std::move(choices)});
  }

  Result<NodeId> content(const OutputConstraintOptions& options) {
    const bool has_calls =
        options.rules.tool_choice != ToolChoice::kNone && !options.tools_json.empty();
    const bool must_call = options.rules.tool_choice == ToolChoice::kRequired ||
                           options.rules.tool_choice == ToolChoice::kNamed;
    if (must_call && !has_calls) {
      return invalid_argument("the turn has to call a tool, but none is declared",
                              "append a system message with tools first");
    }
    NodeId calls = kNoNode;
    if (has_calls) {
      CAIRN_ASSIGN_OR_RETURN(calls, this->calls(options));
    }
    if (must_call) return sequence({literal("\n\n"), calls});
    if (!options.rules.response_format_json.empty()) {
      CAIRN_ASSIGN_OR_RETURN(const SchemaGraph graph,
                             parse_json_schema(std::string_view(options.rules.response_format_json),
                                               "response format"));
      CAIRN_ASSIGN_OR_RETURN(const NodeId json, schemas_.add_json(graph));
      checked_.emplace_back(json, "the response format");
      return has_calls ? choice({json, sequence({literal("\n\n"), calls})}) : json;
    }
    ScalarNode text;
    text.dfa = spellings_->text;
    const NodeId said = grammar_.add(std::move(text));
    return has_calls ? sequence({said, choice({literal(""), calls})}) : said;
  }

  Result<NodeId> calls(const OutputConstraintOptions& options) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<JsonValue> functions, parse_tools(options.tools_json));
    std::map<std::string, NodeId> by_name;
    for (const JsonValue& function : functions) {
      const std::string& name = function.find("name")->text;
      if (options.rules.tool_choice == ToolChoice::kNamed && name != options.rules.tool_name)
        continue;
      if (name.find_first_of("<\n") != std::string::npos) {
        return invalid_argument("tool '" + name + "': its name cannot be written in a call",
                                "rename the tool");
      }
      CAIRN_ASSIGN_OR_RETURN(const NodeId parameters, this->parameters(function, name));
      by_name.insert_or_assign(name + "\">\n", parameters);
    }
    if (by_name.empty()) {
      return Status(StatusCode::kNotFound,
                    options.rules.tool_choice == ToolChoice::kNamed
                        ? "no tool '" + options.rules.tool_name + "' is declared"
                        : "no tool is declared");
    }
    const std::string begin = "<" + dsml(spelling_), end = "</" + dsml(spelling_);
    const std::vector<std::pair<std::string, NodeId>> names(by_name.begin(), by_name.end());
    // One call, then a line break and another call or the end.
    const NodeId more = grammar_.add(ChoiceNode());
    const NodeId call =
        sequence({literal(begin + " invoke name=\""), one_of(names, 0), literal("\n"), more});
    const NodeId calls_end = literal(end + " calls>");
    const bool is_one = options.rules.tool_choice == ToolChoice::kNamed;
    grammar_.set(more, is_one ? ChoiceNode{{calls_end}} : ChoiceNode{{call, calls_end}});
    return sequence({literal(begin + " calls>\n"), call});
  }

  Result<NodeId> parameters(const JsonValue& function, const std::string& name) {
    const std::string what = "the parameters of tool '" + name + "'";
    JsonValue no_parameters = JsonValue::make_object();
    no_parameters.add("type", JsonValue::make_string("object"));
    const JsonValue* declared = function.find("parameters");
    const bool is_given = declared != nullptr && !declared->is(JsonValue::Kind::kNull);
    CAIRN_ASSIGN_OR_RETURN(const SchemaGraph graph,
                           parse_json_schema(is_given ? *declared : no_parameters, what));
    Result<NodeId> node = schemas_.add_parameters(graph);
    if (node.ok()) {
      checked_.emplace_back(*node, what);
      return node;
    }
    return Status(node.status().code(), what + ": " + std::string(node.status().message()),
                  std::string(node.status().hint()));
  }

  // Names and what follows them, with common beginnings read once. `names` ascend; their first
  // `n_read` bytes are equal and were read.
  NodeId one_of(std::span<const std::pair<std::string, NodeId>> names, std::size_t n_read) {
    const std::string& first = names.front().first;
    if (names.size() == 1) {
      return sequence({literal(first.substr(n_read)), names.front().second});
    }
    const std::string& last = names.back().first;
    const auto differs = std::ranges::mismatch(first, last);
    const auto n_common = static_cast<std::size_t>(differs.in1 - first.begin());
    std::vector<NodeId> choices;
    for (std::size_t begin = 0, end = 0; begin < names.size(); begin = end) {
      while (end < names.size() && names[end].first[n_common] == names[begin].first[n_common]) {
        ++end;
      }
      choices.push_back(one_of(names.subspan(begin, end - begin), n_common));
    }
    return sequence({literal(first.substr(n_read, n_common - n_read)), choice(std::move(choices))});
  }

  OutputGrammar& grammar_;
  MarkupSpelling spelling_;
  std::shared_ptr<const Spellings> spellings_;
  SchemaGrammar schemas_;
  std::vector<std::pair<NodeId, std::string>> checked_;
};

}  // namespace

Result<std::shared_ptr<ConstraintVocabulary>> ConstraintVocabulary::create(
    const Tokenizer& tokenizer, std::span<const TokenId> never, TokenId eos, int vocab_size) {
  auto trie = std::make_shared<const TokenTrie>(tokenizer, never, eos, vocab_size);
  CAIRN_ASSIGN_OR_RETURN(auto spellings, Spellings::create(markup_starts(trie->spelling())));
  return std::make_shared<ConstraintVocabulary>(
      ConstraintVocabulary{TokenMasker(std::move(trie)), std::move(spellings)});
}

Result<std::shared_ptr<OutputConstraint>> OutputConstraint::create(
    std::shared_ptr<ConstraintVocabulary> vocabulary, const OutputConstraintOptions& options) {
  std::shared_ptr<OutputConstraint> out(new OutputConstraint(std::move(vocabulary)));
  MessageGrammar message(out->grammar_, *out->vocabulary_);
  CAIRN_ASSIGN_OR_RETURN(out->root_, message.message(options));
  out->grammar_.complete();
  CAIRN_RETURN_IF_ERROR(message.check(out->root_));
  return out;
}

Result<std::shared_ptr<OutputConstraint>> OutputConstraint::of_json(
    std::shared_ptr<ConstraintVocabulary> vocabulary, std::string_view schema_json) {
  CAIRN_ASSIGN_OR_RETURN(const SchemaGraph graph, parse_json_schema(schema_json, "schema"));
  std::shared_ptr<OutputConstraint> out(new OutputConstraint(std::move(vocabulary)));
  MessageGrammar message(out->grammar_, *out->vocabulary_);
  CAIRN_ASSIGN_OR_RETURN(out->root_, message.json(graph));
  out->grammar_.complete();
  CAIRN_RETURN_IF_ERROR(message.check(out->root_));
  return out;
}

ConstraintState::ConstraintState(std::shared_ptr<OutputConstraint> constraint)
    : constraint_(std::move(constraint)), run_(constraint_->grammar_) {
  run_.begin(constraint_->root_, readings_);
}

std::shared_ptr<const TokenMask> ConstraintState::mask() {
  std::string key(1, readings_.ended ? 'e' : 'o');
  const std::uint32_t n_ahead = constraint_->vocabulary_->masker.trie().max_bytes();
  for (const Reading& reading : readings_.open) run_.describe(reading, n_ahead, key);
  auto& masks = constraint_->masks_;
  const auto known = masks.find(key);
  if (known != masks.end()) return known->second;
  if (masks.size() >= kMaxMasks) masks.clear();
  auto mask =
      std::make_shared<const TokenMask>(constraint_->vocabulary_->masker.mask(run_, readings_));
  masks.emplace(std::move(key), mask);
  return mask;
}

Status ConstraintState::advance(TokenId token) {
  const TokenTrie& trie = constraint_->vocabulary_->masker.trie();
  const auto refused = [&] {
    return invalid_argument("token " + std::to_string(token) +
                            " does not continue the constrained output");
  };
  if (token == trie.eos()) {
    if (!readings_.ended) return refused();
    readings_.clear();
    return {};
  }
  const std::string_view bytes = trie.bytes(token);
  if (bytes.empty()) return refused();
  const GrammarRun::Mark begin = run_.mark();
  Readings now = readings_, next;
  for (const char c : bytes) {
    run_.step(now, static_cast<std::uint8_t>(c), next);
    std::swap(now, next);
    if (now.none()) {
      run_.forget_since(begin);
      return refused();
    }
  }
  readings_ = std::move(now);
  if (run_.n_frames() > n_frames_kept_ + kFramesBeforeCompaction) {
    run_.compact(readings_);
    n_frames_kept_ = run_.n_frames();
  }
  return {};
}

}  // namespace cairn::engine
