// Whether a text is JSON that meets a schema, as the automaton of constrained output sees it; and
// random texts that the token masks allow.
#ifndef CAIRN_TESTS_SUPPORT_SCHEMA_TEXT_H_
#define CAIRN_TESTS_SUPPORT_SCHEMA_TEXT_H_

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar_run.h"
#include "engine/json_schema.h"
#include "engine/output_constraint.h"
#include "engine/schema_grammar.h"
#include "engine/token_mask.h"

namespace cairn::tests {

// A schema's automaton over bytes, without a vocabulary.
class SchemaText {
 public:
  static Result<SchemaText> compile(std::string_view schema_json) {
    SchemaText out;
    CAIRN_ASSIGN_OR_RETURN(const engine::SchemaGraph graph,
                           engine::parse_json_schema(schema_json, "schema"));
    static const auto spellings = engine::Spellings::create({"<|DSML|", "</|DSML|"});
    CAIRN_RETURN_IF_ERROR(spellings.status());
    engine::SchemaGrammar schemas(*out.grammar_, *spellings);
    CAIRN_ASSIGN_OR_RETURN(out.root_, schemas.add_json(graph));
    out.grammar_->complete();
    return out;
  }

  bool is_possible() const { return grammar_->depth(root_) != engine::OutputGrammar::kNeverEnds; }
  bool accepts(std::string_view text) const {
    engine::GrammarRun run(*grammar_);
    engine::Readings now, next;
    run.begin(root_, now);
    for (const char c : text) {
      run.step(now, static_cast<std::uint8_t>(c), next);
      std::swap(now, next);
      if (now.none()) return false;
    }
    return now.ended;
  }
  const engine::OutputGrammar& grammar() const { return *grammar_; }
  engine::NodeId root() const { return root_; }

 private:
  std::shared_ptr<engine::OutputGrammar> grammar_ = std::make_shared<engine::OutputGrammar>();
  engine::NodeId root_ = engine::kNoNode;
};

struct Sample {
  std::string text;
  int n_tokens = 0;
  bool ended = false;  // by itself, not by the limit
  bool stuck = false;  // no token was allowed
};

inline int n_allowed(const engine::TokenMask& mask) {
  int n = 0;
  for (const std::uint64_t word : mask) n += std::popcount(word);
  return n;
}

// The allowed token that has `rank` allowed ones before it.
inline TokenId allowed_token(const engine::TokenMask& mask, int rank) {
  for (std::size_t word = 0;; ++word) {
    std::uint64_t bits = mask[word];
    if (rank >= std::popcount(bits)) {
      rank -= std::popcount(bits);
      continue;
    }
    for (; rank > 0; --rank) bits &= bits - 1;
    return static_cast<TokenId>(word * 64) + std::countr_zero(bits);
  }
}

// Draws allowed tokens at random, each equally likely, but for this: random tokens open more than
// they close, so every other token closes something where that is allowed. Where the text may end,
// it ends with probability `end`.
inline Sample sample_text(const std::shared_ptr<engine::OutputConstraint>& constraint,
                          const engine::TokenTrie& trie, std::mt19937_64& random, int max_tokens,
                          double end) {
  std::vector<TokenId> closing;
  for (TokenId id = 0; id < trie.vocab_size(); ++id) {
    const std::string_view bytes = trie.bytes(id);
    if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
  }
  engine::ConstraintState state(constraint);
  Sample sample;
  for (; sample.n_tokens < max_tokens; ++sample.n_tokens) {
    const auto mask = state.mask();
    const int n = n_allowed(*mask);
    if (state.may_end() && (n == 1 || std::bernoulli_distribution(end)(random))) {
      sample.ended = state.advance(trie.eos()).ok();
      return sample;
    }
    TokenId chosen = -1;
    if (std::bernoulli_distribution(0.5)(random)) {
      std::ranges::shuffle(closing, random);
      for (const TokenId id : closing) {
        if (engine::allows(*mask, id)) chosen = id;
      }
    }
    while (n > 0 && (chosen < 0 || chosen == trie.eos())) {
      chosen = allowed_token(*mask, std::uniform_int_distribution(0, n - 1)(random));
    }
    if (n == 0 || !state.advance(chosen).ok()) {
      sample.stuck = true;
      return sample;
    }
    sample.text += trie.bytes(chosen);
  }
  return sample;
}

}  // namespace cairn::tests

#endif  // CAIRN_TESTS_SUPPORT_SCHEMA_TEXT_H_
