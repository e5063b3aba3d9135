// Tests engine/model_config.cc and engine/layer_plan.cc: the released configuration, other layer
// plans, and every way in which a config.json can be refused.

#include "engine/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>

#include "tests/support/config_text.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;
using test::ConfigText;

Result<ModelConfig> parse(const ConfigText& config) {
  return parse_model_config(config.text(), nullptr);
}

void expect_error(const ConfigText& config, StatusCode code, std::string_view part) {
  const Result<ModelConfig> result = parse(config);
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.status().code(), code) << result.status().to_string();
  EXPECT_NE(result.status().message().find(part), std::string_view::npos)
      << result.status().to_string() << "\nexpected: " << part;
}

std::string tiny_a_config() {
  return std::string(CAIRN_SOURCE_DIR) + "/examples/models/tiny-a/config.json";
}

// The layout of JustVugg/colibri's generator of tiny models (spec/checkpoint.md section 5).
ConfigText colibri() {
  ConfigText config(tiny_a_config());
  config.set("/text_config/vocab_size", 256).set("/image_token_id", 255);
  config.set("/text_config/num_hidden_layers", 6);
  config.set("/text_config/num_experts_per_tok", 2);
  config.set("/text_config/sliding_window", 8);
  config.set("/text_config/compress_ratios", {0, 2, 2, 1, 1, 0, 0, 0});
  config.set("/text_config/kv_source_layer_ids", {1, 3});
  config.set("/text_config/index_source_layer_ids", {1, 3, 4});
  config.set("/text_config/candidate_source_layer_id", 3);
  config.set("/text_config/candidate_topk_blocks", 2);
  config.set("/text_config/candidate_block_size", 2);
  config.set("/text_config/index_head_dim", 32).set("/text_config/index_topk", 4);
  config.set("/text_config/rope_scaling/original_max_position_embeddings", 32);
  config.set("/text_config/max_position_embeddings", 256);
  config.set("/text_config/engram_head_dim", 32);
  config.set("/text_config/engram_compressed_vocab_size", 64);
  config.set("/text_config/num_nextn_predict_layers", 2);
  config.set("/text_config/dspark_block_size", 3).set("/text_config/dspark_noise_token_id", 7);
  config.set("/text_config/dspark_target_layer_ids", {3, 4, 5});
  return config;
}

// The defaults of the release's own ModelArgs: no candidate filter, no Engram, no vision.
ConfigText model_args() {
  ConfigText config = ConfigText::released();
  config.set("/text_config/hidden_size", 1024).set("/text_config/num_hidden_layers", 5);
  config.set("/text_config/num_attention_heads", 16).set("/text_config/head_dim", 128);
  config.set("/text_config/qk_rope_head_dim", 32).set("/text_config/q_lora_rank", 256);
  config.set("/text_config/o_lora_rank", 256).set("/text_config/moe_intermediate_size", 1024);
  config.set("/text_config/n_routed_experts", 8).set("/text_config/num_experts_per_tok", 2);
  config.set("/text_config/compress_ratios", {0, 2, 2, 1, 1, 0});
  config.set("/text_config/kv_source_layer_ids", {1, 3});
  config.set("/text_config/index_source_layer_ids", {1, 3});
  config.set("/text_config/index_n_heads", 16).set("/text_config/index_head_dim", 64);
  config.set("/text_config/index_topk", 64);
  config.set("/text_config/num_nextn_predict_layers", 1);
  config.set("/text_config/dspark_block_size", 6);
  config.set("/text_config/dspark_target_layer_ids", {3, 4});
  config.erase("/text_config/candidate_source_layer_id");
  config.erase("/text_config/candidate_topk_blocks").erase("/text_config/candidate_block_size");
  config.erase("/text_config/engram_layer_ids").erase("/text_config/engram_num_embeddings");
  config.erase("/vision_config");
  return config;
}

