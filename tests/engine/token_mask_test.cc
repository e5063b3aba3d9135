// A mask allows exactly the tokens whose bytes the grammar can read, on random places of many
// grammars.
#include "engine/token_mask.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/output_constraint.h"
#include "tests/support/released_tokenizer.h"
#include "tests/support/schema_text.h"

namespace cairn::engine {
namespace {

std::shared_ptr<ConstraintVocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  const auto vocabulary = ConstraintVocabulary::create(tokenizer, {}, 1, tokenizer.size());
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().to_string();
  return vocabulary.ok() ? *vocabulary : nullptr;
}

std::shared_ptr<ConstraintVocabulary> toy_vocabulary() {
  static const auto vocabulary = vocabulary_of(*tests::toy_tokenizer());
  return vocabulary;
}

std::shared_ptr<ConstraintVocabulary> released_vocabulary() {
  static const auto vocabulary = vocabulary_of(*tests::released_tokenizer());
  return vocabulary;
}

constexpr char kTools[] = R"([
 {"type":"function","function":{"name":"find","parameters":{"type":"object","properties":{
   "text":{"type":"string","minLength":1,"maxLength":12},"limit":{"type":"integer","minimum":1,"maximum":50},
   "where":{"enum":["here","there",3]},"deep":{"type":["array","null"],"items":{"type":"string","maxLength":3}}},
   "required":["text"]}}},
 {"type":"function","function":{"name":"find_all","parameters":{"type":"object","additionalProperties":{"type":["string","number"]}}}},
 {"type":"function","function":{"name":"stop"}}])";

const std::vector<std::string> kSchemas = {
    "true",
    R"({"type":"object","properties":{"a":{"type":"string"},"ab":{"type":"integer"},"abc":{"type":"boolean"}},"required":["ab"],"additionalProperties":false})",
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":5}},"additionalProperties":{"type":"string","minLength":2}})",
    R"({"type":"array","items":{"type":"string","pattern":"^[a-z ]+$"},"minItems":2,"maxItems":5})",
    R"({"anyOf":[{"type":"object","properties":{"k":{"const":"x"},"v":{"type":"number"}}},{"type":"object","properties":{"k":{"enum":["xy","z"]},"v":{"type":"string"}}}]})",
    R"({"type":"number","minimum":-1,"exclusiveMaximum":100})",
    R"({"type":"string","format":"date-time"})",
    R"({"type":"string","minLength":3,"maxLength":7})",
    R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"n":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"additionalProperties":false}}})",
};

std::vector<std::shared_ptr<OutputConstraint>> constraints(
    const std::shared_ptr<ConstraintVocabulary>& vocabulary) {
  std::vector<std::shared_ptr<OutputConstraint>> out;
  const auto add = [&](const Result<std::shared_ptr<OutputConstraint>>& made) {
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    out.push_back(*made);
  };
  for (const std::string& schema : kSchemas) add(OutputConstraint::of_json(vocabulary, schema));
  OutputConstraintOptions options;
  options.tools_json = kTools;
  for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired, ToolChoice::kNone}) {
    options.rules.tool_choice = choice;
    add(OutputConstraint::create(vocabulary, options));
  }
  options.starts_in_reasoning = true;
  options.rules.tool_choice = ToolChoice::kAuto;
  options.rules.response_format_json = kSchemas[1];
  add(OutputConstraint::create(vocabulary, options));
  return out;
}

// A random allowed token; markup and closing tokens are preferred to get anywhere.
TokenId draw(const TokenMask& mask, const TokenTrie& trie, std::mt19937_64& random) {
  if (random() % 2 == 0) {
    for (int i = 0; i < 400; ++i) {
      const auto id = static_cast<TokenId>(random() % static_cast<unsigned>(trie.vocab_size()));
      const std::string_view bytes = trie.bytes(id);
      const bool is_structural =
          bytes.find_first_of("\"{}[]<>:,\n/\xF9\xFA") != std::string_view::npos;
      if (allows(mask, id) && is_structural) return id;
    }
  }
  return tests::allowed_token(
      mask, static_cast<int>(random() % static_cast<unsigned>(tests::n_allowed(mask))));
}

// Each token's bytes run through the automaton.
void check_mask(ConstraintState& state, const TokenTrie& trie, TokenId first, TokenId step,
                int& n_compared) {
  const auto mask = state.mask();
  for (TokenId id = first; id < trie.vocab_size(); id += step) {
    ConstraintState copy = state;
    ASSERT_EQ(allows(*mask, id), copy.advance(id).ok())
        << "token " << id << " '" << trie.bytes(id) << "'";
    ++n_compared;
  }
}

void compare_with_brute_force(const std::shared_ptr<ConstraintVocabulary>& vocabulary, int n_walks,
                              int n_tokens, TokenId step, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const TokenTrie& trie = vocabulary->masker.trie();
  int n_compared = 0, n_states = 0;
  for (const auto& constraint : constraints(vocabulary)) {
    for (int walk = 0; walk < n_walks; ++walk) {
      ConstraintState state(constraint);
      for (int i = 0; i < n_tokens; ++i) {
        const auto mask = state.mask();
        if (tests::n_allowed(*mask) == 0) {
          ASSERT_TRUE(i > 0);
          break;  // end-of-sentence was drawn
        }
        check_mask(state, trie, static_cast<TokenId>(random() % static_cast<unsigned>(step)), step,
                   n_compared);
        if (testing::Test::HasFatalFailure()) return;
        ++n_states;
        ASSERT_TRUE(state.advance(draw(*mask, trie, random)).ok());
      }
    }
  }
  std::printf("seed %llu: %d states, %d tokens compared\n", static_cast<unsigned long long>(seed),
              n_states, n_compared);
  EXPECT_GT(n_states, n_walks * n_tokens);
}

