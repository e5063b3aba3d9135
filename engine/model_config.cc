// Reads config.json. Three kinds of keys: shapes (read, range-checked, kept), keys with one
// supported meaning (compared, refused by name otherwise; a file may leave them out, as the family
// has only this meaning) and keys that say nothing about inference (known and skipped). The rest
// goes to `unknown_keys`.
//
// The limits below are no claims about models: they keep every product of sizes inside 63 bits and
// the tensor list inside memory, so that a hostile file ends in an error and not in an overflow.

#include "engine/model_config.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <new>
#include <set>

#include "engine/layer_plan.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;

constexpr std::string_view kArchitecture = "DeepseekV41ForCausalLM";
constexpr int kTile = 32;  // FP8 tiles are 32x32, FP4 groups 32 wide: spec/checkpoint.md section 1

constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxDim = 1 << 17;
constexpr std::int64_t kMaxLayers = 1 << 10;
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxHeadDim = 1 << 14;
constexpr std::int64_t kMaxExperts = 1 << 14;
constexpr std::int64_t kMaxAllExperts = 1 << 18;  // of all layers and draft stages together
constexpr std::int64_t kMaxPositions = 1 << 24;   // positions stay exact in f32
constexpr std::int64_t kMaxWindow = 1 << 20;
constexpr std::int64_t kMaxTopK = 1 << 20;
constexpr std::int64_t kMaxStreams = 64;  // hyper-connection copies
constexpr std::int64_t kMaxNgram = 16;
constexpr std::int64_t kMaxEngramHeads = 64;
constexpr std::int64_t kMaxEngramRows = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDraftStages = 64;
constexpr std::int64_t kMaxDraftBlock = 1 << 10;

struct IntRange {
  std::int64_t min, max;
};
struct RealRange {
  double min, max;
};

Status unsupported(std::string message, std::string hint = {}) {
  return {StatusCode::kUnsupported, std::move(message), std::move(hint)};
}