TEST(ModelConfig, released_values_are_read) {
  std::vector<std::string> unknown;
  const Result<ModelConfig> config = parse_model_config(ConfigText::released().text(), &unknown);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(unknown.empty()) << unknown.front();
  EXPECT_EQ(config->architecture, "DeepseekV41ForCausalLM");
  EXPECT_EQ(config->vocab_size, 129280);
  EXPECT_EQ(config->dim, 5120);
  EXPECT_EQ(config->n_heads, 64);
  EXPECT_EQ(config->head_dim, 512);
  EXPECT_EQ(config->rope_dim, 64);
  EXPECT_EQ(config->q_rank, 1280);
  EXPECT_EQ(config->o_rank, 1024);
  EXPECT_EQ(config->o_groups, 8);
  EXPECT_EQ(config->n_experts, 384);
  EXPECT_EQ(config->n_active_experts, 6);
  EXPECT_EQ(config->n_shared_experts, 1);
  EXPECT_EQ(config->expert_dim, 2304);
  EXPECT_EQ(config->route_scale, 1.5f);
  EXPECT_EQ(config->gate_temperature, 1.0f);
  EXPECT_EQ(config->swiglu_limit, 10.0f);
  EXPECT_TRUE(config->normalise_topk);
  EXPECT_EQ(config->norm_eps, 1e-20f);
  EXPECT_EQ(config->hc_eps, 1e-6f);
  EXPECT_EQ(config->hc_mult, 4);
  EXPECT_EQ(config->hc_sinkhorn_iters, 20);
  EXPECT_EQ(config->max_positions, 1048576);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->compress_rope_theta, 160000);
  EXPECT_EQ(config->yarn_factor, 16);
  EXPECT_EQ(config->yarn_original_positions, 65536);
  EXPECT_EQ(config->bos_id, 0);
  EXPECT_EQ(config->eos_id, 1);
  EXPECT_EQ(config->pad_id, 2);
  EXPECT_EQ(config->image_id, 129264);
  EXPECT_EQ(config->candidate_top_blocks, 2048);
  EXPECT_EQ(config->candidate_block_size, 8);
  EXPECT_EQ(config->engram_rows, (std::vector<std::int64_t>{384006168, 384016682}));
  EXPECT_EQ(config->engram_columns(), 24);
  EXPECT_EQ(config->engram_prime_start, 16000000);
  EXPECT_EQ(config->engram_n_classes, 99092);
  EXPECT_EQ(config->n_draft_stages, 3);
  EXPECT_EQ(config->draft_block, 5);
  EXPECT_EQ(config->draft_noise_id, 128799);
  EXPECT_EQ(config->draft_target_layers, (std::vector<int>{37, 38, 39}));
  EXPECT_EQ(config->draft_n_experts, 128);
  EXPECT_EQ(config->draft_n_active_experts, 3);
  EXPECT_TRUE(config->has_vision);
  EXPECT_EQ(config->vision_n_layers, 32);
  EXPECT_EQ(config->vision_expert_dim, 2816);
}

// spec/architecture.md section 4, row by row.
TEST(ModelConfig, released_layer_plan_equals_the_published_table) {
  const Result<ModelConfig> config = parse(ConfigText::released());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->n_encoder_layers, 20);
  ASSERT_EQ(config->plan.size(), 40u);
  for (int layer = 0; layer < 40; ++layer) {
    const LayerPlan& plan = config->plan[layer];
    SCOPED_TRACE(layer);
    const int kv = layer < 2 ? -1 : layer >= 20 ? 20 : 2 + (layer - 2) / 6 * 6;
    const int index = layer < 24 ? kv : layer / 4 * 4;
    EXPECT_EQ(plan.ratio, layer < 2 ? 0 : layer < 20 ? 2 : 1);
    EXPECT_EQ(plan.kv_source, kv);
    EXPECT_EQ(plan.index_source, index);
    EXPECT_EQ(plan.mode, layer < 2        ? LayerMode::kWindow
                         : layer == kv    ? LayerMode::kFull
                         : layer == index ? LayerMode::kReindex
                                          : LayerMode::kReuse);
    EXPECT_EQ(plan.writes_candidates, layer == 20);
    EXPECT_EQ(plan.uses_candidates, plan.mode == LayerMode::kReindex);
    EXPECT_EQ(plan.engram_slot, layer == 1 ? 0 : layer == 14 ? 1 : -1);
    EXPECT_EQ(config->in_decoder(layer), layer >= 20);
  }
}

