// Sequences of the engine with what no host may ask for, from Python by ctypes: how the decoder
// half runs over a prompt, windows that are lost and computed again by a bounded replay, how many
// tokens each pass of drafts gave, losses of a text. A model at a time, by one thread.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/engine.h"
#include "engine/decode_batch.h"
#include "engine/loaded_model.h"
#include "engine/runtime.h"
#include "engine/sequence.h"

namespace {

using cairn::TokenId;
using cairn::engine::DecodeRow;
using cairn::engine::DecoderPass;
using cairn::engine::DraftProposal;
using cairn::engine::PrefillOptions;
using cairn::engine::Sequence;

struct Model {
  cairn::Runtime runtime;
  std::shared_ptr<cairn::engine::LoadedModel> loaded;
};

std::string last_error;  // of any call

int done(const cairn::Status& status) {
  if (!status.ok()) last_error = status.to_string();
  return status.ok() ? 0 : 1;
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

PrefillOptions options_of(int bounded_prefill) {
  return {.decoder = bounded_prefill != 0 ? DecoderPass::kReplay : DecoderPass::kHalo};
}

}  // namespace

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE const char* probe_error() { return last_error.c_str(); }

// NULL and an error, or a model that is freed at the end of the process. `numerics` as in cairn.h.
PROBE Model* probe_open(const char* folder, int numerics, int n_threads) {
  cairn::RuntimeOptions runtime_options;
  runtime_options.compute_threads = n_threads;
  auto runtime = cairn::Runtime::create(runtime_options);
  if (!runtime.ok()) return done(runtime.status()), nullptr;
  cairn::ModelOptions options;
  options.numerics = static_cast<cairn::Numerics>(numerics);
  auto loaded = cairn::engine::LoadedModel::load(runtime->state(), folder, options);
  if (!loaded.ok()) return done(loaded.status()), nullptr;
  return new Model{std::move(*runtime), std::move(*loaded)};
}

PROBE Sequence* probe_sequence(const Model* model) { return new Sequence(model->loaded); }
PROBE void probe_free(Sequence* sequence) { delete sequence; }

// Adds tokens; the decoder half sees the last window of them only if `bounded` is not 0.
PROBE int probe_append(Sequence* sequence, const TokenId* tokens, std::int64_t n, int bounded) {
  return done(sequence->prefill({tokens, static_cast<std::size_t>(n)}, options_of(bounded)));
}

// As after a restart of which no tail is left: all windows come from a replay of one window.
PROBE int probe_restore_bounded(Sequence* sequence) {
  sequence->forget_windows();
  return done(sequence->prefill({}, {.bounded_restore = true}));
}

// Greedy tokens, all of them computed, until `stop` or `most` of them, into `tokens`; of each pass
// how many it gave into `passes`. Both hold `most`. Returns how many passes, -1 is an error.
PROBE std::int64_t probe_generate(Sequence* sequence, TokenId stop, std::int64_t most, int drafted,
                                  TokenId* tokens, std::int64_t* passes) {
  std::int64_t n = 0, n_passes = 0;
  DraftProposal proposal;
  while (n < most && (n == 0 || tokens[n - 1] != stop)) {
    const std::int64_t before = n;
    DecodeRow row;
    row.sequence = sequence;
    row.token = best(sequence->logits());
    tokens[n++] = row.token;
    if (drafted != 0) {
      if (done(sequence->propose(row.token, proposal)) != 0) return -1;
      row.drafts = proposal.tokens;
    }
    cairn::engine::decode_together({&row, 1});
    if (done(row.status) != 0) return -1;
    for (const TokenId draft : row.drafts) {
      const bool ends = n == most || tokens[n - 1] == stop;
      if (ends || best(sequence->verified_logits(n - before - 1)) != draft) break;
      tokens[n++] = draft;
    }
    if (sequence->n_verified() > 0) sequence->accept(n - before);
    passes[n_passes++] = n - before;
  }
  return n_passes;
}

// Sum of the negative log-likelihoods (nats) of tokens[1..n) in a new sequence of `model`.
PROBE int probe_loss(const Model* model, const TokenId* tokens, std::int64_t n, double* loss) {
  Sequence sequence(model->loaded);
  const std::span<const TokenId> all(tokens, static_cast<std::size_t>(n));
  const cairn::Status status =
      sequence.prefill(all, {.decoder = DecoderPass::kFull, .logits_from = 0});
  if (!status.ok()) return done(status);
  const std::span<const float> rows = sequence.logits_rows();
  const std::size_t vocabulary = rows.size() / all.size();
  *loss = 0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const std::span<const float> row = rows.subspan(i * vocabulary, vocabulary);
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    *loss += top + std::log(sum) - row[static_cast<std::size_t>(all[i + 1])];
  }
  return 0;
}