TEST(TokenMask, equals_brute_force_over_a_toy_vocabulary) {
  compare_with_brute_force(toy_vocabulary(), 3, 25, 7, 1);
}

// A sample of tokens in each state: the vocabulary is large.
TEST(TokenMask, equals_brute_force_over_the_released_vocabulary) {
  compare_with_brute_force(released_vocabulary(), 2, 25, 97, 2);
}

TEST(TokenMask, an_output_can_always_be_continued_or_ended) {
  std::mt19937_64 random(3);
  for (const auto& vocabulary : {toy_vocabulary(), released_vocabulary()}) {
    int n_tokens = 0;
    for (const auto& constraint : constraints(vocabulary)) {
      for (int walk = 0; walk < 5; ++walk) {
        ConstraintState state(constraint);
        for (int i = 0; i < 100; ++i) {
          const auto mask = state.mask();
          const bool has_eos = allows(*mask, 1);
          ASSERT_EQ(has_eos, state.may_end());
          ASSERT_GT(tests::n_allowed(*mask), 0);
          const TokenId token = draw(*mask, vocabulary->masker.trie(), random);
          ASSERT_TRUE(state.advance(token).ok());
          ++n_tokens;
          if (token == 1) break;
        }
      }
    }
    std::printf("%d tokens drawn\n", n_tokens);
  }
}

TEST(TokenMask, the_same_tokens_lead_to_the_same_masks) {
  std::mt19937_64 random(4);
  const TokenTrie& trie = toy_vocabulary()->masker.trie();
  for (const auto& constraint : constraints(toy_vocabulary())) {
    ConstraintState state(constraint);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 60 && tests::n_allowed(*state.mask()) > 0; ++i) {
      tokens.push_back(draw(*state.mask(), trie, random));
      ASSERT_TRUE(state.advance(tokens.back()).ok());
    }
    ConstraintState replayed(constraint);
    for (const TokenId token : tokens) ASSERT_TRUE(replayed.advance(token).ok());
    EXPECT_EQ(*replayed.mask(), *state.mask());
    EXPECT_EQ(replayed.may_end(), state.may_end());
    // A refused token changes nothing; a copy that goes on does not touch the original.
    ConstraintState copy = state;
    for (TokenId id = 0; id < trie.vocab_size(); ++id) {
      if (!allows(*state.mask(), id)) {
        EXPECT_EQ(state.advance(id).code(), StatusCode::kInvalidArgument);
        break;
      }
    }
    if (tests::n_allowed(*copy.mask()) > 0) {
      ASSERT_TRUE(copy.advance(draw(*copy.mask(), trie, random)).ok());
    }
    EXPECT_EQ(*replayed.mask(), *state.mask());
  }
}

TEST(TokenMask, long_outputs_keep_their_memory_small) {
  const auto constraint = OutputConstraint::of_json(
      toy_vocabulary(), R"({"type":"array","items":{"type":"object","required":["a"]}})");
  ASSERT_TRUE(constraint.ok());
  const Tokenizer& tokenizer = *tests::toy_tokenizer();
  ConstraintState state(*constraint);
  const auto say = [&](std::string_view text) {
    std::vector<TokenId> tokens;
    tokenizer.encode_text(text, tokens);
    for (const TokenId token : tokens) ASSERT_TRUE(state.advance(token).ok()) << text;
  };
  say("[");
  for (int i = 0; i < 3000; ++i)
    say(i == 0 ? R"({"a":[1,{"b":"x"}]})" : R"(, {"a":[1,{"b":"x"}]})");
  say("]");
  EXPECT_TRUE(state.may_end());
}

TEST(TokenTrie, holds_every_token_once_under_its_bytes) {
  for (const auto& vocabulary : {toy_vocabulary(), released_vocabulary()}) {
    const TokenTrie& trie = vocabulary->masker.trie();
    std::vector<int> seen(static_cast<std::size_t>(trie.vocab_size()));
    for (const TokenTrie::Node& node : trie.nodes()) {
      EXPECT_EQ(static_cast<std::uint8_t>(trie.path(node).back()), node.byte);
      for (const TokenId id : trie.tokens(node)) {
        ++seen[static_cast<std::size_t>(id)];
        EXPECT_EQ(trie.bytes(id), trie.path(node));
      }
    }
    int n_chosen = 0;
    for (TokenId id = 0; id < trie.vocab_size(); ++id) {
      EXPECT_EQ(seen[static_cast<std::size_t>(id)], trie.bytes(id).empty() ? 0 : 1) << id;
      n_chosen += !trie.bytes(id).empty();
    }
    EXPECT_GT(n_chosen, trie.vocab_size() * 9 / 10);
    EXPECT_TRUE(trie.bytes(trie.eos()).empty());
  }
}

}  // namespace
}  // namespace cairn::engine
