// Every tensor of a checkpoint: spec/checkpoint.md section 4 as code, shapes derived from the
// configuration. Declared in weights_loader.h.

#include "engine/weights_loader.h"

namespace cairn::engine {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kGroup = 32;  // rows and columns of a scale tile

class Inventory {
 public:
  explicit Inventory(const ModelConfig& config) : c_(config) {}

  std::vector<ExpectedTensor> list() && {
    vision();
    globals();
    for (int layer = 0; layer < c_.n_layers; ++layer) backbone_layer(layer);
    for (int stage = 0; stage < c_.n_draft_stages; ++stage) draft_stage(stage);
    return std::move(tensors_);
  }

 private:
  void add(std::string name, DType dtype, Shape shape) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), required_for_text_});
  }
  void bf16(const std::string& name, Shape shape) { add(name, DType::kBf16, std::move(shape)); }
  void f32(const std::string& name, Shape shape) { add(name, DType::kF32, std::move(shape)); }
  void fp8(const std::string& name, std::int64_t n, std::int64_t k) {
    add(name + ".weight", DType::kF8E4M3, {n, k});
    add(name + ".scale", DType::kF8E8M0, {n / kGroup, k / kGroup});
  }
  void fp8_rows(const std::string& name, std::int64_t n, std::int64_t k) {
    add(name + ".weight", DType::kF8E4M3, {n, k});
    add(name + ".scale", DType::kF8E8M0, {n, k / kGroup});
  }
  void fp4(const std::string& name, std::int64_t n, std::int64_t k) {
    add(name + ".weight", DType::kI8, {n, k / 2});
    add(name + ".scale", DType::kF8E8M0, {n, k / kGroup});
  }

  void globals() {
    required_for_text_ = true;
    bf16("embed.weight", {c_.vocab_size, c_.dim});
    bf16("head.weight", {c_.vocab_size, c_.dim});
    bf16("norm.weight", {c_.dim});
  }

  void backbone_layer(int layer) {
    required_for_text_ = true;
    const LayerPlan& plan = c_.plan[layer];
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    block(prefix, c_.n_experts);
    if (plan.mode == LayerMode::kFull) compressor(prefix + "attn.compressor.", plan.ratio);
    if (plan.mode == LayerMode::kFull || plan.mode == LayerMode::kReindex) {
      indexer(prefix + "attn.indexer.", plan.mode == LayerMode::kFull);
    }
    if (plan.engram_slot >= 0) engram(prefix + "engram.", c_.engram_rows[plan.engram_slot]);
  }

  // What backbone layers and draft stages have in common.
  void block(const std::string& prefix, int n_experts) {
    bf16(prefix + "attn_norm.weight", {c_.dim});
    bf16(prefix + "ffn_norm.weight", {c_.dim});
    hyper_connection(prefix + "hc_attn_");
    hyper_connection(prefix + "hc_ffn_");
    attention(prefix + "attn.");
    experts(prefix + "ffn.", n_experts);
  }

  void hyper_connection(const std::string& prefix) {
    const std::int64_t hc = c_.hc_mult;
    f32(prefix + "fn", {hc * (2 + hc), hc * c_.dim});
    f32(prefix + "base", {hc * (2 + hc)});
    f32(prefix + "scale", {3});
  }

  void attention(const std::string& prefix) {
    const std::int64_t heads_width = std::int64_t{c_.n_heads} * c_.head_dim;
    const std::int64_t groups_width = std::int64_t{c_.o_groups} * c_.o_rank;
    f32(prefix + "attn_sink", {c_.n_heads});
    fp8(prefix + "wq_a", c_.q_rank, c_.dim);
    bf16(prefix + "q_norm.weight", {c_.q_rank});
    fp8(prefix + "wq_b", heads_width, c_.q_rank);
    fp8(prefix + "wkv", c_.head_dim, c_.dim);
    bf16(prefix + "kv_norm.weight", {c_.head_dim});
    fp8(prefix + "wo_a", groups_width, heads_width / c_.o_groups);
    fp8(prefix + "wo_b", c_.dim, groups_width);
  }

  void experts(const std::string& prefix, int n_experts) {
    bf16(prefix + "gate.weight", {n_experts, c_.dim});
    f32(prefix + "gate.bias", {n_experts});
    f32(prefix + "gate.bias_vl", {n_experts});
    fp8(prefix + "shared_experts.w1", c_.expert_dim, c_.dim);
    fp8(prefix + "shared_experts.w3", c_.expert_dim, c_.dim);
    fp8(prefix + "shared_experts.w2", c_.dim, c_.expert_dim);
    for (int expert = 0; expert < n_experts; ++expert) {
      const std::string name = prefix + "experts." + std::to_string(expert) + ".";
      fp4(name + "w1", c_.expert_dim, c_.dim);
      fp4(name + "w3", c_.expert_dim, c_.dim);
      fp4(name + "w2", c_.dim, c_.expert_dim);
    }
  }

  void compressor(const std::string& prefix, int ratio) {
    bf16(prefix + "wkv.weight", {c_.head_dim, c_.dim});
    bf16(prefix + "norm.weight", {c_.head_dim});
    if (ratio > 1) bf16(prefix + "wgate.weight", {c_.head_dim, c_.dim});
  }

  void indexer(const std::string& prefix, bool owns_keys) {
    if (owns_keys) {
      bf16(prefix + "wk.weight", {c_.index_head_dim, c_.head_dim});
      bf16(prefix + "k_norm.weight", {c_.index_head_dim});
    }
    fp8(prefix + "wq_b", std::int64_t{c_.index_n_heads} * c_.index_head_dim, c_.q_rank);
    bf16(prefix + "weights_proj.weight", {c_.index_n_heads, c_.dim});
  }

  void engram(const std::string& prefix, std::int64_t rows) {
    fp8_rows(prefix + "embed", rows, c_.engram_head_dim);
    fp8(prefix + "wkv", std::int64_t{c_.hc_mult + 1} * c_.dim,
        std::int64_t{c_.engram_columns()} * c_.engram_head_dim);
    bf16(prefix + "q_weight", {c_.hc_mult, c_.dim});
    bf16(prefix + "k_weight", {c_.hc_mult, c_.dim});
  }

  void draft_stage(int stage) {
    required_for_text_ = false;
    const std::string prefix = "mtp." + std::to_string(stage) + ".";
    block(prefix, c_.draft_n_experts);
    if (stage == 0) {
      const auto n_targets = static_cast<std::int64_t>(c_.draft_target_layers.size());
      fp8(prefix + "main_proj", c_.dim, n_targets * c_.dim);
      bf16(prefix + "main_norm.weight", {c_.dim});
    }
    if (stage == c_.n_draft_stages - 1) {
      bf16(prefix + "norm.weight", {c_.dim});
      bf16(prefix + "markov_head.embed.weight", {c_.vocab_size, c_.draft_markov_rank});
      bf16(prefix + "markov_head.head.weight", {c_.vocab_size, c_.draft_markov_rank});
      bf16(prefix + "confidence_head.proj.weight",
           {1, std::int64_t{c_.dim} + c_.draft_markov_rank});
    }
  }

  void vision() {
    if (!c_.has_vision) return;
    required_for_text_ = false;
    const std::int64_t dim = c_.vision_dim;
    bf16("vision.patch_embed.proj.weight", {dim, 3LL * c_.vision_patch * c_.vision_patch});
    bf16("vision.patch_embed.proj.bias", {dim});
    for (int layer = 0; layer < c_.vision_n_layers; ++layer) vision_block(layer);
    bf16("vision.norm.weight", {dim});
    bf16("aligner.w1.weight", {c_.dim, dim * c_.vision_downsample * c_.vision_downsample});
    bf16("aligner.w1.bias", {c_.dim});
    bf16("aligner.w2.weight", {c_.dim, c_.dim});
    bf16("aligner.w2.bias", {c_.dim});
    bf16("image_start", {c_.dim});
    bf16("image_end", {c_.dim});
    bf16("image_newline", {c_.dim});
  }

  void vision_block(int layer) {
    const std::int64_t dim = c_.vision_dim;
    const std::string prefix = "vision.blocks." + std::to_string(layer) + ".";
    bf16(prefix + "norm1.weight", {dim});
    bf16(prefix + "norm2.weight", {dim});
    bf16(prefix + "attn.wqkv.weight", {3 * dim, dim});
    bf16(prefix + "attn.wqkv.bias", {3 * dim});
    bf16(prefix + "attn.wo.weight", {dim, dim});
    bf16(prefix + "attn.wo.bias", {dim});
    bf16(prefix + "mlp.w1.weight", {2LL * c_.vision_expert_dim, dim});
    bf16(prefix + "mlp.w2.weight", {dim, c_.vision_expert_dim});
  }

  const ModelConfig& c_;
  std::vector<ExpectedTensor> tensors_;
  bool required_for_text_ = true;
};

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  return Inventory(config).list();
}

std::int64_t payload_bytes(const ExpectedTensor& tensor) {
  std::int64_t n = dtype_bytes(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) n *= extent;
  return n;
}

std::int64_t parameter_count(const ExpectedTensor& tensor) {
  if (tensor.dtype == DType::kF8E8M0) return 0;
  const std::int64_t elements = payload_bytes(tensor) / dtype_bytes(tensor.dtype);
  return tensor.dtype == DType::kI8 ? 2 * elements : elements;
}

}  // namespace cairn::engine
