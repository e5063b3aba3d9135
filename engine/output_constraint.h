// What a turn's output has to be: its message's markup, tool calls and JSON as one grammar over the
// tokens of a vocabulary.
//
// The output is reasoning, where the turn begins in it, and its end marker; then text, or JSON of a
// schema, or a block of calls, or text and then calls, as the options say. Markup is written in the
// one form of spec/prompt-format.md section 4.1; no other text looks like markup to the output
// parser. All of it is well-formed UTF-8.
#ifndef CAIRN_ENGINE_OUTPUT_CONSTRAINT_H_
#define CAIRN_ENGINE_OUTPUT_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/message.h"
#include "cairn/session.h"
#include "cairn/status.h"
#include "engine/grammar_run.h"
#include "engine/json_schema.h"
#include "engine/output_grammar.h"
#include "engine/schema_grammar.h"
#include "engine/token_mask.h"

namespace cairn::engine {

// What all constraints of a model share. States of constraints are used by one thread at a time,
// all those of a model together; making constraints is not bound to it.
struct ConstraintVocabulary {
  TokenMasker masker;
  std::shared_ptr<const Spellings> spellings;

  // Takes time: a second or less, for 10^5 tokens. `never`: ids that are never chosen. The
  // tokenizer is not kept.
  static Result<std::shared_ptr<ConstraintVocabulary>> create(const Tokenizer& tokenizer,
                                                              std::span<const TokenId> never,
                                                              TokenId eos, int vocab_size);
};

struct OutputConstraintOptions {
  bool starts_in_reasoning = false;
  std::string tools_json;  // declared tools; empty = none, so no call is possible
  OutputRules rules;

  bool operator==(const OutputConstraintOptions&) const = default;
};

// Immutable but for the masks it keeps.
class OutputConstraint {
 public:
  // kInvalidArgument, kUnsupported: a schema or tool that cannot be followed, by name and place.
  static Result<std::shared_ptr<OutputConstraint>> create(
      std::shared_ptr<ConstraintVocabulary> vocabulary, const OutputConstraintOptions& options);
  // Nothing but one JSON text.
  static Result<std::shared_ptr<OutputConstraint>> of_json(
      std::shared_ptr<ConstraintVocabulary> vocabulary, std::string_view schema_json);

 private:
  friend class ConstraintState;
  explicit OutputConstraint(std::shared_ptr<ConstraintVocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<ConstraintVocabulary> vocabulary_;
  OutputGrammar grammar_;
  NodeId root_ = kNoNode;
  // By a description of the readings (GrammarRun::describe).
  std::unordered_map<std::string, std::shared_ptr<const TokenMask>> masks_;
};

// How far an output has come. Copies go on independently; the same tokens lead to an equal state.
class ConstraintState {
 public:
  explicit ConstraintState(std::shared_ptr<OutputConstraint> constraint);

  // The tokens that may come next; none after end-of-sentence.
  std::shared_ptr<const TokenMask> mask();
  // kInvalidArgument if the token may not come next; the state is unchanged then.
  Status advance(TokenId token);
  // Whether the output may end here.
  bool may_end() const { return readings_.ended; }

 private:
  std::shared_ptr<OutputConstraint> constraint_;
  GrammarRun run_;
  Readings readings_;
  std::size_t n_frames_kept_ = 0;  // after the last compaction
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_OUTPUT_CONSTRAINT_H_
