// Changed schemas and patterns: each is refused with an error or becomes an automaton that can
// always be finished, in bounded time and memory. Nothing crashes.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "engine/python_json.h"
#include "engine/schema_pattern.h"
#include "tests/fuzz/mutation.h"
#include "tests/support/schema_text.h"

namespace cairn {
namespace {

const std::vector<std::string> kSeeds = {
    R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":9},"b":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":false,"$defs":{"n":{"type":["integer","null"],"minimum":-5,"exclusiveMaximum":1e2}}})",
    R"({"anyOf":[{"enum":["x",1,null,[1,{"k":true}]]},{"type":"array","prefixItems":[{"const":1.5}],"items":{"$ref":"#"},"minItems":1,"maxItems":3}]})",
    R"({"type":"string","pattern":"^(?:[a-z]{2,5}|\\d+\\.\\w*)$","format":"uuid"})",
    R"({"oneOf":[{"allOf":[{"minimum":1},{"maximum":3.25}]},{"type":"boolean"}],"additionalProperties":{"type":"number"}})",
};
void collect(engine::JsonValue& value, std::vector<engine::JsonValue*>& out) {
  out.push_back(&value);
  for (engine::JsonMember& member : value.members) collect(member.value, out);
  for (engine::JsonValue& item : value.items) collect(item, out);
}

// A seed of which some parts are parts of seeds: still JSON, often a schema.
std::string recombined(test::Mutation& mutation) {
  engine::JsonValue tree = *engine::parse_json(kSeeds[mutation.below(kSeeds.size())]);
  do {
    engine::JsonValue other = *engine::parse_json(kSeeds[mutation.below(kSeeds.size())]);
    std::vector<engine::JsonValue*> places, parts;
    collect(tree, places);
    collect(other, parts);
    *places[mutation.below(places.size())] = *parts[mutation.below(parts.size())];
  } while (mutation.below(3) == 0);
  return engine::to_python_json(tree);
}

// Reads random bytes that the automaton allows for a while; it must never have nowhere to go.
void walk(const tests::SchemaText& schema, std::mt19937_64& random) {
  engine::GrammarRun run(schema.grammar());
  engine::Readings now, next;
  run.begin(schema.root(), now);
  for (int i = 0; i < 40; ++i) {
    std::vector<std::uint8_t> possible;
    const engine::GrammarRun::Mark mark = run.mark();
    for (int byte = 0; byte < 256; ++byte) {
      run.step(now, static_cast<std::uint8_t>(byte), next);
      if (!next.none()) possible.push_back(static_cast<std::uint8_t>(byte));
      run.forget_since(mark);
    }
    ASSERT_TRUE(now.ended || !possible.empty());
    if (possible.empty()) return;
    run.step(now, possible[random() % possible.size()], next);
    std::swap(now, next);
  }
}

TEST(SchemaTexts, changed_schemas_are_refused_or_followed) {
  constexpr std::uint32_t kSeed = 31;
  std::mt19937_64 random(kSeed);
  test::Mutation mutation(kSeed);
  int n_followed = 0, n_refused = 0;
  for (int i = 0; i < test::n_inputs(3000); ++i) {
    const std::string text = i % 2 == 0 ? mutation.of(kSeeds) : recombined(mutation);
    SCOPED_TRACE(text);
    const auto schema = tests::SchemaText::compile(text);
    if (!schema.ok()) {
      ++n_refused;
      EXPECT_TRUE(schema.status().code() == StatusCode::kInvalidArgument ||
                  schema.status().code() == StatusCode::kUnsupported)
          << schema.status().to_string();
      EXPECT_FALSE(schema.status().message().empty());
      continue;
    }
    if (schema->is_possible() && i % 4 == 0) walk(*schema, random);
    ++n_followed;
    ASSERT_FALSE(HasFailure());
  }
  std::printf("seed %llu: %d followed, %d refused\n", static_cast<unsigned long long>(kSeed),
              n_followed, n_refused);
  EXPECT_GT(n_followed, test::n_inputs(3000) / 10);
}

TEST(SchemaTexts, changed_patterns_are_refused_or_compiled) {
  test::Mutation mutation(32);
  const std::vector<std::string> seeds = {"^(?:[a-z]{2,5}|\\d+\\.\\w*)$", "(a|b(c|[^d-f]?)+){1,4}",
                                          "[\\s\\S]*é?\\u{1F600}.\\x41$"};
  int n_compiled = 0;
  for (int i = 0; i < test::n_inputs(2000); ++i) {
    const std::string pattern = mutation.of(seeds);
    const auto dfa = engine::compile_pattern(pattern);
    if (!dfa.ok()) {
      EXPECT_FALSE(dfa.status().message().empty());
      continue;
    }
    ++n_compiled;
    EXPECT_LE((*dfa)->n_states(), engine::kMaxDfaStates + 1);
  }
  EXPECT_GT(n_compiled, test::n_inputs(2000) / 10);
}

}  // namespace
}  // namespace cairn