// The JSON text of a value, short enough for a message.
std::string shown(const json::value& value) {
  constexpr std::size_t kMaxShown = 80;
  std::string text = json::serialize(value);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

// What the readers of one file share: the first error wins, later reads then return defaults.
struct ReadState {
  Status status;
  std::vector<std::string>* unknown_keys = nullptr;  // may be null
};

// Reads the keys of one JSON object and remembers which it was asked for.
class ObjectReader {
 public:
  // `path` is the prefix of key names in messages, "" or "text_config.". Borrows both.
  ObjectReader(const json::object& object, std::string path, ReadState& state)
      : object_(object), path_(std::move(path)), state_(state) {}

  // Absent and null are the same thing.
  bool has(std::string_view key) { return find(key) != nullptr; }

  std::int64_t wide_integer(std::string_view key, IntRange range) {
    const json::value* value = require(key);
    return value == nullptr ? range.min : checked_integer(key, *value, range);
  }
  int integer(std::string_view key, IntRange range) {
    return static_cast<int>(wide_integer(key, range));
  }
  int integer_or(std::string_view key, int fallback, IntRange range) {
    return has(key) ? integer(key, range) : fallback;
  }

  double number(std::string_view key, RealRange range) {
    const json::value* value = require(key);
    if (value == nullptr) return range.min;
    const double x = value->is_double()   ? value->get_double()
                     : value->is_int64()  ? static_cast<double>(value->get_int64())
                     : value->is_uint64() ? static_cast<double>(value->get_uint64())
                                          : std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(x)) return wrong_type(key, *value, "a number"), range.min;
    if (x < range.min || x > range.max) {
      fail(unsupported(where(key) + " is " + shown(*value) + "; supported is " +
                       std::to_string(range.min) + " to " + std::to_string(range.max)));
      return range.min;
    }
    return x;
  }
  double number_or(std::string_view key, double fallback, RealRange range) {
    return has(key) ? number(key, range) : fallback;
  }

  std::vector<std::int64_t> wide_integers(std::string_view key, IntRange range,
                                          std::size_t max_count) {
    std::vector<std::int64_t> out;
    const json::value* value = require(key);
    if (value == nullptr) return out;
    if (!value->is_array()) return wrong_type(key, *value, "a list of integers"), out;
    const json::array& items = value->get_array();
    if (items.size() > max_count) {
      fail(unsupported(where(key) + " has " + std::to_string(items.size()) +
                       " entries; supported are " + std::to_string(max_count)));
      return out;
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      out.push_back(
          checked_integer(std::string(key) + "[" + std::to_string(i) + "]", items[i], range));
    }
    return out;
  }
  std::vector<int> integers(std::string_view key, IntRange range, std::size_t max_count) {
    const std::vector<std::int64_t> wide = wide_integers(key, range, max_count);
    return {wide.begin(), wide.end()};
  }

  // A key with one supported value. May be absent unless `required`.
  void fixed(std::string_view key, const json::value& supported, bool required = false) {
    const json::value* value = required ? require(key) : find(key);
    if (value == nullptr || same(*value, supported)) return;
    fail(unsupported(where(key) + " is " + shown(*value) + "; this build supports only " +
                     shown(supported)));
  }

  // The nested object, or null where it is absent.
  const json::object* object(std::string_view key) {
    const json::value* value = find(key);
    if (value == nullptr) return nullptr;
    if (!value->is_object()) return wrong_type(key, *value, "an object"), nullptr;
    return &value->get_object();
  }

  void skip(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) asked_.emplace(key);
  }

  void fail(Status status) {
    if (state_.status.ok()) state_.status = std::move(status);
  }
  std::string where(std::string_view key) const {
    return "config.json: " + path_ + std::string(key);
  }

  void report_unknown_keys() const {
    if (state_.unknown_keys == nullptr) return;
    for (const auto& item : object_) {
      const std::string key(item.key());
      if (!asked_.contains(key)) state_.unknown_keys->push_back(path_ + key);
    }
  }

 private:
  const json::value* find(std::string_view key) {
    asked_.emplace(key);
    const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  const json::value* require(std::string_view key) {
    const json::value* value = find(key);
    if (value == nullptr) fail(corrupt(where(key) + " is missing"));
    return value;
  }
  void wrong_type(std::string_view key, const json::value& value, std::string_view expected) {
    fail(corrupt(where(key) + " is " + shown(value) + ", expected " + std::string(expected)));
  }

  // Python writes 160000.0 for an integer that went through a float: integral floats are integers.
  static bool to_integer(const json::value& value, std::int64_t& out) {
    constexpr double kExactBelow = 9007199254740992.0;  // 2^53
    if (value.is_int64()) return out = value.get_int64(), true;
    if (!value.is_double()) return false;
    const double x = value.get_double();
    if (std::trunc(x) != x || std::abs(x) >= kExactBelow) return false;
    return out = static_cast<std::int64_t>(x), true;
  }
  std::int64_t checked_integer(std::string_view key, const json::value& value, IntRange range) {
    std::int64_t x = 0;
    if (!to_integer(value, x)) {
      if (value.is_uint64()) {
        fail(unsupported(where(key) + " is " + shown(value) + "; supported is at most " +
                         std::to_string(range.max)));
      } else {
        wrong_type(key, value, "an integer");
      }
      return range.min;
    }
    if (x < range.min) {
      fail(corrupt(where(key) + " is " + shown(value) + ", expected at least " +
                   std::to_string(range.min)));
      return range.min;
    }
    if (x > range.max) {
      fail(unsupported(where(key) + " is " + shown(value) + "; supported is at most " +
                       std::to_string(range.max)));
      return range.min;
    }
    return x;
  }
  // Equality that takes 1.0 for 1.
  static bool same(const json::value& a, const json::value& b) {
    std::int64_t x = 0, y = 0;
    return to_integer(a, x) && to_integer(b, y) ? x == y : a == b;
  }

  const json::object& object_;
  std::string path_;
  ReadState& state_;
  std::set<std::string, std::less<>> asked_;
};

void read_quantisation(ObjectReader& top, ReadState& state) {
  const json::object* object = top.object("quantization_config");
  if (object == nullptr) {
    top.fail(unsupported(top.where("quantization_config") + " is missing",
                         "the engine runs the released FP8 and FP4 weights, no other formats"));
    return;
  }
  ObjectReader reader(*object, "quantization_config.", state);
  reader.fixed("quant_method", "fp8", true);
  reader.fixed("activation_scheme", "dynamic", true);
  reader.fixed("weight_block_size", json::array{kTile, kTile}, true);
  reader.fixed("scale_fmt", "ue8m0", true);
  reader.fixed("expert_dtype", "fp4", true);
  reader.report_unknown_keys();
}

