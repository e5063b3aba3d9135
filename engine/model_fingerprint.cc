// The identity of a model as far as KV caches care: two folders with equal fingerprints fill the
// same cache. Declared in weights_loader.h.
//
// Hashing every byte of the released checkpoint takes minutes, so tensors above kWholeBytes are
// sampled at their start and their middle. That tells any other training or quantisation run apart;
// it is no protection against someone who changes single values on purpose. Sampled pages are
// requested all at once before the first is hashed: 0.8 GB in one queue instead of one fault each.

#include <array>
#include <cstdio>
#include <filesystem>
#include <new>
#include <type_traits>

#include "engine/mapped_file.h"
#include "engine/sha256.h"
#include "engine/weights_loader.h"

namespace cairn::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWholeBytes = 64 * 1024;
constexpr std::size_t kWindowBytes = 4 * 1024;

// Feeds labelled, length-prefixed fields, so that no two field lists give the same byte stream.
class FieldHash {
 public:
  void field(std::string_view label, std::span<const std::byte> value) {
    length(label.size());
    hash_.update(std::as_bytes(std::span(label)));
    length(value.size());
    hash_.update(value);
  }
  void field(std::string_view label, std::string_view value) {
    field(label, std::as_bytes(std::span(value)));
  }
  void field(std::string_view label, std::int64_t value) { field(label, std::to_string(value)); }
  void field(std::string_view label, double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%a", value);  // exact
    field(label, std::string_view(text));
  }
  template <class T>
  requires std::is_integral_v<T>
  void field(std::string_view label, const std::vector<T>& values) {
    field(label, static_cast<std::int64_t>(values.size()));
    for (const T value : values) field(label, static_cast<std::int64_t>(value));
  }
  void field(std::string_view label, int value) { field(label, std::int64_t{value}); }
  void field(std::string_view label, float value) { field(label, double{value}); }
  void field(std::string_view label, bool value) { field(label, std::int64_t{value}); }

  std::string finish() { return hex(hash_.finish()); }

 private:
  void length(std::uint64_t n) {
    std::array<std::byte, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(n >> (8 * i));
    hash_.update(bytes);
  }

  Sha256 hash_;
};

// The validated values rather than the file's text: key order, white space and spelling do not
// matter. The layer plan follows from the lists.
void add_config(const ModelConfig& c, FieldHash& hash) {
  hash.field("architecture", c.architecture);
  hash.field("vocab_size", c.vocab_size);
  hash.field("dim", c.dim);
  hash.field("n_layers", c.n_layers);
  hash.field("n_heads", c.n_heads);
  hash.field("head_dim", c.head_dim);
  hash.field("rope_dim", c.rope_dim);
  hash.field("q_rank", c.q_rank);
  hash.field("o_groups", c.o_groups);
  hash.field("o_rank", c.o_rank);
  hash.field("n_experts", c.n_experts);
  hash.field("n_shared_experts", c.n_shared_experts);
  hash.field("n_active_experts", c.n_active_experts);
  hash.field("expert_dim", c.expert_dim);
  hash.field("route_scale", c.route_scale);
  hash.field("gate_temperature", c.gate_temperature);
  hash.field("swiglu_limit", c.swiglu_limit);
  hash.field("normalise_topk", c.normalise_topk);
  hash.field("norm_eps", c.norm_eps);
  hash.field("max_positions", c.max_positions);
  hash.field("bos_id", c.bos_id);
  hash.field("eos_id", c.eos_id);
  hash.field("pad_id", c.pad_id);
  hash.field("image_id", c.image_id);
  hash.field("rope_theta", c.rope_theta);
  hash.field("compress_rope_theta", c.compress_rope_theta);
  hash.field("yarn_factor", c.yarn_factor);
  hash.field("yarn_beta_fast", c.yarn_beta_fast);
  hash.field("yarn_beta_slow", c.yarn_beta_slow);
  hash.field("yarn_original_positions", c.yarn_original_positions);
  hash.field("window", c.window);
  hash.field("ratios",
             std::vector<int>(c.compress_ratios.begin(), c.compress_ratios.begin() + c.n_layers));
  hash.field("kv_source_layers", c.kv_source_layers);
  hash.field("index_source_layers", c.index_source_layers);
  hash.field("index_n_heads", c.index_n_heads);
  hash.field("index_head_dim", c.index_head_dim);
  hash.field("index_top_k", c.index_top_k);
  hash.field("candidate_source", c.candidate_source);
  hash.field("candidate_top_blocks", c.candidate_top_blocks);
  hash.field("candidate_block_size", c.candidate_block_size);
  hash.field("hc_mult", c.hc_mult);
  hash.field("hc_sinkhorn_iters", c.hc_sinkhorn_iters);
  hash.field("hc_eps", c.hc_eps);
  hash.field("engram_layers", c.engram_layers);
  hash.field("engram_rows", c.engram_rows);
  hash.field("engram_max_ngram", c.engram_max_ngram);
  hash.field("engram_n_heads", c.engram_n_heads);
  hash.field("engram_head_dim", c.engram_head_dim);
  hash.field("engram_prime_start", c.engram_prime_start);
  hash.field("engram_n_classes", c.engram_n_classes);
  hash.field("engram_pad_id", c.engram_pad_id);
  hash.field("n_draft_stages", c.n_draft_stages);
  hash.field("draft_block", c.draft_block);
  hash.field("draft_noise_id", c.draft_noise_id);
  hash.field("draft_markov_rank", c.draft_markov_rank);
  hash.field("draft_n_experts", c.draft_n_experts);
  hash.field("draft_n_active_experts", c.draft_n_active_experts);
  hash.field("draft_target_layers", c.draft_target_layers);
  hash.field("has_vision", c.has_vision);
  hash.field("vision_n_layers", c.vision_n_layers);
  hash.field("vision_dim", c.vision_dim);
  hash.field("vision_expert_dim", c.vision_expert_dim);
  hash.field("vision_patch", c.vision_patch);
  hash.field("vision_downsample", c.vision_downsample);
}

