// Layer plan: which layer owns the main KV and index keys that a layer reads, and whose top-k list
// it uses. A source is the largest listed id that is not after the layer, so every list has to be
// sorted and every layer of a group has to have the ratio of its source.

#include "engine/layer_plan.h"

#include <algorithm>
#include <string>
#include <vector>

namespace cairn::engine {
namespace {

bool contains(const std::vector<int>& sorted, int layer) {
  return std::binary_search(sorted.begin(), sorted.end(), layer);
}

// Largest id of `sources` that is not after `layer`, or -1.
int source_of(const std::vector<int>& sources, int layer) {
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *(after - 1);
}

Status contradiction(std::string_view key, const std::string& what) {
  return corrupt("config.json: text_config." + std::string(key) + ": " + what);
}

Status check_ratios(const ModelConfig& config) {
  for (int layer = 0; layer < config.n_layers; ++layer) {
    const int ratio = config.compress_ratios[layer];
    if (ratio == 0) continue;
    if (ratio < 0 || kBlockTokens % ratio != 0) {
      return {StatusCode::kUnsupported,
              "config.json: text_config.compress_ratios[" + std::to_string(layer) + "] is " +
                  std::to_string(ratio) + "; supported are 0 and the powers of two up to " +
                  std::to_string(kBlockTokens)};
    }
  }
  return {};
}

// Sorted, unique layer ids; with `needs_ratio` each has to be a layer with compressed entries.
Status check_layer_list(const ModelConfig& config, std::string_view key,
                        const std::vector<int>& layers, bool needs_ratio) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int layer = layers[i];
    if (layer < 0 || layer >= config.n_layers) {
      return contradiction(key, "there is no layer " + std::to_string(layer) + " of " +
                                    std::to_string(config.n_layers));
    }
    if (i > 0 && layer <= layers[i - 1]) {
      return contradiction(key, "layer " + std::to_string(layer) + " after layer " +
                                    std::to_string(layers[i - 1]) +
                                    ", expected increasing ids without repeats");
    }
    if (needs_ratio && config.compress_ratios[layer] == 0) {
      return contradiction(
          key, "layer " + std::to_string(layer) + " has compress ratio 0 and cannot be a source");
    }
  }
  return {};
}

Status check_sources(const ModelConfig& config) {
  CAIRN_RETURN_IF_ERROR(
      check_layer_list(config, "kv_source_layer_ids", config.kv_source_layers, true));
  CAIRN_RETURN_IF_ERROR(
      check_layer_list(config, "index_source_layer_ids", config.index_source_layers, true));
  for (const int layer : config.kv_source_layers) {
    if (!contains(config.index_source_layers, layer)) {
      return contradiction("index_source_layer_ids", "KV source layer " + std::to_string(layer) +
                                                         " is not among the index sources");
    }
  }
  if (config.candidate_source >= 0 &&
      !contains(config.index_source_layers, config.candidate_source)) {
    return contradiction(
        "candidate_source_layer_id",
        "layer " + std::to_string(config.candidate_source) + " is not among the index sources");
  }
  return check_layer_list(config, "engram_layer_ids", config.engram_layers, false);
}

LayerMode mode_of(const ModelConfig& config, int layer) {
  if (config.compress_ratios[layer] == 0) return LayerMode::kWindow;
  if (contains(config.kv_source_layers, layer)) return LayerMode::kFull;
  if (contains(config.index_source_layers, layer)) return LayerMode::kReindex;
  return LayerMode::kReuse;
}

Result<LayerPlan> plan_layer(const ModelConfig& config, int layer) {
  LayerPlan plan;
  plan.ratio = config.compress_ratios[layer];
  plan.mode = mode_of(config, layer);
  const auto engram = std::find(config.engram_layers.begin(), config.engram_layers.end(), layer);
  if (engram != config.engram_layers.end()) {
    plan.engram_slot = static_cast<int>(engram - config.engram_layers.begin());
  }
  if (plan.ratio == 0) return plan;

  plan.kv_source = source_of(config.kv_source_layers, layer);
  if (plan.kv_source < 0) {
    return contradiction("kv_source_layer_ids", "layer " + std::to_string(layer) + " has ratio " +
                                                    std::to_string(plan.ratio) +
                                                    " but no source layer at or before it");
  }
  if (config.compress_ratios[plan.kv_source] != plan.ratio) {
    return contradiction("compress_ratios",
                         "layer " + std::to_string(layer) + " has ratio " +
                             std::to_string(plan.ratio) + " but reads source layer " +
                             std::to_string(plan.kv_source) + " of ratio " +
                             std::to_string(config.compress_ratios[plan.kv_source]));
  }
  plan.index_source = source_of(config.index_source_layers, layer);
  return plan;
}

// The pool holds entries of one main KV: only later index sources that read the same one use it.
void mark_candidates(ModelConfig& config) {
  if (config.candidate_source < 0) return;
  LayerPlan& writer = config.plan[config.candidate_source];
  writer.writes_candidates = true;
  for (const int layer : config.index_source_layers) {
    LayerPlan& plan = config.plan[layer];
    plan.uses_candidates = layer > config.candidate_source && plan.kv_source == writer.kv_source;
  }
}

}  // namespace

Status derive_layer_plan(ModelConfig& config) {
  CAIRN_RETURN_IF_ERROR(check_ratios(config));
  CAIRN_RETURN_IF_ERROR(check_sources(config));
  config.plan.clear();
  for (int layer = 0; layer < config.n_layers; ++layer) {
    CAIRN_ASSIGN_OR_RETURN(LayerPlan plan, plan_layer(config, layer));
    config.plan.push_back(plan);
  }
  mark_candidates(config);
  config.n_encoder_layers =
      config.kv_source_layers.empty() ? config.n_layers : config.kv_source_layers.back();
  return {};
}

std::string_view layer_mode_name(LayerMode mode) {
  switch (mode) {
    case LayerMode::kWindow:
      return "window";
    case LayerMode::kFull:
      return "full";
    case LayerMode::kReindex:
      return "reindex";
    case LayerMode::kReuse:
      return "reuse";
  }
  return "unknown";
}

}  // namespace cairn::engine