void read_rope_scaling(ObjectReader& text, ReadState& state, ModelConfig& config) {
  const json::object* object = text.object("rope_scaling");
  if (object == nullptr) return;
  ObjectReader reader(*object, "text_config.rope_scaling.", state);
  reader.fixed("type", "yarn");
  reader.fixed("rope_type", "yarn", !reader.has("type"));
  config.yarn_factor = reader.number("factor", {1, 1e6});
  config.yarn_beta_fast = reader.number("beta_fast", {1e-3, 1e6});
  config.yarn_beta_slow = reader.number("beta_slow", {1e-3, 1e6});
  config.yarn_original_positions =
      reader.integer("original_max_position_embeddings", {1, kMaxPositions});
  if (state.status.ok() && config.yarn_beta_fast <= config.yarn_beta_slow) {
    reader.fail(corrupt(reader.where("beta_fast") + " is not above beta_slow"));
  }
  reader.report_unknown_keys();
}

void read_backbone(ObjectReader& text, ReadState& state, ModelConfig& config) {
  text.fixed("model_type", "deepseek_v41_text");
  text.fixed("num_key_value_heads", 1);
  text.fixed("hidden_act", "silu");
  text.fixed("attention_bias", false);
  text.fixed("tie_word_embeddings", false);
  text.fixed("scoring_func", "sqrtsoftplus");
  text.fixed("topk_method", "noaux_tc");
  text.fixed("norm_topk_prob", true);

  config.vocab_size = text.integer("vocab_size", {1, kMaxVocab});
  config.dim = text.integer("hidden_size", {1, kMaxDim});
  config.n_layers = text.integer("num_hidden_layers", {1, kMaxLayers});
  config.n_heads = text.integer("num_attention_heads", {1, kMaxHeads});
  config.head_dim = text.integer("head_dim", {1, kMaxHeadDim});
  config.rope_dim = text.integer("qk_rope_head_dim", {2, kMaxHeadDim});
  config.q_rank = text.integer("q_lora_rank", {1, kMaxDim});
  config.o_rank = text.integer("o_lora_rank", {1, kMaxDim});
  config.o_groups = text.integer("o_groups", {1, kMaxHeads});
  config.norm_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-20, {0, 1}));
  config.max_positions = text.integer("max_position_embeddings", {1, kMaxPositions});
  config.window = text.integer("sliding_window", {1, kMaxWindow});
  config.rope_theta = text.number("rope_theta", {1, 1e12});
  config.compress_rope_theta = text.number("compress_rope_theta", {1, 1e12});
  read_rope_scaling(text, state, config);
  config.hc_mult = text.integer("hc_mult", {1, kMaxStreams});
  config.hc_sinkhorn_iters = text.integer("hc_sinkhorn_iters", {1, 1000});
  config.hc_eps = static_cast<float>(text.number("hc_eps", {1e-30, 1}));
}

void read_experts(ObjectReader& text, ModelConfig& config) {
  text.fixed("n_shared_experts", 1);
  config.n_shared_experts = 1;
  config.normalise_topk = true;
  config.expert_dim = text.integer("moe_intermediate_size", {1, kMaxDim});
  config.n_experts = text.integer("n_routed_experts", {1, kMaxExperts});
  config.n_active_experts = text.integer("num_experts_per_tok", {1, kMaxExperts});
  config.route_scale = static_cast<float>(text.number("routed_scaling_factor", {1e-6, 1e6}));
  config.gate_temperature = static_cast<float>(text.number_or("gate_temp", 1, {1e-6, 1e6}));
  config.swiglu_limit = static_cast<float>(text.number("swiglu_limit", {1e-6, 1e6}));
}

void read_sparse_attention(ObjectReader& text, ModelConfig& config) {
  const IntRange layer_id = {0, kMaxLayers};
  config.compress_ratios =
      text.integers("compress_ratios", {0, 1 << 20}, kMaxLayers + kMaxDraftStages);
  config.kv_source_layers = text.integers("kv_source_layer_ids", layer_id, kMaxLayers);
  config.index_source_layers = text.integers("index_source_layer_ids", layer_id, kMaxLayers);
  text.skip({"index_n_heads", "index_head_dim", "index_topk", "candidate_topk_blocks",
             "candidate_block_size"});
  config.candidate_source = text.integer_or("candidate_source_layer_id", -1, {-1, kMaxLayers});
  if (!config.index_source_layers.empty()) {
    config.index_n_heads = text.integer("index_n_heads", {1, kMaxHeads});
    config.index_head_dim = text.integer("index_head_dim", {1, kMaxHeadDim});
    config.index_top_k = text.integer("index_topk", {1, kMaxTopK});
  }
  if (config.candidate_source >= 0) {
    config.candidate_top_blocks = text.integer("candidate_topk_blocks", {1, kMaxTopK});
    config.candidate_block_size = text.integer("candidate_block_size", {1, kMaxTopK});
  }
}

