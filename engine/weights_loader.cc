// Opens the shards of a folder, compares what is there with tensor_inventory.cc's list, and binds
// views. Binding takes shapes from the file: they have been compared with the configuration before,
// so each shape is written down once, in the inventory.

#include "engine/weights_loader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "engine/directory_names.h"
#include "engine/shard_index.h"

namespace cairn::engine {
namespace {

namespace fs = std::filesystem;

// "layers.0..." of "model.layers.0...".
std::string_view stripped(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

// Names of *.safetensors in `folder`, ascending.
Result<std::vector<std::string>> list_shards(const std::string& folder) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> names, names_in(folder));
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".safetensors"); });
  if (names.empty()) {
    return Status(StatusCode::kNotFound, folder + ": no .safetensors files",
                  "give the folder of a checkpoint");
  }
  std::sort(names.begin(), names.end());
  return names;
}

// One line per difference between the index and the tensors of the opened files.
std::vector<std::string> compare_index(const ShardIndex& index, const Checkpoint& checkpoint) {
  std::vector<std::string> problems;
  const std::string prefix = std::string(kShardIndexName) + ": ";
  for (const SafetensorsFile& file : checkpoint.files()) {
    const std::string found = file_name(file.path());
    for (const TensorEntry& tensor : file.tensors()) {
      const auto listed = index.file_of.find(tensor.name);
      if (listed == index.file_of.end()) {
        problems.push_back(prefix + "tensor " + tensor.name + " of " + found + " is not listed");
      } else if (listed->second != found) {
        problems.push_back(prefix + "tensor " + tensor.name + ": expected in " + listed->second +
                           ", found in " + found);
      }
    }
  }
  for (const auto& [name, file] : index.file_of) {
    if (checkpoint.find(std::string(stripped(name))) == nullptr) {
      problems.push_back(prefix + "tensor " + name + ": expected in " + file + ", not found");
    }
  }
  if (index.total_size && *index.total_size != checkpoint.total_bytes()) {
    problems.push_back(prefix + "metadata.total_size is " + std::to_string(*index.total_size) +
                       " bytes, the shards hold " + std::to_string(checkpoint.total_bytes()));
  }
  return problems;
}

// Empty if `found` is what is expected.
std::string difference(const ExpectedTensor& expected, const TensorEntry* found) {
  const std::string wanted = describe(expected.dtype, expected.shape);
  if (found == nullptr) return "tensor " + expected.name + ": missing, expected " + wanted;
  if (found->dtype != expected.dtype || found->shape != expected.shape) {
    return "tensor " + expected.name + ": expected " + wanted + ", found " +
           describe(found->dtype, found->shape);
  }
  return {};
}

std::string misalignment(const std::string& name, const TensorEntry& found) {
  return "tensor " + name + ": its data is not aligned to " +
         std::to_string(dtype_bytes(found.dtype)) + " bytes for " +
         std::string(dtype_name(found.dtype));
}

// Fails if anything that text decoding needs is not as expected.
Status check_text_tensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::string first;
  std::int64_t n_wrong = 0;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    if (!expected.required_for_text) continue;
    const TensorEntry* const found = checkpoint.find(expected.name);
    std::string wrong = difference(expected, found);
    if (wrong.empty() && !found->aligned()) {
      return {StatusCode::kUnsupported, misalignment(expected.name, *found),
              "write the shard again with a data section at a multiple of 8"};
    }
    if (!wrong.empty() && n_wrong++ == 0) first = std::move(wrong);
  }
  if (n_wrong == 0) return {};
  return corrupt(first + (n_wrong > 1 ? "; " + std::to_string(n_wrong) + " tensors are wrong" : ""),
                 "fetch the checkpoint again, or check that config.json belongs to it");
}

// Drafts are an offer: a checkpoint that has not all of their tensors decodes without.
bool has_draft_tensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  if (config.n_draft_stages == 0) return false;
  const std::vector<ExpectedTensor> all = expected_tensors(config);
  return std::ranges::all_of(all, [&](const ExpectedTensor& expected) {
    if (!expected.name.starts_with("mtp.")) return true;
    const TensorEntry* const found = checkpoint.find(expected.name);
    return difference(expected, found).empty() && found->aligned();
  });
}

// Looks up tensors whose presence, type and shape have been checked.
class Binder {
 public:
  Binder(const ModelConfig& config, const TensorLookup& find) : config_(config), find_(find) {}

  Weights backbone() const {
    Weights weights;
    weights.embed = bf16("embed.weight");
    weights.head = bf16("head.weight");
    weights.norm = bf16("norm.weight");
    for (int layer = 0; layer < config_.n_layers; ++layer) {
      weights.layers.push_back(layer_weights(
          config_.plan[layer], "layers." + std::to_string(layer) + ".", config_.n_experts));
    }
    return weights;
  }