TEST(ModelConfig, colibri_layout_has_window_layers_in_the_decoder_half) {
  const Result<ModelConfig> config = parse(colibri());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->n_encoder_layers, 3);
  EXPECT_EQ(config->plan[5].mode, LayerMode::kWindow);
  EXPECT_EQ(config->plan[5].kv_source, -1);
  EXPECT_EQ(config->plan[4].mode, LayerMode::kReindex);
  EXPECT_TRUE(config->plan[4].uses_candidates);
  EXPECT_TRUE(config->plan[3].writes_candidates);
  EXPECT_EQ(config->n_draft_stages, 2);
}

TEST(ModelConfig, model_args_layout_needs_no_candidates_engram_or_vision) {
  const Result<ModelConfig> config = parse(model_args());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->candidate_source, -1);
  EXPECT_TRUE(config->engram_layers.empty());
  EXPECT_FALSE(config->has_vision);
  for (const LayerPlan& plan : config->plan) {
    EXPECT_FALSE(plan.writes_candidates || plan.uses_candidates || plan.engram_slot >= 0);
  }
}

TEST(ModelConfig, optional_parts_may_be_absent_null_or_empty) {
  for (const json::value& none : {json::value(nullptr), json::value(-1)}) {
    const Result<ModelConfig> config =
        parse(ConfigText::released().set("/text_config/candidate_source_layer_id", none));
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->candidate_source, -1);
    EXPECT_FALSE(config->plan[24].uses_candidates);
  }
  EXPECT_TRUE(parse(ConfigText::released()
                        .set("/text_config/engram_layer_ids", json::array())
                        .set("/text_config/engram_num_embeddings", json::array()))
                  .ok());
  EXPECT_TRUE(parse(ConfigText::released().set("/vision_config", nullptr)).ok());
  EXPECT_TRUE(parse(ConfigText::released().erase("/image_token_id")).ok());

  ConfigText no_draft = ConfigText::released();
  no_draft.erase("/text_config/num_nextn_predict_layers");
  expect_error(no_draft, StatusCode::kCorrupt, "compress_ratios has 43 entries, expected 40");
  json::array ratios = no_draft.root().at_pointer("/text_config/compress_ratios").as_array();
  ratios.resize(40);
  EXPECT_TRUE(parse(no_draft.set("/text_config/compress_ratios", ratios)).ok());
}

TEST(ModelConfig, window_only_model_has_no_decoder_half) {
  const Result<ModelConfig> config =
      parse(model_args()
                .set("/text_config/compress_ratios", {0, 0, 0, 0, 0})
                .set("/text_config/kv_source_layer_ids", json::array())
                .set("/text_config/index_source_layer_ids", json::array())
                .erase("/text_config/index_n_heads"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->n_encoder_layers, 5);
  EXPECT_FALSE(config->in_decoder(4));
}

TEST(ModelConfig, candidates_serve_only_layers_of_the_same_main_kv) {
  const Result<ModelConfig> config =
      parse(ConfigText::released()
                .set("/text_config/candidate_source_layer_id", 2)
                .set("/text_config/index_source_layer_ids", {2, 4, 8, 14, 20, 24}));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->plan[2].writes_candidates);
  EXPECT_TRUE(config->plan[4].uses_candidates);
  EXPECT_FALSE(config->plan[8].uses_candidates);
  EXPECT_FALSE(config->plan[24].uses_candidates);

  const Result<ModelConfig> late =
      parse(ConfigText::released().set("/text_config/candidate_source_layer_id", 28));
  ASSERT_TRUE(late.ok()) << late.status().to_string();
  EXPECT_FALSE(late->plan[24].uses_candidates);
  EXPECT_TRUE(late->plan[28].writes_candidates);
  EXPECT_TRUE(late->plan[32].uses_candidates);
}

