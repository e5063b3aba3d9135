// The shape of the one model family, read from config.json and validated (spec/checkpoint.md
// section 3, spec/architecture.md sections 1 and 4).
#ifndef CAIRN_ENGINE_MODEL_CONFIG_H_
#define CAIRN_ENGINE_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

inline constexpr int kBlockTokens = 128;  // a KV block; every compression ratio divides it

enum class LayerMode { kWindow, kFull, kReindex, kReuse };

struct LayerPlan {
  int ratio = 0;          // 0 = window only
  LayerMode mode = LayerMode::kWindow;
  int kv_source = -1;     // layer that owns the main KV and index keys read here
  int index_source = -1;  // layer whose top-k list is used here
  bool writes_candidates = false;
  bool uses_candidates = false;
  int engram_slot = -1;   // index into engram_layer_ids, -1 = none
};

struct ModelConfig {
  std::string architecture;
  int vocab_size = 0, dim = 0, n_layers = 0;
  int n_heads = 0, head_dim = 0, rope_dim = 0;
  int q_rank = 0, o_groups = 0, o_rank = 0;
  int n_experts = 0, n_shared_experts = 0, n_active_experts = 0, expert_dim = 0;
  float route_scale = 1.0f, gate_temperature = 1.0f, swiglu_limit = 0.0f;
  bool normalise_topk = true;
  float norm_eps = 0.0f;
  int max_positions = 0;
  int bos_id = 0, eos_id = 1, pad_id = 2, image_id = -1;

  double rope_theta = 10000, compress_rope_theta = 160000;
  double yarn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  int yarn_original_positions = 0;  // 0 = no YaRN

  int window = 0;
  std::vector<int> compress_ratios;  // n_layers entries, then n_draft_stages (or none)
  std::vector<int> kv_source_layers, index_source_layers;
  int index_n_heads = 0, index_head_dim = 0, index_top_k = 0;
  int candidate_source = -1;  // -1 = no candidate pool
  int candidate_top_blocks = 0, candidate_block_size = 0;

  int hc_mult = 0, hc_sinkhorn_iters = 0;
  float hc_eps = 0;

  std::vector<int> engram_layers;
  std::vector<std::int64_t> engram_rows;  // per table
  int engram_max_ngram = 0, engram_n_heads = 0, engram_head_dim = 0;
  std::int64_t engram_prime_start = 0, engram_n_classes = 0;
  int engram_pad_id = 2;

  int n_draft_stages = 0, draft_block = 0, draft_noise_id = -1, draft_markov_rank = 0;
  int draft_n_experts = 0, draft_n_active_experts = 0;
  std::vector<int> draft_target_layers;

  bool has_vision = false;
  int vision_n_layers = 0, vision_dim = 0, vision_expert_dim = 0, vision_patch = 0,
      vision_downsample = 0;

  // Derived by validate().
  std::vector<LayerPlan> plan;  // [n_layers]
  int n_encoder_layers = 0;     // the last KV source layer starts the decoder half

  int engram_columns() const { return (engram_max_ngram - 1) * engram_n_heads; }
  bool in_decoder(int layer) const { return layer >= n_encoder_layers; }
};

// Parses and validates the text of a config.json in the released shape. Fails with kUnsupported for
// another model family or an unknown layout (the message names key and value), kCorrupt for
// malformed JSON, missing keys or shapes that contradict each other.
// Unknown keys are listed in `unknown_keys` (may be null) and otherwise ignored.
Result<ModelConfig> parse_model_config(std::string_view json, std::vector<std::string>* unknown_keys);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_MODEL_CONFIG_H_
