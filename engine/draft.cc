#include "engine/draft.h"

#include <algorithm>

#include "engine/attention.h"
#include "engine/forward.h"
#include "engine/layer.h"
#include "engine/linear.h"
#include "engine/row_steps.h"
#include "engine/sizes.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

std::int64_t n_targets(const ModelConfig& config) {
  return static_cast<std::int64_t>(config.draft_target_layers.size());
}

StepVector<float> row_of(const LayerContext& ctx, const Bf16View& table, std::int64_t row) {
  StepVector<float> values = ctx.scratch<float>(table.cols);
  const kernels::Bf16* from = table.data + row * table.cols;
  std::transform(from, from + table.cols, values.begin(), kernels::to_f32);
  return values;
}

// Logits, tokens and confidence of one place of the block after another: each depends on the token
// before. z [block, dim] are the collapsed streams.
void choose_tokens(const LayerContext& ctx, const DraftWeights& w, const float* z, TokenId previous,
                   DraftProposal& out) {
  const std::int64_t vocab = ctx.config.vocab_size, dim = ctx.config.dim;
  StepVector<float> markov = ctx.scratch<float>(vocab);
  StepVector<float> seen = ctx.scratch<float>(dim + w.markov_embed.cols);
  out.tokens.clear();
  out.confidence.clear();
  for (std::int64_t i = 0; i < ctx.config.draft_block; ++i) {
    const StepVector<float> e = row_of(ctx, w.markov_embed, previous);
    linear(ctx, e.data(), 1, w.markov_head, markov.data(), /*rounded=*/false);
    float* logits = out.logits.data() + i * vocab;
    for (std::int64_t v = 0; v < vocab; ++v) logits[v] += markov[usize(v)];
    std::copy(e.begin(), e.end(), std::copy_n(z + i * dim, dim, seen.begin()));
    linear(ctx, seen.data(), 1, w.confidence, &out.confidence.emplace_back(), /*rounded=*/false);
    previous = static_cast<TokenId>(std::max_element(logits, logits + vocab) - logits);
    out.tokens.push_back(previous);
  }
}

}  // namespace

int draft_target(const ModelConfig& config, int layer) {
  const auto found = std::ranges::find(config.draft_target_layers, layer);
  return found == config.draft_target_layers.end()
             ? -1
             : static_cast<int>(found - config.draft_target_layers.begin());
}

void keep_tap(const LayerContext& ctx, int target, std::int64_t from, const Chunk& chunk,
              Activations& a) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult, n = n_targets(ctx.config);
  for (std::int64_t row = from; row < chunk.n; ++row) {
    const float* h = a.h.data() + row * hc * dim;
    float* tap = a.taps.data() + (row * n + target) * dim;
    for (std::int64_t c = 0; c < dim; ++c) {
      float sum = 0;
      for (std::int64_t s = 0; s < hc; ++s) sum += h[s * dim + c];
      tap[c] = sum / static_cast<float>(hc);
      if (ctx.arithmetic.round_bf16) tap[c] = kernels::round_to_bf16(tap[c]);
    }
  }
}

void append_draft_keys(const LoadedModel& model, kernels::Context& run, std::int64_t from,
                       const Chunk& chunk, Activations& a) {
  const ModelConfig& config = model.config();
  // Of several sequences every row counts; of one, those that the ring holds.
  if (chunk.parts.size() == 1) from = std::max<std::int64_t>(from, chunk.n - config.window);
  if (from >= chunk.n) return;
  const StepMemory::Scope scope(a.memory);
  const LayerContext ctx = model.draft_context(run);
  const DraftWeights& w = model.weights().draft;
  const std::int64_t n = chunk.n - from, width = n_targets(config) * config.dim;
  StepVector<float> u_values = ctx.scratch<float>(n * config.dim);
  linear(ctx, LinearInput(ctx, a.taps.data() + from * width, n, width), w.main_proj,
         u_values.data());
  norm_rows(ctx, w.main_norm, u_values);
  const LinearInput u(ctx, u_values.data(), n, config.dim);
  const StepVector<std::int64_t> positions = positions_of(ctx, chunk, from);
  const std::int64_t row_bytes = chunk.parts[0].cache->window_row_bytes();
  StepVector<std::byte> rows = ctx.scratch<std::byte>(n * row_bytes);
  for (int stage = 0; stage < config.n_draft_stages; ++stage) {
    const StepVector<float> kv = window_kv(ctx, w.stages[usize(stage)].attention, u, positions);
    for (std::int64_t i = 0; i < n; ++i) {
      ctx.k.encode_row(ctx.arithmetic.window_format, kv.data() + i * config.head_dim,
                       config.head_dim, rows.data() + i * row_bytes);
    }
    for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n_rows) {
      part.cache->write_window(config.n_layers + stage, part.first + row - part.row, n_rows,
                               rows.data() + (row - from) * row_bytes);
    });
  }
}

void propose_drafts(const LoadedModel& model, kernels::Context& run, const KvCache& cache,
                    std::int64_t position, TokenId anchor, Activations& a, DraftProposal& out) {
  const StepMemory::Scope scope(a.memory);
  const LayerContext ctx = model.draft_context(run);
  const DraftWeights& w = model.weights().draft;
  const std::int64_t n = ctx.config.draft_block;
  StepVector<TokenId> tokens(usize(n), ctx.config.draft_noise_id, &ctx.memory);
  tokens[0] = anchor;
  embed(model, tokens, 0, a);
  for (std::size_t stage = 0; stage < w.stages.size(); ++stage) {
    const WindowRing& ring = cache.window(ctx.config.n_layers + static_cast<int>(stage));
    draft_layer(ctx, w.stages[stage], {.first = position, .n = n, .ring = ring}, a);
  }
  collapse_and_norm(ctx, a.h.data(), a.pre.data(), w.norm, n, a.collapsed.data(), a.normed.data());
  out.logits.resize(usize(n * ctx.config.vocab_size));
  linear(ctx, a.normed.data(), n, model.weights().head, out.logits.data(), /*rounded=*/false);
  choose_tokens(ctx, w, a.collapsed.data(), anchor, out);
}

}  // namespace cairn::engine