void read_engram(ObjectReader& text, ModelConfig& config) {
  text.skip({"engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size",
             "engram_vocab_size", "engram_n_heads", "engram_head_dim", "engram_pad_token_id",
             "engram_compressed_vocab_size"});
  if (!text.has("engram_layer_ids")) return;
  config.engram_layers = text.integers("engram_layer_ids", {0, kMaxLayers}, kMaxLayers);
  if (config.engram_layers.empty()) return;
  config.engram_rows = text.wide_integers("engram_num_embeddings", {1, kMaxEngramRows}, kMaxLayers);
  config.engram_max_ngram = text.integer("engram_max_ngram_size", {2, kMaxNgram});
  config.engram_n_heads = text.integer("engram_n_heads", {1, kMaxEngramHeads});
  config.engram_head_dim = text.integer("engram_head_dim", {1, kMaxHeadDim});
  config.engram_prime_start = text.wide_integer("engram_vocab_size", {2, kMaxEngramRows});
  config.engram_n_classes = text.wide_integer("engram_compressed_vocab_size", {1, kMaxVocab});
  config.engram_pad_id = text.integer("engram_pad_token_id", {0, kMaxVocab});
}

void read_draft(ObjectReader& text, ModelConfig& config) {
  text.skip({"dspark_block_size", "dspark_noise_token_id", "dspark_target_layer_ids",
             "dspark_markov_rank", "dspark_n_routed_experts", "dspark_num_experts_per_tok"});
  config.n_draft_stages = text.integer_or("num_nextn_predict_layers", 0, {0, kMaxDraftStages});
  if (config.n_draft_stages == 0) return;
  config.draft_block = text.integer("dspark_block_size", {1, kMaxDraftBlock});
  config.draft_noise_id = text.integer("dspark_noise_token_id", {0, kMaxVocab});
  config.draft_target_layers =
      text.integers("dspark_target_layer_ids", {0, kMaxLayers}, kMaxLayers);
  config.draft_markov_rank = text.integer("dspark_markov_rank", {1, kMaxDim});
  config.draft_n_experts = text.integer("dspark_n_routed_experts", {1, kMaxExperts});
  config.draft_n_active_experts = text.integer("dspark_num_experts_per_tok", {1, kMaxExperts});
}

void read_vision(ObjectReader& top, ReadState& state, ModelConfig& config) {
  const json::object* object = top.object("vision_config");
  if (object == nullptr) return;
  ObjectReader reader(*object, "vision_config.", state);
  config.has_vision = true;
  reader.fixed("model_type", "deepseek_v41_vision");
  config.vision_n_layers = reader.integer("num_hidden_layers", {1, kMaxLayers});
  config.vision_dim = reader.integer("hidden_size", {1, kMaxDim});
  config.vision_expert_dim = reader.integer("intermediate_size", {1, kMaxDim});
  config.vision_patch = reader.integer("patch_size", {1, 1 << 10});
  config.vision_downsample = reader.integer("downsample_ratio", {1, 1 << 6});
  const int n_heads = reader.integer("num_attention_heads", {1, kMaxHeads});
  // 2D RoPE rotates pairs in both halves of a head.
  if (state.status.ok() && config.vision_dim % (4 * n_heads) != 0) {
    reader.fail(corrupt(
        reader.where("hidden_size") + " is " + std::to_string(config.vision_dim) +
        ", expected a multiple of 4 * num_attention_heads = " + std::to_string(4 * n_heads)));
  }
  reader.number_or("rope_theta", 10000, {1, 1e12});
  reader.skip({"max_image_tokens", "min_pixels", "max_wh_ratio"});
  reader.report_unknown_keys();
}