TEST(ModelConfig, every_power_of_two_ratio_up_to_a_block_is_supported) {
  for (const int ratio : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const Result<ModelConfig> config =
        parse(model_args().set("/text_config/compress_ratios", {0, ratio, ratio, 1, 1}));
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->plan[2].ratio, ratio);
  }
  for (const int ratio : {3, 6, 127, 256}) {
    expect_error(model_args().set("/text_config/compress_ratios", {0, ratio, ratio, 1, 1}),
                 StatusCode::kUnsupported, "compress_ratios[1] is " + std::to_string(ratio));
  }
}

TEST(ModelConfig, keys_with_one_meaning_are_refused_by_name) {
  const struct {
    std::string_view where;
    json::value value;
    std::string_view message;
  } kCases[] = {
      {"/model_type", "deepseek_v4", "model_type is \"deepseek_v4\"; this build supports only"},
      {"/dtype", "float32", "dtype is \"float32\""},
      {"/text_config/model_type", "llama", "text_config.model_type is \"llama\""},
      {"/text_config/hidden_act", "gelu",
       "text_config.hidden_act is \"gelu\"; this build supports only \"silu\""},
      {"/text_config/scoring_func", "softmax", "scoring_func is \"softmax\""},
      {"/text_config/topk_method", "greedy", "topk_method is \"greedy\""},
      {"/text_config/norm_topk_prob", false, "norm_topk_prob is false"},
      {"/text_config/attention_bias", true, "attention_bias is true"},
      {"/text_config/tie_word_embeddings", true, "tie_word_embeddings is true"},
      {"/text_config/num_key_value_heads", 8, "num_key_value_heads is 8"},
      {"/text_config/n_shared_experts", 2, "n_shared_experts is 2"},
      {"/text_config/rope_scaling/type", "linear", "rope_scaling.type is \"linear\""},
      {"/quantization_config/quant_method", "awq", "quant_method is \"awq\""},
      {"/quantization_config/activation_scheme", "static", "activation_scheme is \"static\""},
      {"/quantization_config/weight_block_size", {128, 128}, "weight_block_size is [128,128]"},
      {"/quantization_config/scale_fmt", "float", "scale_fmt is \"float\""},
      {"/quantization_config/expert_dtype", "fp8", "expert_dtype is \"fp8\""},
      {"/vision_config/model_type", "clip", "vision_config.model_type is \"clip\""},
      {"/architectures", {"LlamaForCausalLM"}, "architectures is [\"LlamaForCausalLM\"]"},
      {"/architectures", json::array(), "architectures is []"},
      {"/architectures", "DeepseekV41ForCausalLM", "architectures is"},
  };
  for (const auto& item : kCases) {
    expect_error(ConfigText::released().set(item.where, item.value), StatusCode::kUnsupported,
                 item.message);
  }
  expect_error(ConfigText::released().erase("/quantization_config"), StatusCode::kUnsupported,
               "quantization_config is missing");
}

