// What each backbone layer reads, runs and publishes (spec/architecture.md section 4).
#ifndef CAIRN_ENGINE_LAYER_PLAN_H_
#define CAIRN_ENGINE_LAYER_PLAN_H_

#include <string_view>

#include "cairn/status.h"
#include "engine/model_config.h"

namespace cairn::engine {

// Fills config.plan and config.n_encoder_layers from the ratios, the source lists, the candidate
// source and the Engram layers. Fails with kCorrupt where they contradict each other and with
// kUnsupported for a ratio that does not divide a KV block; messages name the key. On failure the
// derived fields are unspecified.
Status derive_layer_plan(ModelConfig& config);

// "window", "full", "reindex" or "reuse".
std::string_view layer_mode_name(LayerMode mode);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LAYER_PLAN_H_