  DraftWeights drafts() const {
    DraftWeights draft;
    for (int stage = 0; stage < config_.n_draft_stages; ++stage) {
      const std::string prefix = "mtp." + std::to_string(stage) + ".";
      draft.stages.push_back(layer_weights({}, prefix, config_.draft_n_experts));
    }
    const std::string last = "mtp." + std::to_string(config_.n_draft_stages - 1) + ".";
    draft.main_proj = fp8("mtp.0.main_proj");
    draft.main_norm = bf16("mtp.0.main_norm.weight");
    draft.norm = bf16(last + "norm.weight");
    draft.markov_embed = bf16(last + "markov_head.embed.weight");
    draft.markov_head = bf16(last + "markov_head.head.weight");
    draft.confidence = bf16(last + "confidence_head.proj.weight");
    return draft;
  }

 private:
  const TensorEntry& entry(const std::string& name) const { return find_(name); }

  // Vectors are matrices of one row.
  static std::int64_t rows(const TensorEntry& t) { return t.shape.size() == 2 ? t.shape[0] : 1; }
  static std::int64_t cols(const TensorEntry& t) { return t.shape.back(); }
  const std::uint8_t* bytes(const std::string& name) const {
    return reinterpret_cast<const std::uint8_t*>(entry(name).data);
  }

  Bf16View bf16(const std::string& name) const {
    const TensorEntry& t = entry(name);
    return {reinterpret_cast<const kernels::Bf16*>(t.data), rows(t), cols(t)};
  }
  F32View f32(const std::string& name) const {
    const TensorEntry& t = entry(name);
    return {reinterpret_cast<const float*>(t.data), rows(t), cols(t)};
  }
  Fp8View fp8(const std::string& name) const {
    const TensorEntry& t = entry(name + ".weight");
    return {bytes(name + ".weight"), bytes(name + ".scale"), rows(t), cols(t)};
  }
  Fp8RowView fp8_rows(const std::string& name) const {
    const TensorEntry& t = entry(name + ".weight");
    return {bytes(name + ".weight"), bytes(name + ".scale"), rows(t), cols(t)};
  }
  Fp4View fp4(const std::string& name) const {
    const TensorEntry& t = entry(name + ".weight");
    return {bytes(name + ".weight"), bytes(name + ".scale"), rows(t), 2 * cols(t)};
  }

  LayerWeights layer_weights(const LayerPlan& plan, const std::string& prefix,
                             int n_experts) const {
    LayerWeights w;
    w.hc_attention = hyper_connection(prefix + "hc_attn_");
    w.hc_ffn = hyper_connection(prefix + "hc_ffn_");
    w.attention_norm = bf16(prefix + "attn_norm.weight");
    w.ffn_norm = bf16(prefix + "ffn_norm.weight");
    w.attention = attention(plan, prefix + "attn.");
    w.moe = moe(prefix + "ffn.", n_experts);
    if (plan.engram_slot >= 0) w.engram = engram(prefix + "engram.");
    return w;
  }
  HyperConnectionWeights hyper_connection(const std::string& prefix) const {
    return {.fn = f32(prefix + "fn"), .base = f32(prefix + "base"), .scale = f32(prefix + "scale")};
  }
  AttentionWeights attention(const LayerPlan& plan, const std::string& prefix) const {
    AttentionWeights w;
    w.wq_a = fp8(prefix + "wq_a");
    w.q_norm = bf16(prefix + "q_norm.weight");
    w.wq_b = fp8(prefix + "wq_b");
    w.wkv = fp8(prefix + "wkv");
    w.kv_norm = bf16(prefix + "kv_norm.weight");
    w.wo_a = fp8(prefix + "wo_a");
    w.wo_b = fp8(prefix + "wo_b");
    w.sink = f32(prefix + "attn_sink");
    const bool owns_keys = plan.mode == LayerMode::kFull;
    if (owns_keys) w.compressor = compressor(plan.ratio, prefix + "compressor.");
    if (owns_keys || plan.mode == LayerMode::kReindex) {
      w.indexer = indexer(owns_keys, prefix + "indexer.");
    }
    return w;
  }
  CompressorWeights compressor(int ratio, const std::string& prefix) const {
    CompressorWeights w;
    w.wkv = bf16(prefix + "wkv.weight");
    w.norm = bf16(prefix + "norm.weight");
    if (ratio > 1) w.wgate = bf16(prefix + "wgate.weight");
    return w;
  }
  IndexerWeights indexer(bool owns_keys, const std::string& prefix) const {
    IndexerWeights w;
    w.wq_b = fp8(prefix + "wq_b");
    w.weights_proj = bf16(prefix + "weights_proj.weight");
    if (owns_keys) {
      w.wk = bf16(prefix + "wk.weight");
      w.k_norm = bf16(prefix + "k_norm.weight");
    }
    return w;
  }
  MoeWeights moe(const std::string& prefix, int n_experts) const {
    MoeWeights w;
    w.gate = bf16(prefix + "gate.weight");
    w.bias = f32(prefix + "gate.bias");
    w.bias_image = f32(prefix + "gate.bias_vl");
    for (int expert = 0; expert < n_experts; ++expert) {
      const std::string name = prefix + "experts." + std::to_string(expert) + ".";
      w.experts.push_back({.w1 = fp4(name + "w1"), .w3 = fp4(name + "w3"), .w2 = fp4(name + "w2")});
    }
    const std::string shared = prefix + "shared_experts.";
    w.shared = {.w1 = fp8(shared + "w1"), .w3 = fp8(shared + "w3"), .w2 = fp8(shared + "w2")};
    return w;
  }
  EngramWeights engram(const std::string& prefix) const {
    return {.table = fp8_rows(prefix + "embed"),
            .wkv = fp8(prefix + "wkv"),
            .q_weight = bf16(prefix + "q_weight"),
            .k_weight = bf16(prefix + "k_weight")};
  }