// The hashed parts of one tensor, in order.
std::vector<std::span<const std::byte>> samples(const TensorEntry& tensor) {
  const std::span payload(tensor.data, static_cast<std::size_t>(tensor.n_bytes));
  if (payload.size() < kWholeBytes) return {payload};
  return {payload.first(kWindowBytes), payload.subspan(payload.size() / 2, kWindowBytes)};
}

void add_tensors(const Checkpoint& checkpoint, FieldHash& hash) {
  const auto tensors = checkpoint.sorted_tensors();
  for (const auto& [name, tensor] : tensors) {
    for (const std::span<const std::byte> part : samples(*tensor)) prefetch(part);
  }
  for (const auto& [name, tensor] : tensors) {
    hash.field("tensor", name);
    hash.field("dtype", dtype_name(tensor->dtype));
    hash.field("shape", tensor->shape);
    for (const std::span<const std::byte> part : samples(*tensor)) hash.field("bytes", part);
  }
}

Status add_file(const fs::path& path, std::string_view label, bool optional, FieldHash& hash) {
  const Result<MappedFile> file = MappedFile::open(path.string());
  if (optional && file.status().code() == StatusCode::kNotFound) return {};
  CAIRN_RETURN_IF_ERROR(file.status());
  hash.field(label, file->bytes());
  return {};
}

}  // namespace

Result<std::string> model_fingerprint(const std::string& folder, const Checkpoint& checkpoint,
                                      const std::string& extra) try {
  const fs::path root(folder);
  CAIRN_ASSIGN_OR_RETURN(const MappedFile config_file,
                         MappedFile::open((root / "config.json").string()));
  CAIRN_ASSIGN_OR_RETURN(const ModelConfig config,
                         parse_model_config(config_file.text(), /*unknown_keys=*/nullptr));
  FieldHash hash;
  hash.field("scheme", std::string_view("cairn model 1"));
  add_config(config, hash);
  add_tensors(checkpoint, hash);
  CAIRN_RETURN_IF_ERROR(add_file(root / "tokenizer.json", "tokenizer", false, hash));
  CAIRN_RETURN_IF_ERROR(add_file(root / "engram_tables.json", "engram_tables", true, hash));
  hash.field("extra", extra);
  return hash.finish();
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, folder + ": out of memory while hashing the model");
}

}  // namespace cairn::engine