TEST(ModelConfig, contradicting_shapes_are_refused_by_name) {
  const struct {
    std::string_view where;
    json::value value;
    StatusCode code;
    std::string_view message;
  } kCases[] = {
      {"/text_config/hidden_size", 5121, StatusCode::kUnsupported, "hidden_size: expected a mul"},
      {"/text_config/head_dim", 500, StatusCode::kUnsupported, "head_dim: expected a multiple"},
      {"/text_config/index_head_dim", 72, StatusCode::kUnsupported, "index_head_dim"},
      {"/text_config/q_lora_rank", 1, StatusCode::kUnsupported, "q_lora_rank"},
      {"/text_config/o_lora_rank", 8, StatusCode::kUnsupported, "o_lora_rank"},
      {"/text_config/moe_intermediate_size", 33, StatusCode::kUnsupported, "moe_intermediate"},
      {"/text_config/engram_head_dim", 40, StatusCode::kUnsupported, "engram_head_dim"},
      {"/text_config/qk_rope_head_dim", 63, StatusCode::kCorrupt, "qk_rope_head_dim"},
      {"/text_config/qk_rope_head_dim", 130, StatusCode::kCorrupt, "at most index_head_dim"},
      {"/text_config/o_groups", 7, StatusCode::kCorrupt, "o_groups"},
      {"/text_config/num_experts_per_tok", 385, StatusCode::kCorrupt, "num_experts_per_tok"},
      {"/text_config/sliding_window", 0, StatusCode::kCorrupt, "sliding_window is 0"},
      {"/text_config/vocab_size", -1, StatusCode::kCorrupt, "vocab_size is -1"},
      {"/text_config/vocab_size", 1, StatusCode::kCorrupt, "engram_pad_token_id"},
      {"/text_config/compress_ratios", {0, 0, 2}, StatusCode::kCorrupt, "has 3 entries"},
      {"/text_config/kv_source_layer_ids",
       {2, 8, 14},
       StatusCode::kCorrupt,
       "layer 20 has ratio 1 but reads source layer 14 of ratio 2"},
      {"/text_config/kv_source_layer_ids",
       {8, 14, 20},
       StatusCode::kCorrupt,
       "layer 2 has ratio 2 but no source"},
      {"/text_config/kv_source_layer_ids",
       {0, 2, 8, 14, 20},
       StatusCode::kCorrupt,
       "layer 0 has compress ratio 0"},
      {"/text_config/kv_source_layer_ids",
       {2, 8, 14, 20, 40},
       StatusCode::kCorrupt,
       "there is no layer 40 of 40"},
      {"/text_config/kv_source_layer_ids",
       {2, 14, 8, 20},
       StatusCode::kCorrupt,
       "layer 8 after layer 14"},
      {"/text_config/kv_source_layer_ids",
       {2, 2, 8, 14, 20},
       StatusCode::kCorrupt,
       "layer 2 after layer 2"},
      {"/text_config/index_source_layer_ids",
       {2, 8, 20},
       StatusCode::kCorrupt,
       "KV source layer 14 is not among the index sources"},
      {"/text_config/candidate_source_layer_id", 21, StatusCode::kCorrupt,
       "candidate_source_layer_id: layer 21"},
      {"/text_config/engram_layer_ids", {14, 1}, StatusCode::kCorrupt, "engram_layer_ids"},
      {"/text_config/engram_layer_ids", {1, 40}, StatusCode::kCorrupt, "engram_layer_ids"},
      {"/text_config/engram_layer_ids", {1}, StatusCode::kCorrupt, "engram_num_embeddings"},
      {"/text_config/dspark_target_layer_ids", {37, 37, 39}, StatusCode::kCorrupt, "dspark_target"},
      {"/text_config/dspark_target_layer_ids", {38, 39, 40}, StatusCode::kCorrupt, "dspark_target"},
      {"/text_config/dspark_target_layer_ids", json::array(), StatusCode::kCorrupt,
       "dspark_target"},
      {"/text_config/dspark_noise_token_id", 129280, StatusCode::kCorrupt, "dspark_noise"},
      {"/text_config/dspark_num_experts_per_tok", 129, StatusCode::kCorrupt, "dspark_num_experts"},
      {"/text_config/rope_scaling/beta_fast", 1, StatusCode::kCorrupt, "beta_fast"},
      {"/eos_token_id", 129280, StatusCode::kCorrupt, "eos_token_id is 129280"},
      {"/image_token_id", 1000000, StatusCode::kCorrupt, "image_token_id is 1000000"},
      {"/vision_config/num_attention_heads", 3, StatusCode::kCorrupt, "vision_config.hidden_size"},
  };
  for (const auto& item : kCases) {
    SCOPED_TRACE(item.where);
    expect_error(ConfigText::released().set(item.where, item.value), item.code, item.message);
  }
  json::array ratios =
      ConfigText::released().root().at_pointer("/text_config/compress_ratios").as_array();
  ratios.back() = 1;
  expect_error(ConfigText::released().set("/text_config/compress_ratios", ratios),
               StatusCode::kUnsupported, "compress_ratios[42]");
}

