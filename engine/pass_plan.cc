// The plan is computed from the last layer down: what a layer must put out decides which window
// rows it needs, and those decide what the layer below must put out.
#include "engine/pass_plan.h"

#include <algorithm>

namespace cairn::engine {
namespace {

bool is_replay(DecoderPass pass) {
  return pass == DecoderPass::kReplay || pass == DecoderPass::kReplayFirstLayerFull;
}

// Start of the decoder half's rows where its windows are live up to `live_from` (or are rebuilt
// from rows that start there).
void plan_decoder(const ModelConfig& config, const PlanRequest& request, std::int64_t live_from,
                  PassPlan& plan) {
  const std::int64_t end = plan.end;
  for (int layer = config.n_encoder_layers; layer < config.n_layers; ++layer) {
    LayerRows& rows = plan.layers[static_cast<std::size_t>(layer)];
    const bool last = layer + 1 == config.n_layers;
    switch (request.decoder) {
      case DecoderPass::kFull:
        rows.window_from = rows.output_from = live_from;
        break;
      case DecoderPass::kHalo:
        rows.window_from = std::max(live_from, end - halo_rows(config, layer));
        rows.output_from = last ? std::max(live_from, end - 1)
                                : std::max(live_from, end - halo_rows(config, layer + 1));
        break;
      case DecoderPass::kReplay:
      case DecoderPass::kReplayFirstLayerFull: {
        const std::int64_t start = std::max(plan.begin, end - config.window);
        const bool whole_window = layer == config.n_encoder_layers &&
                                  request.decoder == DecoderPass::kReplayFirstLayerFull;
        rows.window_from = whole_window ? plan.begin : start;
        rows.output_from = start;
        rows.reset_window = !whole_window;
        plan.exact = plan.exact && start == 0;
        break;
      }
    }
  }
}

// Windows of the encoder half are missing: run it from far enough back that its outputs are right
// from `exact_from` on, or (bounded) from one window before the stored prefix ends.
void plan_encoder_replay(const ModelConfig& config, const PlanRequest& request,
                         std::int64_t exact_from, PassPlan& plan) {
  const std::int64_t reach = config.window - 1;
  if (request.bounded_restore) {
    plan.begin = std::max<std::int64_t>(0, request.live.global_end - config.window);
    plan.exact = plan.begin == 0;
    for (int layer = 0; layer < config.n_encoder_layers; ++layer) {
      LayerRows& rows = plan.layers[static_cast<std::size_t>(layer)];
      rows.window_from = rows.output_from = plan.begin;
      rows.reset_window = true;
    }
    return;
  }
  std::int64_t output_from = exact_from;
  for (int layer = config.n_encoder_layers - 1; layer >= 0; --layer) {
    LayerRows& rows = plan.layers[static_cast<std::size_t>(layer)];
    rows.output_from = output_from;
    rows.window_from = std::max<std::int64_t>(0, output_from - reach);
    rows.reset_window = true;
    output_from = rows.window_from;
  }
  plan.begin = output_from;
}

}  // namespace

std::int64_t halo_rows(const ModelConfig& config, int layer) {
  return config.window + std::int64_t{config.n_layers - 1 - layer} * (config.window - 1);
}

bool is_plain_decode(const PassPlan& plan) {
  return plan.logits_from <= plan.begin &&
         std::ranges::all_of(plan.layers, [&](const LayerRows& rows) {
           return rows.global_from <= plan.begin && rows.window_from <= plan.begin &&
                  rows.output_from <= plan.begin && !rows.reset_window;
         });
}

PassPlan make_plan(const ModelConfig& config, const PlanRequest& request) {
  PassPlan plan;
  make_plan(config, request, plan);
  return plan;
}

void make_plan(const ModelConfig& config, const PlanRequest& request, PassPlan& plan) {
  plan.begin = 0;
  plan.end = request.end;
  plan.exact = true;
  plan.layers.assign(static_cast<std::size_t>(config.n_layers), {});
  const LiveState& live = request.live;
  const bool has_decoder = config.n_encoder_layers < config.n_layers;
  // The first position whose encoder output the decoder half needs when it starts afresh.
  const std::int64_t decoder_needs =
      has_decoder && !is_replay(request.decoder)
          ? std::max<std::int64_t>(0, plan.end - halo_rows(config, config.n_encoder_layers))
          : std::max<std::int64_t>(0, plan.end - config.window);
  const bool decoder_live = live.decoder_windows || !has_decoder;

  if (live.encoder_windows && (decoder_live || decoder_needs >= live.global_end)) {
    plan.begin = live.global_end;
    for (int layer = 0; layer < config.n_encoder_layers; ++layer) {
      LayerRows& rows = plan.layers[static_cast<std::size_t>(layer)];
      rows.window_from = rows.output_from = plan.begin;
    }
  } else {
    plan_encoder_replay(config, request, std::min(live.global_end, decoder_needs), plan);
  }

  // Global KV that exists is never rewritten; the cache holds the open group up to global_end.
  for (LayerRows& rows : plan.layers) rows.global_from = live.global_end;

  PlanRequest decoder_request = request;
  if (!plan.exact) {
    decoder_request.decoder = DecoderPass::kReplay;
  } else if (request.decoder == DecoderPass::kFull && !live.decoder_windows) {
    decoder_request.decoder = DecoderPass::kHalo;  // a full pass would start with broken windows
  }
  const bool continues = live.decoder_windows && plan.begin == live.global_end;
  if (is_replay(decoder_request.decoder) && continues &&
      plan.end - config.window <= live.global_end) {
    decoder_request.decoder = DecoderPass::kFull;  // the replay's rows are the new ones, or live
  }
  const std::int64_t decoder_from =
      continues ? live.global_end
                : (decoder_request.decoder == DecoderPass::kHalo ? decoder_needs : plan.begin);
  if (has_decoder) plan_decoder(config, decoder_request, decoder_from, plan);

  plan.logits_from = request.logits_from < 0
                         ? plan.end - 1
                         : std::max(request.logits_from, plan.layers.back().output_from);
}

}  // namespace cairn::engine