void read_token_ids(ObjectReader& top, ModelConfig& config) {
  const IntRange id = {0, kMaxVocab};
  config.bos_id = top.integer("bos_token_id", id);
  config.eos_id = top.integer("eos_token_id", id);
  config.pad_id = top.integer_or("pad_token_id", config.pad_id, id);
  config.image_id = top.integer_or("image_token_id", -1, {-1, kMaxVocab});
}

Status check_family(const json::object& object) {
  const json::value* list = object.if_contains("architectures");
  if (list == nullptr && object.contains("dim") && object.contains("n_layers")) {
    return unsupported("config.json: this is a flat inference configuration",
                       "use the config.json beside the weights, which has a text_config");
  }
  if (list == nullptr) return corrupt("config.json: architectures is missing");
  const json::array* names = list->if_array();
  if (names == nullptr || names->size() != 1 || (*names)[0] != json::value(kArchitecture.data())) {
    return unsupported("config.json: architectures is " + shown(*list) +
                       "; this engine runs only [\"" + std::string(kArchitecture) + "\"]");
  }
  return {};
}

// One rule about numbers that were read; `key` is a key of text_config.
struct Rule {
  bool holds;
  std::string_view key;
  std::string_view expected;
};

Status check_rules(std::initializer_list<Rule> rules, StatusCode code) {
  for (const Rule& rule : rules) {
    if (rule.holds) continue;
    return {code, "config.json: text_config." + std::string(rule.key) + ": expected " +
                      std::string(rule.expected)};
  }
  return {};
}

Status check_multiples(const ModelConfig& c) {
  const bool sparse = !c.index_source_layers.empty();
  const bool engram = !c.engram_layers.empty();
  return check_rules(
      {
          {c.dim % kTile == 0, "hidden_size", "a multiple of 32"},
          {c.head_dim % kTile == 0, "head_dim", "a multiple of 32"},
          {c.q_rank % kTile == 0, "q_lora_rank", "a multiple of 32"},
          {c.o_rank % kTile == 0, "o_lora_rank", "a multiple of 32"},
          {c.expert_dim % kTile == 0, "moe_intermediate_size", "a multiple of 32"},
          {!sparse || c.index_head_dim % kTile == 0, "index_head_dim", "a multiple of 32"},
          {!engram || c.engram_head_dim % kTile == 0, "engram_head_dim", "a multiple of 32"},
      },
      StatusCode::kUnsupported);
}

Status check_relations(const ModelConfig& c) {
  const bool sparse = !c.index_source_layers.empty();
  const bool engram = !c.engram_layers.empty();
  const bool draft = c.n_draft_stages > 0;
  return check_rules(
      {
          {c.rope_dim % 2 == 0, "qk_rope_head_dim", "an even number"},
          {c.rope_dim <= c.head_dim, "qk_rope_head_dim", "at most head_dim"},
          {!sparse || c.rope_dim <= c.index_head_dim, "qk_rope_head_dim", "at most index_head_dim"},
          {c.n_heads % c.o_groups == 0, "o_groups", "a divisor of num_attention_heads"},
          {c.n_active_experts <= c.n_experts, "num_experts_per_tok", "at most n_routed_experts"},
          {c.engram_rows.size() == c.engram_layers.size(), "engram_num_embeddings",
           "one entry per layer of engram_layer_ids"},
          {!engram || c.engram_pad_id < c.vocab_size, "engram_pad_token_id", "a token id"},
          {!engram || c.engram_n_classes <= c.vocab_size, "engram_compressed_vocab_size",
           "at most vocab_size"},
          {!draft || c.draft_noise_id < c.vocab_size, "dspark_noise_token_id", "a token id"},
          {!draft || c.draft_n_active_experts <= c.draft_n_experts, "dspark_num_experts_per_tok",
           "at most dspark_n_routed_experts"},
          {!draft || !c.draft_target_layers.empty(), "dspark_target_layer_ids",
           "at least one layer"},
      },
      StatusCode::kCorrupt);
}

Status check_expert_count(const ModelConfig& c) {
  const std::int64_t all =
      std::int64_t{c.n_layers} * c.n_experts + std::int64_t{c.n_draft_stages} * c.draft_n_experts;
  if (all <= kMaxAllExperts) return {};
  return unsupported("config.json: text_config.n_routed_experts: " + std::to_string(all) +
                     " experts in all layers; supported are " + std::to_string(kMaxAllExperts));
}