TEST(ModelConfig, huge_numbers_are_refused_and_not_multiplied) {
  for (const std::string_view key : {"vocab_size",
                                     "hidden_size",
                                     "num_hidden_layers",
                                     "num_attention_heads",
                                     "head_dim",
                                     "q_lora_rank",
                                     "o_lora_rank",
                                     "o_groups",
                                     "moe_intermediate_size",
                                     "n_routed_experts",
                                     "sliding_window",
                                     "max_position_embeddings",
                                     "hc_mult",
                                     "index_n_heads",
                                     "index_topk",
                                     "engram_n_heads",
                                     "engram_max_ngram_size",
                                     "num_nextn_predict_layers",
                                     "dspark_n_routed_experts",
                                     "candidate_block_size"}) {
    for (const std::int64_t value : {std::int64_t{1} << 31, std::int64_t{1} << 62}) {
      expect_error(ConfigText::released().set("/text_config/" + std::string(key), value),
                   StatusCode::kUnsupported, key);
    }
    expect_error(ConfigText::released().set("/text_config/" + std::string(key),
                                            std::numeric_limits<std::uint64_t>::max()),
                 StatusCode::kUnsupported, key);
  }
  expect_error(ConfigText::released().set("/text_config/n_routed_experts", 16384),
               StatusCode::kUnsupported, "experts in all layers");
  expect_error(
      ConfigText::released().set("/text_config/engram_num_embeddings", {std::int64_t{1} << 50, 1}),
      StatusCode::kUnsupported, "engram_num_embeddings[0]");
}

TEST(ModelConfig, types_are_strict_but_integral_floats_count_as_integers) {
  const Result<ModelConfig> config = parse(ConfigText::released()
                                               .set("/text_config/compress_rope_theta", 160000.0)
                                               .set("/text_config/hidden_size", 5120.0)
                                               .set("/text_config/num_key_value_heads", 1.0)
                                               .set("/text_config/swiglu_limit", 10));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->dim, 5120);

  expect_error(ConfigText::released().set("/text_config/hidden_size", 5120.5), StatusCode::kCorrupt,
               "hidden_size is 5.1205E3, expected an integer");
  expect_error(ConfigText::released().set("/text_config/hidden_size", "5120"), StatusCode::kCorrupt,
               "hidden_size is \"5120\", expected an integer");
  expect_error(ConfigText::released().set("/text_config/hidden_size", true), StatusCode::kCorrupt,
               "hidden_size is true");
  expect_error(ConfigText::released().set("/text_config/rope_theta", "1e4"), StatusCode::kCorrupt,
               "rope_theta is \"1e4\", expected a number");
  expect_error(ConfigText::released().set("/text_config/kv_source_layer_ids", 2),
               StatusCode::kCorrupt, "expected a list of integers");
  expect_error(ConfigText::released().set("/text_config/kv_source_layer_ids", {2, "8"}),
               StatusCode::kCorrupt, "kv_source_layer_ids[1]");
  expect_error(ConfigText::released().set("/text_config", json::array()), StatusCode::kCorrupt,
               "text_config is [], expected an object");
}

TEST(ModelConfig, rope_scaling_takes_either_spelling_of_its_type) {
  ConfigText config = ConfigText::released();
  config.erase("/text_config/rope_scaling/type");
  expect_error(config, StatusCode::kCorrupt, "rope_scaling.rope_type is missing");
  EXPECT_TRUE(parse(config.set("/text_config/rope_scaling/rope_type", "yarn")).ok());
  expect_error(config.set("/text_config/rope_scaling/rope_type", "longrope"),
               StatusCode::kUnsupported, "rope_scaling.rope_type is \"longrope\"");
}

