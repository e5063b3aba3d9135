#include "engine/forward.h"

#include <algorithm>

#include "engine/draft.h"
#include "engine/engram.h"
#include "engine/layer.h"
#include "engine/linear.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

// Of `n` rows: logits [n, vocab].
void head(const LoadedModel& model, const LayerContext& ctx, std::int64_t row, std::int64_t n,
          Activations& a, float* logits) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult;
  float* normed = a.normed.data() + row * dim;
  collapse_and_norm(ctx, a.h.data() + row * hc * dim, a.pre.data() + row * hc, model.weights().norm,
                    n, a.collapsed.data() + row * dim, normed);
  linear(ctx, normed, n, model.weights().head, logits, /*rounded=*/false);
}

void heads(const LoadedModel& model, const LayerContext& ctx, std::span<const ForwardInput> inputs,
           Activations& a) {
  if (inputs.size() == 1) {
    const ForwardInput& input = inputs[0];
    const std::int64_t from = std::max(input.first, input.plan.logits_from);
    const std::int64_t end = input.first + input.n;
    if (from >= end) return;
    const std::size_t old = input.logits.size();
    input.logits.resize(old + static_cast<std::size_t>((end - from) * ctx.config.vocab_size));
    head(model, ctx, from - input.first, end - from, a, input.logits.data() + old);
    return;
  }
  std::int64_t n_rows = 0;
  for (const ForwardInput& input : inputs) n_rows += input.n;
  StepVector<float> logits = ctx.scratch<float>(n_rows * ctx.config.vocab_size);
  head(model, ctx, 0, n_rows, a, logits.data());
  auto row = logits.begin();
  for (const ForwardInput& input : inputs) {
    const auto end = row + static_cast<std::ptrdiff_t>(input.n * ctx.config.vocab_size);
    input.logits.insert(input.logits.end(), row, end);
    row = end;
  }
}

// As soon as tokens are known it is known which rows of the tables they need.
void prefetch_engram(const LoadedModel& model, kernels::Context& run, const Chunk& chunk) {
  for (const int index : model.config().engram_layers) {
    prefetch_engram_rows(model.layer_context(index, run),
                         model.weights().layers[static_cast<std::size_t>(index)].engram, chunk);
  }
}

}  // namespace

void embed(const LoadedModel& model, std::span<const TokenId> tokens, std::int64_t row,
           Activations& a) {
  const std::int64_t dim = model.config().dim, hc = model.config().hc_mult;
  for (const TokenId token : tokens) {
    const kernels::Bf16* embedding = model.weights().embed.data + std::int64_t{token} * dim;
    for (std::int64_t s = 0; s < hc; ++s) {
      float* h = a.h.data() + (row * hc + s) * dim;
      for (std::int64_t c = 0; c < dim; ++c) h[c] = kernels::to_f32(embedding[c]);
      a.pre[static_cast<std::size_t>(row * hc + s)] = s == 0 ? 1.0f : 0.0f;
    }
    ++row;
  }
}

bool forward(const LoadedModel& model, kernels::Context& run, std::span<const ForwardInput> inputs,
             Activations& a, const StopRequested& stop_requested) {
  const StepMemory::Scope scope(a.memory);
  StepVector<ChunkPart> parts(&a.memory);
  parts.reserve(inputs.size());
  std::int64_t n = 0;
  for (const ForwardInput& input : inputs) {
    embed(model,
          input.tokens.subspan(static_cast<std::size_t>(input.first),
                               static_cast<std::size_t>(input.n)),
          n, a);
    parts.push_back({n, input.first, input.n, &input.cache, &input.classes});
    n += input.n;
  }
  const Chunk chunk{n, parts, model.engram()};
  prefetch_engram(model, run, chunk);
  std::int64_t drafts_from = 0;  // first row that all target layers see
  for (int index = 0; index < model.config().n_layers; ++index) {
    if (stop_requested && stop_requested()) return false;
    const auto at = static_cast<std::size_t>(index);
    // The rows of plain decodes take part in everything.
    const ActiveRows rows = inputs.size() > 1
                                ? ActiveRows{}
                                : active_rows(inputs[0].plan.layers[at], inputs[0].first, n);
    const LayerContext ctx = model.layer_context(index, run);
    if (const int target = draft_target(model.config(), index); target >= 0) {
      const std::int64_t from = first_read_row(ctx.plan, rows);
      keep_tap(ctx, target, from, chunk, a);
      drafts_from = std::max(drafts_from, from);
    }
    layer(ctx, model.weights().layers[at], index, rows, chunk, a);
  }
  if (model.has_drafts()) append_draft_keys(model, run, drafts_from, chunk, a);
  heads(model, model.layer_context(model.config().n_layers - 1, run), inputs, a);
  return true;
}

}  // namespace cairn::engine
