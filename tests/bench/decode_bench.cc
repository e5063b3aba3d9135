// What keeping a session costs while it decodes: tokens a second of a turn (log, blocks, tails,
// events) against the same tokens decoded by the engine alone. Rounds alternate; medians.
//
//   decode_bench [--model DIR] [--prompt WORDS] [--tokens N] [--rounds N] [--threads N]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "cairn/session.h"
#include "engine/loaded_model.h"
#include "engine/runtime.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "tests/bench/measure.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn::bench;
using cairn::TokenId;

struct Options {
  std::string model = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
  int prompt_words = 300, tokens = 400, rounds = 5, threads = 1;
};

std::string prompt_text(int n_words) {
  std::string text;
  for (int i = 0; i < n_words; ++i) text += "word" + std::to_string(i * 7919 % 1000) + " ";
  return text;
}

struct TurnMeasure {
  double ms_per_token = 0;
  std::int64_t n_tokens = 0, bytes_written = 0;
};

TurnMeasure run_turn(const cairn::Model& model, const cairn::Store& store, const std::string& name,
                     const Options& options) {
  cairn::Session session = checked(cairn::Session::create(model, store, name));
  check(session.append(cairn::Message::user(name + " " + prompt_text(options.prompt_words))));
  cairn::TurnOptions turn_options;
  turn_options.sampling.temperature = 0;
  turn_options.max_tokens = options.tokens;
  cairn::Turn turn = checked(session.start_turn(turn_options));
  TurnMeasure measure;
  for (;;) {
    const cairn::Event event = checked(turn.next());
    if (event.kind != cairn::EventKind::kTurnEnd) continue;
    check(event.status);
    measure.n_tokens = event.usage.output_tokens;
    measure.bytes_written = event.usage.bytes_written;
    measure.ms_per_token = event.usage.decode_ms / static_cast<double>(measure.n_tokens);
    return measure;
  }
}

// Decodes as many tokens after a prompt of the same length, on the strand as a turn does.
double run_engine(const cairn::Model& model, std::int64_t n_prompt, std::int64_t n_tokens) {
  std::promise<double> done;
  model.state()->runtime()->post([&] {
    cairn::engine::Sequence sequence(model.state());
    const std::vector<TokenId> text = model.tokenize(prompt_text(static_cast<int>(n_prompt)));
    const std::vector<TokenId> prompt(
        text.begin(), text.begin() + std::min<std::ptrdiff_t>(n_prompt, std::ssize(text)));
    check(sequence.prefill(prompt));
    cairn::SamplingParams greedy;
    greedy.temperature = 0;
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < n_tokens; ++i) {
      const TokenId token =
          cairn::engine::sample(sequence.logits(), sequence.tokens(), model.state()->masked_ids(),
                                greedy, sequence.position());
      check(sequence.decode(token));
    }
    done.set_value(ms_since(start) / static_cast<double>(n_tokens));
  });
  return done.get_future().get();
}

Options parse(int argc, char** argv) {
  const Flags flags(argc, argv);
  Options options;
  if (!flags.text("--model").empty()) options.model = flags.text("--model");
  options.prompt_words = flags.number("--prompt", options.prompt_words);
  options.tokens = flags.number("--tokens", options.tokens);
  options.rounds = flags.number("--rounds", options.rounds);
  options.threads = flags.number("--threads", options.threads);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  cairn::RuntimeOptions runtime_options;
  runtime_options.compute_threads = options.threads;
  const cairn::Runtime runtime = checked(cairn::Runtime::create(runtime_options));
  const cairn::Model model = checked(cairn::Model::open(runtime, options.model));
  const cairn::test::TemporaryFolder folder;
  const cairn::Store store =
      checked(cairn::Store::open(runtime, (folder.path() / "store").string()));
  const auto n_prompt =
      static_cast<std::int64_t>(model.tokenize(prompt_text(options.prompt_words)).size());

  std::vector<double> with, without, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    const TurnMeasure turn = run_turn(model, store, "s" + std::to_string(round), options);
    with.push_back(turn.ms_per_token);
    without.push_back(run_engine(model, n_prompt, turn.n_tokens));
    ratios.push_back(without.back() / with.back());
    std::printf(
        "round %d: %lld tokens, %.3f ms a token in a turn, %.3f by the engine alone, "
        "%lld bytes written\n",
        round, static_cast<long long>(turn.n_tokens), with.back(), without.back(),
        static_cast<long long>(turn.bytes_written));
  }
  std::printf("median: %.3f ms with, %.3f without persistence; speed ratio %.4f\n", median(with),
              median(without), median(ratios));
  return 0;
}