TEST(ModelConfig, norm_eps_is_the_checkpoints_own) {
  const auto config = parse_model_config(
      ConfigText::released().set("/text_config/rms_norm_eps", 1e-6).text(), nullptr);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->norm_eps, 1e-6f);
}

TEST(ModelConfig, missing_shape_keys_are_named) {
  const ConfigText released = ConfigText::released();
  // Keys with one supported meaning and keys of optional parts may be left out.
  const std::set<std::string> optional = {"model_type",          "num_key_value_heads",
                                          "n_shared_experts",    "scoring_func",
                                          "topk_method",         "norm_topk_prob",
                                          "hidden_act",          "rms_norm_eps",
                                          "attention_bias",      "rope_scaling",
                                          "tie_word_embeddings", "candidate_source_layer_id",
                                          "engram_layer_ids",    "num_nextn_predict_layers"};
  for (const auto& item : released.root().at("text_config").as_object()) {
    const std::string key(item.key());
    if (optional.contains(key)) continue;
    expect_error(ConfigText::released().erase("/text_config/" + key), StatusCode::kCorrupt,
                 "text_config." + key + " is missing");
  }
  expect_error(ConfigText::released().erase("/text_config"), StatusCode::kCorrupt,
               "text_config is missing");
  expect_error(ConfigText::released().erase("/eos_token_id"), StatusCode::kCorrupt,
               "eos_token_id is missing");
  expect_error(ConfigText::released().erase("/architectures"), StatusCode::kCorrupt,
               "architectures is missing");
}

TEST(ModelConfig, unknown_keys_are_listed_and_ignored) {
  std::vector<std::string> unknown;
  const std::string text = ConfigText::released()
                               .set("/flavour", "mild")
                               .set("/text_config/n_hash_layers", 3)
                               .set("/vision_config/depth", 1)
                               .text();
  ASSERT_TRUE(parse_model_config(text, &unknown).ok());
  std::sort(unknown.begin(), unknown.end());
  EXPECT_EQ(unknown, (std::vector<std::string>{"flavour", "text_config.n_hash_layers",
                                               "vision_config.depth"}));
}

TEST(ModelConfig, flat_inference_configuration_is_recognised) {
  const std::string text = test::read_file(std::string(CAIRN_SOURCE_DIR) +
                                           "/examples/models/tiny-a/inference_config.json");
  const Result<ModelConfig> config = parse_model_config(text, nullptr);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(config.status().message().find("flat inference configuration"), std::string::npos);
}

TEST(ModelConfig, malformed_json_is_corrupt) {
  for (const std::string_view text :
       {"", "{", "[]", "null", "\"text\"", "{\"architectures\": [\"DeepseekV41ForCausalLM\"]",
        "{} trailing", "\xff\xfe"}) {
    const Result<ModelConfig> config = parse_model_config(text, nullptr);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.status().code(), StatusCode::kCorrupt) << text;
  }
  const std::string deep = std::string(100000, '[');
  EXPECT_EQ(parse_model_config(deep, nullptr).status().code(), StatusCode::kCorrupt);
}

// Damaged text has to end in a value or an error; sanitizers watch the rest.
TEST(ModelConfig, random_damage_never_crashes) {
  const std::string good = test::read_file(tiny_a_config());
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int flips = 1 + round % 4; flips > 0; --flips) {
      bad[random() % bad.size()] = static_cast<char>(round % 2 ? random() : '0' + random() % 10);
    }
    const Result<ModelConfig> config = parse_model_config(bad, nullptr);
    EXPECT_TRUE(config.ok() || !config.status().message().empty());
  }
}

}  // namespace
}  // namespace cairn::engine