  const ModelConfig& config_;
  const TensorLookup& find_;
};

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  return open_shards(folder, /*skip_broken=*/false);
}

Result<Checkpoint> Checkpoint::open_readable_part(const std::string& folder) {
  return open_shards(folder, /*skip_broken=*/true);
}

Result<Checkpoint> Checkpoint::open_shards(const std::string& folder, bool skip_broken) {
  Result<ShardIndex> index = read_shard_index((fs::path(folder) / kShardIndexName).string());
  if (!index.ok() && index.status().code() != StatusCode::kNotFound) return index.status();
  std::vector<std::string> names;
  if (index.ok()) {
    names = index->files();
  } else {
    CAIRN_ASSIGN_OR_RETURN(names, list_shards(folder));
  }

  Checkpoint checkpoint;
  for (const std::string& name : names) {
    const Status status = checkpoint.add_file((fs::path(folder) / name).string());
    if (status.ok()) continue;
    if (!skip_broken) return status;
    checkpoint.problems_.emplace_back(status.message());
  }
  if (index.ok()) {
    for (std::string& problem : compare_index(*index, checkpoint)) {
      checkpoint.problems_.push_back(std::move(problem));
    }
  }
  return checkpoint;
}

Status Checkpoint::add_file(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  // The entries live in the file's vector, whose memory a move keeps.
  files_.push_back(std::move(file));
  for (const TensorEntry& tensor : files_.back().tensors()) {
    if (!by_name_.emplace(stripped(tensor.name), &tensor).second) {
      return corrupt(path + ": tensor " + tensor.name +
                     " is there twice, in this or another shard");
    }
  }
  return {};
}

const TensorEntry* Checkpoint::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::int64_t Checkpoint::total_bytes() const {
  std::int64_t n = 0;
  for (const SafetensorsFile& file : files_) n += file.payload_bytes();
  return n;
}

std::int64_t Checkpoint::n_tensors() const { return static_cast<std::int64_t>(by_name_.size()); }

std::vector<std::pair<std::string_view, const TensorEntry*>> Checkpoint::sorted_tensors() const {
  std::vector<std::pair<std::string_view, const TensorEntry*>> sorted(by_name_.begin(),
                                                                      by_name_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

std::vector<std::string> check_tensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::vector<std::string> problems = checkpoint.problems();
  const std::vector<ExpectedTensor> all = expected_tensors(config);
  std::unordered_set<std::string_view> known;
  for (const ExpectedTensor& expected : all) {
    known.insert(expected.name);
    const TensorEntry* const found = checkpoint.find(expected.name);
    std::string wrong = difference(expected, found);
    if (wrong.empty() && !found->aligned()) wrong = misalignment(expected.name, *found);
    if (!wrong.empty()) problems.push_back(std::move(wrong));
  }
  for (const auto& [name, tensor] : checkpoint.sorted_tensors()) {
    if (known.contains(name)) continue;
    problems.push_back("tensor " + std::string(name) + ": not expected, found " +
                       describe(tensor->dtype, tensor->shape));
  }
  return problems;
}

Result<Weights> bind_weights(const ModelConfig& config, const Checkpoint& checkpoint) {
  CAIRN_RETURN_IF_ERROR(check_text_tensors(config, checkpoint));
  const TensorLookup find = [&](const std::string& name) -> const TensorEntry& {
    return *checkpoint.find(name);
  };
  return bind_tensors(config, has_draft_tensors(config, checkpoint), find);
}

Weights bind_tensors(const ModelConfig& config, bool with_drafts, const TensorLookup& find) {
  const Binder binder(config, find);
  Weights weights = binder.backbone();
  if (with_drafts) weights.draft = binder.drafts();
  return weights;
}

}  // namespace cairn::engine