Status check_draft_targets(const ModelConfig& c) {
  const std::set<int> layers(c.draft_target_layers.begin(), c.draft_target_layers.end());
  const bool in_range = layers.empty() || *layers.rbegin() < c.n_layers;
  if (in_range && layers.size() == c.draft_target_layers.size()) return {};
  return corrupt(
      "config.json: text_config.dspark_target_layer_ids: expected distinct layers below " +
      std::to_string(c.n_layers));
}

Status check_ratio_count(const ModelConfig& c) {
  const int n = static_cast<int>(c.compress_ratios.size());
  if (n != c.n_layers && n != c.n_layers + c.n_draft_stages) {
    return corrupt("config.json: text_config.compress_ratios has " + std::to_string(n) +
                   " entries, expected " + std::to_string(c.n_layers) + " layers" +
                   (c.n_draft_stages > 0 ? " or " + std::to_string(c.n_layers + c.n_draft_stages) +
                                               " with draft stages"
                                         : ""));
  }
  for (int i = c.n_layers; i < n; ++i) {
    if (c.compress_ratios[i] == 0) continue;
    return unsupported("config.json: text_config.compress_ratios[" + std::to_string(i) + "] is " +
                       std::to_string(c.compress_ratios[i]) +
                       "; draft stages support only window attention (0)");
  }
  return {};
}

Status check_token_ids(const ModelConfig& c) {
  const std::pair<std::string_view, int> ids[] = {{"bos_token_id", c.bos_id},
                                                  {"eos_token_id", c.eos_id},
                                                  {"pad_token_id", c.pad_id},
                                                  {"image_token_id", c.image_id}};
  for (const auto& [key, id] : ids) {
    if (id < c.vocab_size) continue;
    return corrupt("config.json: " + std::string(key) + " is " + std::to_string(id) +
                   ", expected an id below vocab_size = " + std::to_string(c.vocab_size));
  }
  return {};
}

Status validate(ModelConfig& config) {
  CAIRN_RETURN_IF_ERROR(check_multiples(config));
  CAIRN_RETURN_IF_ERROR(check_relations(config));
  CAIRN_RETURN_IF_ERROR(check_expert_count(config));
  CAIRN_RETURN_IF_ERROR(check_token_ids(config));
  CAIRN_RETURN_IF_ERROR(check_draft_targets(config));
  CAIRN_RETURN_IF_ERROR(check_ratio_count(config));
  return derive_layer_plan(config);
}

Result<ModelConfig> read_config(const json::object& object,
                                std::vector<std::string>* unknown_keys) {
  CAIRN_RETURN_IF_ERROR(check_family(object));
  ReadState state{.status = {}, .unknown_keys = unknown_keys};
  ModelConfig config;
  config.architecture = kArchitecture;

  ObjectReader top(object, "", state);
  top.skip({"architectures", "transformers_version"});
  top.fixed("model_type", "deepseek_v41");
  top.fixed("dtype", "bfloat16");
  top.fixed("tie_word_embeddings", false);
  read_token_ids(top, config);
  read_quantisation(top, state);

  const json::object* text_object = top.object("text_config");
  if (text_object == nullptr) {
    top.fail(corrupt("config.json: text_config is missing"));
    return state.status;
  }
  ObjectReader text(*text_object, "text_config.", state);
  text.skip({"attention_dropout", "initializer_range", "use_cache", "dtype"});
  read_backbone(text, state, config);
  read_experts(text, config);
  read_sparse_attention(text, config);
  read_engram(text, config);
  read_draft(text, config);
  read_vision(top, state, config);
  text.report_unknown_keys();
  top.report_unknown_keys();

  CAIRN_RETURN_IF_ERROR(state.status);
  CAIRN_RETURN_IF_ERROR(validate(config));
  return config;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text,
                                       std::vector<std::string>* unknown_keys) {
  try {
    json::error_code error;
    const json::value root = json::parse(json::string_view(text.data(), text.size()), error);
    if (error) return corrupt("config.json: not valid JSON: " + error.message());
    const json::object* object = root.if_object();
    if (object == nullptr) return corrupt("config.json: expected a JSON object");
    return read_config(*object, unknown_keys);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "config.json: out of memory while parsing");
  } catch (const std::exception& e) {
    return internal_error(std::string("config.json: ") + e.what());
  }
}

}  // namespace cairn::engine
