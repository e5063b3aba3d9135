// The automaton of constrained output as a program, for tests against a JSON-Schema validator
// (schema_ajv_test.mjs). Reads a JSON object a line and answers with one:
//   {"schema": S, "texts": [...]}            -> {"accepts": [true, ...]}
//   {"schema": S, "samples": N, "seed": K}   -> {"samples": [...], "tokens": N, "stuck": N, "cut":
//   N}
// A schema that is refused or that nothing meets: {"error": "..."}.
#include <cstdio>
#include <iostream>
#include <random>
#include <string>

#include "engine/python_json.h"
#include "tests/support/released_tokenizer.h"
#include "tests/support/schema_text.h"

namespace {

using namespace cairn;
using engine::JsonValue;

constexpr int kMaxTokens = 3000;

JsonValue number(long long value) {
  JsonValue out;
  out.kind = JsonValue::Kind::kNumber;
  out.text = std::to_string(value);
  return out;
}

JsonValue error(const std::string& text) {
  JsonValue out = JsonValue::make_object();
  out.add("error", JsonValue::make_string(text));
  return out;
}

JsonValue accepts(const JsonValue& schema, const JsonValue& texts) {
  const auto compiled = tests::SchemaText::compile(engine::to_python_json(schema));
  if (!compiled.ok()) return error(compiled.status().to_string());
  JsonValue answers = JsonValue::make_array();
  for (const JsonValue& text : texts.items) {
    answers.items.push_back(
        JsonValue::make_bool(compiled->is_possible() && compiled->accepts(text.text)));
  }
  JsonValue out = JsonValue::make_object();
  out.add("accepts", std::move(answers));
  return out;
}

JsonValue samples(const std::shared_ptr<engine::ConstraintVocabulary>& vocabulary,
                  const JsonValue& schema, int n_samples, unsigned long long seed) {
  const auto constraint =
      engine::OutputConstraint::of_json(vocabulary, engine::to_python_json(schema));
  if (!constraint.ok()) return error(constraint.status().to_string());
  std::mt19937_64 random(seed);
  JsonValue texts = JsonValue::make_array();
  long long n_tokens = 0, n_stuck = 0, n_cut = 0;
  for (int i = 0; i < n_samples; ++i) {
    const tests::Sample sample =
        tests::sample_text(*constraint, vocabulary->masker.trie(), random, kMaxTokens, 0.3);
    n_tokens += sample.n_tokens;
    n_stuck += sample.stuck;
    n_cut += !sample.stuck && !sample.ended;
    if (sample.ended) texts.items.push_back(JsonValue::make_string(sample.text));
  }
  JsonValue out = JsonValue::make_object();
  out.add("samples", std::move(texts));
  out.add("tokens", number(n_tokens));
  out.add("stuck", number(n_stuck));
  out.add("cut", number(n_cut));
  return out;
}

}  // namespace

// Arguments: `toy` takes the vocabulary of the toy model instead of the released one.
int main(int argc, char** argv) {
  const bool is_toy = argc > 1 && std::string(argv[1]) == "toy";
  const engine::Tokenizer& tokenizer =
      is_toy ? *tests::toy_tokenizer() : *tests::released_tokenizer();
  const auto vocabulary = engine::ConstraintVocabulary::create(tokenizer, {}, 1, tokenizer.size());
  if (!vocabulary.ok()) return 1;
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = engine::parse_json(line);
    const JsonValue* schema = request.ok() ? request->find("schema") : nullptr;
    JsonValue answer = error("malformed request");
    if (schema != nullptr && request->find("texts") != nullptr) {
      answer = accepts(*schema, *request->find("texts"));
    } else if (schema != nullptr && request->find("samples") != nullptr) {
      answer = samples(*vocabulary, *schema, std::stoi(request->find("samples")->text),
                       std::stoull(request->find("seed")->text));
    }
    std::cout << engine::to_python_json(answer) << std::endl;
  }
  return 0;
}
