#include "engine/forward.h"

#include <algorithm>

#include "engine/layer.h"
#include "engine/linear.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

void head(const LoadedModel& model, const LayerContext& ctx, std::int64_t row, std::int64_t n,
          Activations& a, std::vector<float>& logits) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult;
  float* normed = a.normed.data() + row * dim;
  collapse_and_norm(ctx, a.h.data() + row * hc * dim, a.pre.data() + row * hc, model.weights().norm,
                    n, a.collapsed.data() + row * dim, normed);
  const std::size_t old = logits.size();
  logits.resize(old + static_cast<std::size_t>(n * ctx.config.vocab_size));
  linear(ctx, normed, n, model.weights().head, logits.data() + old, /*rounded=*/false);
}

}  // namespace

void embed(const LoadedModel& model, const ForwardInput& input, Activations& a) {
  const std::int64_t dim = model.config().dim, hc = model.config().hc_mult;
  for (std::int64_t t = 0; t < input.n; ++t) {
    const auto token = std::int64_t{input.tokens[static_cast<std::size_t>(input.first + t)]};
    const kernels::Bf16* row = model.weights().embed.data + token * dim;
    for (std::int64_t s = 0; s < hc; ++s) {
      float* h = a.h.data() + (t * hc + s) * dim;
      for (std::int64_t c = 0; c < dim; ++c) h[c] = kernels::to_f32(row[c]);
      a.pre[static_cast<std::size_t>(t * hc + s)] = s == 0 ? 1.0f : 0.0f;
    }
  }
}

bool forward(const LoadedModel& model, kernels::Context& run, const PassPlan& plan,
             const ForwardInput& input, Activations& a, KvCache& cache, std::vector<float>& logits,
             const StopRequested& stop_requested) {
  const Chunk chunk{input.first, input.n, model.engram(), &input.classes};
  embed(model, input, a);
  for (int index = 0; index < model.config().n_layers; ++index) {
    if (stop_requested && stop_requested()) return false;
    layer(model.layer_context(index, run), model.weights().layers[static_cast<std::size_t>(index)],
          index, plan.layers[static_cast<std::size_t>(index)], chunk, a, cache);
  }
  const std::int64_t from = std::max(input.first, plan.logits_from);
  const std::int64_t end = input.first + input.n;
  if (from < end) {
    head(model, model.layer_context(model.config().n_layers - 1, run), from - input.first,
         end - from, a, logits);
  }
  return true;
}

}  // namespace cairn::engine
