// What constrained output costs a token: finding the mask, keeping it from the logits, reading the
// chosen token. Documents are drawn over the released vocabulary and over its first 4096 tokens;
// the first time masks are computed, the second time (the steady state of a schema in use) they are
// known. Beside it a decode step of the tiny model.
//
//   mask_bench [--documents N] [--rounds N] [--model DIR]
#include <cstdio>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "engine/loaded_model.h"
#include "engine/runtime.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "tests/bench/measure.h"
#include "tests/support/released_tokenizer.h"
#include "tests/support/schema_text.h"

namespace {

using namespace cairn::bench;
using cairn::TokenId;
using cairn::engine::ConstraintState;
using cairn::engine::ConstraintVocabulary;
using cairn::engine::OutputConstraint;
using cairn::engine::OutputConstraintOptions;

constexpr char kRecords[] =
    R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"integer","minimum":0,
        "maximum":99999},"name":{"type":"string"},"tags":{"type":"array","items":{"enum":["a","b","long tag"]}},
        "when":{"type":"string","format":"date-time"},"score":{"type":"number"}},
        "required":["id","name"],"additionalProperties":false}})";
constexpr char kTools[] =
    R"([{"type":"function","function":{"name":"edit_file","parameters":{"type":"object",
    "properties":{"path":{"type":"string"},"text":{"type":"string"},"line":{"type":"integer"}},
    "required":["path","text"],"additionalProperties":false}}},
    {"type":"function","function":{"name":"run","parameters":{"type":"object",
    "properties":{"command":{"type":"string","maxLength":4000},"timeout":{"type":"integer","minimum":1,
    "maximum":600}},"required":["command"]}}}])";

struct Document {
  std::vector<TokenId> tokens;
};

// Draws one, as a mask allows it.
Document draw(const std::shared_ptr<OutputConstraint>& constraint, TokenId eos,
              std::mt19937_64& random, std::vector<double>& us) {
  ConstraintState state(constraint);
  Document document;
  while (document.tokens.size() < 300) {
    const auto start = Clock::now();
    const auto mask = state.mask();
    us.push_back(ms_since(start) * 1000);
    const int n = cairn::tests::n_allowed(*mask);
    const TokenId token =
        cairn::tests::allowed_token(*mask, static_cast<int>(random() % static_cast<unsigned>(n)));
    check(state.advance(token));
    document.tokens.push_back(token);
    if (token == eos) break;
  }
  return document;
}

// Microseconds a token for the mask, the logits and the step.
void replay(const std::shared_ptr<OutputConstraint>& constraint, const Document& document,
            std::vector<float>& logits, std::vector<double>& us) {
  ConstraintState state(constraint);
  for (const TokenId token : document.tokens) {
    const auto start = Clock::now();
    const auto mask = state.mask();
    cairn::engine::forbid_others(logits, *mask);
    check(state.advance(token));
    us.push_back(ms_since(start) * 1000);
  }
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The mean of the steady state.
double measure(int vocab_size, int n_documents, int n_rounds) {
  const auto& tokenizer = *cairn::tests::released_tokenizer();
  const auto begin = Clock::now();
  const auto vocabulary = checked(ConstraintVocabulary::create(tokenizer, {}, 1, vocab_size));
  std::printf("%d tokens: vocabulary made in %.0f ms\n", vocab_size, ms_since(begin));
  OutputConstraintOptions tools;
  tools.tools_json = kTools;
  tools.rules.tool_choice = cairn::ToolChoice::kRequired;
  std::vector<std::pair<const char*, std::shared_ptr<OutputConstraint>>> constraints = {
      {"records", checked(OutputConstraint::of_json(vocabulary, kRecords))},
      {"any JSON", checked(OutputConstraint::of_json(vocabulary, "true"))}};
  if (vocab_size == tokenizer.size()) {  // the markup's token is one of the last
    constraints.emplace_back("calls", checked(OutputConstraint::create(vocabulary, tools)));
  }
  std::vector<double> all;
  for (const auto& [name, constraint] : constraints) {
    std::mt19937_64 random(1);
    std::vector<double> first, steady;
    std::vector<Document> documents;
    std::vector<float> logits(static_cast<std::size_t>(vocab_size));
    for (int i = 0; i < n_documents; ++i) {
      documents.push_back(draw(constraint, 1, random, first));
    }
    for (int round = 0; round < n_rounds; ++round) {
      for (const Document& document : documents) replay(constraint, document, logits, steady);
    }
    std::printf(
        "  %-9s %6zu tokens: first time mean %7.1f us, p99 %8.1f; steady mean %5.1f us, "
        "p50 %5.1f, p99 %6.1f\n",
        name, first.size(), mean(first), percentile(first, 0.99), mean(steady), median(steady),
        percentile(steady, 0.99));
    all.insert(all.end(), steady.begin(), steady.end());
  }
  return mean(all);
}

double decode_step_us(const std::string& folder) {
  cairn::RuntimeOptions options;
  options.compute_threads = 1;
  const cairn::Runtime runtime = checked(cairn::Runtime::create(options));
  const cairn::Model model = checked(cairn::Model::open(runtime, folder));
  std::promise<double> done;
  model.state()->runtime()->post([&] {
    cairn::engine::Sequence sequence(model.state());
    check(sequence.prefill(model.tokenize("A prompt of a few words.")));
    std::vector<double> us;
    for (int i = 0; i < 100; ++i) {
      us.push_back(timed_ms([&] { check(sequence.decode(100)); }) * 1000);
    }
    done.set_value(median(us));
  });
  return done.get_future().get();
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  const int n_documents = flags.number("--documents", 20);
  const int n_rounds = flags.number("--rounds", 5);
  std::string folder = flags.text("--model");
  if (folder.empty()) folder = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
  print_load();
  const double released = measure(129'280, n_documents, n_rounds);
  const double small = measure(4096, n_documents, n_rounds);
  const double step = decode_step_us(folder);
  std::printf("129280 tokens: %.1f us a token in the steady state; at most 50: %s\n", released,
              verdict(released <= 50));
  std::printf(
      "4096 tokens: %.1f us a token, %.2f %% of a decode step of %.0f us; at most 5 %%: %s\n",
      small, 100 * small / step, step, verdict(small <= 0.05 * step));
  return 0;
}
