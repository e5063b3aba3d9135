// Tests engine/weights_loader.cc, engine/tensor_inventory.cc, engine/shard_index.cc and
// engine/model_fingerprint.cc.

#include "engine/weights_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "tests/support/config_text.h"
#include "tests/support/safetensors_text.h"
#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::ConfigText;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

const std::string kTinyA = std::string(CAIRN_SOURCE_DIR) + "/examples/models/tiny-a";
const std::string kTinyB = std::string(CAIRN_TEST_DATA) + "/tiny-b/model";
constexpr char kShard1[] = "model-00001-of-00002.safetensors";
constexpr char kShard2[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

ModelConfig config_of(const std::string& folder) {
  Result<ModelConfig> config = parse_model_config(read_file(folder + "/config.json"), nullptr);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? std::move(*config) : ModelConfig();
}

ModelConfig released_config() { return config_of(std::string(CAIRN_TEST_DATA) + "/released"); }

bool any_contains(const std::vector<std::string>& lines, std::string_view part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

// A copy of tiny-a whose files a test may damage.
class TinyCopy : public testing::Test {
 protected:
  TinyCopy() {
    for (const auto& entry : fs::directory_iterator(kTinyA)) {
      fs::copy_file(entry.path(), folder_.path() / entry.path().filename());
    }
  }
  std::string folder() const { return folder_.path().string(); }
  std::vector<std::string> problems() const {
    const Result<Checkpoint> checkpoint = Checkpoint::open_readable_part(folder());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    if (!checkpoint.ok()) return {};
    return check_tensors(config_of(kTinyA), *checkpoint);
  }
  Status bind() const {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder());
    CAIRN_RETURN_IF_ERROR(checkpoint.status());
    return bind_weights(config_of(kTinyA), *checkpoint).status();
  }
  // Replaces text in a shard's header; both texts have the same length.
  void edit_header(const std::string& shard, std::string_view from, std::string_view to) {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = read_file(folder_ / shard);
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    write_file(folder_ / shard, bytes);
  }
  // Drops index and shards and writes one shard with this header and data instead.
  void replace_shards(const std::string& header, std::string_view data) {
    fs::remove(folder_ / kIndex);
    fs::remove(folder_ / kShard1);
    fs::remove(folder_ / kShard2);
    write_file(folder_ / "model.safetensors", test::safetensors_file(header, data));
  }

  TemporaryFolder folder_;
};

// The tables of spec/checkpoint.md.
TEST(TensorInventory, released_configuration_gives_the_released_totals) {
  std::map<DType, std::int64_t> bytes;
  std::map<std::string, int> per_layer;
  std::int64_t total = 0, parameters = 0, tables = 0, draft = 0, draft_bytes = 0;
  const std::vector<ExpectedTensor> tensors = expected_tensors(released_config());
  for (const ExpectedTensor& tensor : tensors) {
    bytes[tensor.dtype] += payload_bytes(tensor);
    total += payload_bytes(tensor);
    parameters += parameter_count(tensor);
    if (tensor.name.find("engram.embed") != std::string::npos) tables += parameter_count(tensor);
    if (tensor.name.starts_with("mtp.")) {
      draft += parameter_count(tensor);
      draft_bytes += payload_bytes(tensor);
      EXPECT_FALSE(tensor.required_for_text);
    }
    const std::size_t dot = tensor.name.find('.', tensor.name.find('.') + 1);
    ++per_layer[tensor.name.substr(0, dot)];
  }
  EXPECT_EQ(tensors.size(), 96'085u);
  EXPECT_EQ(total, 510'286'023'000);
  EXPECT_EQ(bytes[DType::kI8], 278'585'671'680);
  EXPECT_EQ(bytes[DType::kF8E4M3], 204'015'223'296);
  EXPECT_EQ(bytes[DType::kF8E8M0], 23'563'015'184);
  EXPECT_EQ(bytes[DType::kBf16], 3'952'883'712);
  EXPECT_EQ(bytes[DType::kF32], 169'229'128);
  EXPECT_EQ(parameters, 763'205'315'794);
  EXPECT_EQ(tables, 196'613'849'600);
  EXPECT_EQ(draft_bytes, 7'932'874'632);
  EXPECT_NEAR(static_cast<double>(draft) / 1e9, 14.2, 0.05);
  EXPECT_NEAR(static_cast<double>(parameters - tables - draft) / 1e9, 552.4, 0.05);

  EXPECT_EQ(per_layer["layers.0"], 2334);
  EXPECT_EQ(per_layer["layers.1"], 2340);
  EXPECT_EQ(per_layer["layers.2"], 2342);
  EXPECT_EQ(per_layer["layers.14"], 2348);
  EXPECT_EQ(per_layer["layers.19"], 2334);
  EXPECT_EQ(per_layer["layers.20"], 2341);
  EXPECT_EQ(per_layer["layers.36"], 2337);
  EXPECT_EQ(per_layer["layers.39"], 2334);
  EXPECT_EQ(per_layer["mtp.0"], 798 + 3);
  EXPECT_EQ(per_layer["mtp.1"], 798);
  EXPECT_EQ(per_layer["mtp.2"], 798 + 4);
}

TEST(TensorInventory, names_are_unique) {
  std::set<std::string> names;
  for (const ExpectedTensor& tensor : expected_tensors(released_config())) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
  }
}

TEST(WeightsLoader, golden_checkpoints_bind_without_problems) {
  for (const std::string& folder : {kTinyA, kTinyB}) {
    const ModelConfig config = config_of(folder);
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    const std::vector<std::string> problems = check_tensors(config, *checkpoint);
    EXPECT_TRUE(problems.empty()) << problems.front();
    EXPECT_EQ(checkpoint->n_tensors(), static_cast<std::int64_t>(expected_tensors(config).size()));
    const Result<Weights> weights = bind_weights(config, *checkpoint);
    ASSERT_TRUE(weights.ok()) << weights.status().to_string();
    EXPECT_EQ(weights->layers.size(), static_cast<std::size_t>(config.n_layers));
  }
}

TEST(WeightsLoader, views_have_the_shapes_of_the_header_contracts) {
  const ModelConfig c = config_of(kTinyB);
  const Result<Checkpoint> checkpoint = Checkpoint::open(kTinyB);
  ASSERT_TRUE(checkpoint.ok());
  const Result<Weights> weights = bind_weights(c, *checkpoint);
  ASSERT_TRUE(weights.ok());
  const auto expect_shape = [](const auto& view, std::int64_t rows, std::int64_t cols) {
    EXPECT_EQ(view.rows, rows);
    EXPECT_EQ(view.cols, cols);
  };
  expect_shape(weights->embed, c.vocab_size, c.dim);
  expect_shape(weights->norm, 1, c.dim);

  const LayerWeights& full = weights->layers[4];  // ratio 2, with Engram
  expect_shape(full.hc_ffn.fn, c.hc_mult * (2 + c.hc_mult), c.hc_mult * c.dim);
  expect_shape(full.hc_ffn.scale, 1, 3);
  expect_shape(full.attention.wo_a, c.o_groups * c.o_rank, c.n_heads * c.head_dim / c.o_groups);
  expect_shape(full.attention.sink, 1, c.n_heads);
  expect_shape(full.attention.compressor.wgate, c.head_dim, c.dim);
  expect_shape(full.attention.indexer.wk, c.index_head_dim, c.head_dim);
  expect_shape(full.engram.table, c.engram_rows[1], c.engram_head_dim);
  expect_shape(full.engram.wkv, (c.hc_mult + 1) * c.dim, c.engram_columns() * c.engram_head_dim);
  expect_shape(full.engram.q_weight, c.hc_mult, c.dim);
  ASSERT_EQ(full.moe.experts.size(), static_cast<std::size_t>(c.n_experts));
  expect_shape(full.moe.experts[5].w1, c.expert_dim, c.dim);
  expect_shape(full.moe.experts[5].w2, c.dim, c.expert_dim);
  expect_shape(full.moe.shared.w2, c.dim, c.expert_dim);
  expect_shape(full.moe.bias_image, 1, c.n_experts);

  const LayerWeights& ratio1 = weights->layers[6];
  EXPECT_NE(ratio1.attention.compressor.wkv.data, nullptr);
  EXPECT_EQ(ratio1.attention.compressor.wgate.data, nullptr);
  const LayerWeights& reindex = weights->layers[8];
  EXPECT_NE(reindex.attention.indexer.wq_b.codes, nullptr);
  EXPECT_EQ(reindex.attention.indexer.wk.data, nullptr);
  EXPECT_EQ(reindex.attention.compressor.wkv.data, nullptr);
  const LayerWeights& reuse = weights->layers[9];
  EXPECT_EQ(reuse.attention.indexer.wq_b.codes, nullptr);
  EXPECT_EQ(reuse.engram.table.codes, nullptr);
}

TEST(WeightsLoader, every_view_points_at_the_tensor_of_its_name) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(kTinyA);
  ASSERT_TRUE(checkpoint.ok());
  const Result<Weights> weights = bind_weights(config_of(kTinyA), *checkpoint);
  ASSERT_TRUE(weights.ok());
  const auto address = [&](const std::string& name) -> const void* {
    return checkpoint->find(name)->data;
  };
  const LayerWeights& w = weights->layers[4];
  EXPECT_EQ(w.moe.experts[3].w3.codes, address("layers.4.ffn.experts.3.w3.weight"));
  EXPECT_EQ(w.moe.experts[3].w3.scales, address("layers.4.ffn.experts.3.w3.scale"));
  EXPECT_EQ(w.moe.experts[3].w2.codes, address("layers.4.ffn.experts.3.w2.weight"));
  EXPECT_EQ(w.moe.shared.w1.codes, address("layers.4.ffn.shared_experts.w1.weight"));
  EXPECT_EQ(w.moe.shared.w3.codes, address("layers.4.ffn.shared_experts.w3.weight"));
  EXPECT_EQ(w.moe.bias.data, address("layers.4.ffn.gate.bias"));
  EXPECT_EQ(w.moe.bias_image.data, address("layers.4.ffn.gate.bias_vl"));
  EXPECT_EQ(w.hc_attention.base.data, address("layers.4.hc_attn_base"));
  EXPECT_EQ(w.hc_ffn.base.data, address("layers.4.hc_ffn_base"));
  EXPECT_EQ(w.attention.wq_a.scales, address("layers.4.attn.wq_a.scale"));
  EXPECT_EQ(w.attention.indexer.wq_b.codes, address("layers.4.attn.indexer.wq_b.weight"));
  EXPECT_EQ(w.attention.compressor.norm.data, address("layers.4.attn.compressor.norm.weight"));
  EXPECT_EQ(w.engram.k_weight.data, address("layers.4.engram.k_weight"));
  EXPECT_EQ(w.engram.table.scales, address("layers.4.engram.embed.scale"));
  EXPECT_EQ(w.attention_norm.data, address("layers.4.attn_norm.weight"));
  EXPECT_EQ(w.ffn_norm.data, address("layers.4.ffn_norm.weight"));
}

TEST_F(TinyCopy, folder_without_index_is_read_by_file_names) {
  fs::remove(folder_ / kIndex);
  EXPECT_TRUE(problems().empty());
  EXPECT_TRUE(bind().ok());
}

TEST_F(TinyCopy, leading_model_in_names_is_stripped) {
  fs::remove(folder_ / kIndex);
  for (const char* shard : {kShard1, kShard2}) {
    const std::string bytes = read_file(folder_ / shard);
    std::uint64_t n = 0;
    std::memcpy(&n, bytes.data(), 8);
    json::object renamed;
    const json::value header = json::parse(bytes.substr(8, n));
    for (const auto& item : header.as_object()) {
      const std::string name(item.key());
      renamed[name == "__metadata__" ? name : "model." + name] = item.value();
    }
    write_file(folder_ / shard,
               test::safetensors_file(json::serialize(renamed), bytes.substr(8 + n)));
  }
  EXPECT_TRUE(problems().empty());
  EXPECT_TRUE(bind().ok());
}

TEST_F(TinyCopy, missing_shard_is_named_and_does_not_hide_the_others) {
  fs::remove(folder_ / kShard2);
  const Status status = Checkpoint::open(folder()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find(kShard2), std::string_view::npos);
  const std::vector<std::string> lines = problems();
  EXPECT_TRUE(any_contains(lines, std::string(kShard2) + ": open: No such file"));
  EXPECT_TRUE(any_contains(lines, "tensor norm.weight: missing, expected BF16 [128]"));
  EXPECT_TRUE(any_contains(lines, "metadata.total_size is 5200192 bytes, the shards hold"));
  EXPECT_FALSE(any_contains(lines, "tensor embed.weight"));
}

TEST_F(TinyCopy, truncated_shard_is_corrupt) {
  const std::string bytes = read_file(folder_ / kShard1);
  write_file(folder_ / kShard1, std::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_EQ(Checkpoint::open(folder()).status().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(any_contains(problems(), "file truncated"));
}

TEST_F(TinyCopy, folder_without_shards_is_not_found) {
  fs::remove(folder_ / kIndex);
  fs::remove(folder_ / kShard1);
  fs::remove(folder_ / kShard2);
  EXPECT_EQ(Checkpoint::open(folder()).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(Checkpoint::open(folder_ / "absent").ok());
}

TEST_F(TinyCopy, wrong_type_names_tensor_expected_and_found) {
  edit_header(kShard1, R"("embed.weight": {"dtype": "BF16")",
              R"("embed.weight": {"dtype": "I16" )");
  EXPECT_TRUE(any_contains(problems(),
                           "tensor embed.weight: expected BF16 [512, 128], found I16 [512, 128]"));
  const Status status = bind();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("embed.weight: expected BF16 [512, 128], found I16"),
            std::string_view::npos);
}

TEST_F(TinyCopy, wrong_shape_names_tensor_expected_and_found) {
  edit_header(kShard1, R"("embed.weight": {"dtype": "BF16", "shape": [512, 128])",
              R"("embed.weight": {"dtype": "BF16", "shape": [128, 512])");
  EXPECT_TRUE(any_contains(problems(),
                           "tensor embed.weight: expected BF16 [512, 128], found BF16 [128, 512]"));
  EXPECT_EQ(bind().code(), StatusCode::kCorrupt);
}

TEST_F(TinyCopy, missing_and_unexpected_tensors_are_both_reported) {
  edit_header(kShard1, R"("layers.0.attn.wkv.scale")", R"("layers.0.attn.wkx.scale")");
  const std::vector<std::string> lines = problems();
  EXPECT_TRUE(any_contains(lines, "tensor layers.0.attn.wkv.scale: missing, expected F8_E8M0"));
  EXPECT_TRUE(any_contains(lines, "tensor layers.0.attn.wkx.scale: not expected, found F8_E8M0"));
  EXPECT_TRUE(any_contains(lines, "tensor layers.0.attn.wkx.scale of model-00001"));
  EXPECT_EQ(bind().code(), StatusCode::kCorrupt);
}

TEST_F(TinyCopy, bind_counts_all_wrong_tensors_in_its_message) {
  replace_shards(R"({"norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", "xx");
  const Status status = bind();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  int n_text = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config_of(kTinyA))) {
    n_text += tensor.required_for_text ? 1 : 0;
  }
  EXPECT_NE(status.message().find(std::to_string(n_text) + " tensors are wrong"),
            std::string_view::npos)
      << status.to_string();
}

TEST_F(TinyCopy, text_binds_without_draft_tensors) {
  for (const char* shard : {kShard1, kShard2}) {
    const std::string bytes = read_file(folder_ / shard);
    std::string renamed = bytes;
    for (std::size_t at = 0; (at = renamed.find("\"mtp.", at)) != std::string::npos; ++at) {
      renamed.replace(at, 5, "\"xtp.");
    }
    write_file(folder_ / shard, renamed);
  }
  EXPECT_FALSE(problems().empty());
  EXPECT_TRUE(bind().ok()) << bind().to_string();
}

TEST_F(TinyCopy, misaligned_tensor_is_refused_by_name) {
  const std::string bytes = read_file(folder_ / kShard1);
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  // One more space after the header puts every tensor at an odd address.
  const std::uint64_t longer = n + 1;
  std::string moved(reinterpret_cast<const char*>(&longer), 8);
  moved.append(bytes, 8, n).push_back(' ');
  moved.append(bytes, 8 + n);
  write_file(folder_ / kShard1, moved);
  const Status status = bind();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.to_string();
  EXPECT_NE(status.message().find("tensor embed.weight: its data is not aligned to 2 bytes"),
            std::string_view::npos);
  EXPECT_TRUE(any_contains(problems(), "is not aligned"));
}

TEST_F(TinyCopy, one_tensor_in_two_shards_is_corrupt) {
  fs::remove(folder_ / kIndex);
  fs::copy_file(folder_ / kShard1, folder_ / "extra.safetensors");
  const Status status = Checkpoint::open(folder()).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("is there twice"), std::string_view::npos);

  TemporaryFolder other;
  write_file(other / "a.safetensors",
             test::safetensors_file(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                    R"("model.x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                    "ab"));
  EXPECT_EQ(Checkpoint::open(other.path().string()).status().code(), StatusCode::kCorrupt);
}

TEST_F(TinyCopy, index_that_disagrees_with_the_shards_is_reported) {
  json::value index = json::parse(read_file(folder_ / kIndex));
  json::object& map = index.as_object()["weight_map"].as_object();
  map["embed.weight"] = kShard2;
  map.erase("norm.weight");
  map["ghost"] = kShard1;
  index.as_object()["metadata"].as_object()["total_size"] = 5;
  write_file(folder_ / kIndex, json::serialize(index));
  const std::vector<std::string> lines = problems();
  EXPECT_EQ(lines.size(), 4u);
  EXPECT_TRUE(any_contains(
      lines, std::string("tensor embed.weight: expected in ") + kShard2 + ", found in " + kShard1));
  EXPECT_TRUE(any_contains(lines, std::string("tensor norm.weight of ") + kShard2));
  EXPECT_TRUE(any_contains(lines, std::string("tensor ghost: expected in ") + kShard1));
  EXPECT_TRUE(any_contains(lines, "metadata.total_size is 5 bytes, the shards hold 5200192"));
}

TEST_F(TinyCopy, malformed_index_is_corrupt) {
  for (const std::string_view text :
       {"", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": {\"a\": \"../secret.safetensors\"}}",
        "{\"weight_map\": {\"a\": \"/etc/passwd\"}}",
        "{\"weight_map\": {}, \"metadata\": {\"total_size\": \"big\"}}"}) {
    write_file(folder_ / kIndex, text);
    EXPECT_EQ(Checkpoint::open(folder()).status().code(), StatusCode::kCorrupt) << text;
  }
}

class Fingerprint : public TinyCopy {
 protected:
  std::string of(const std::string& folder, const std::string& extra = "kv 1") {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    const Result<std::string> result = model_fingerprint(folder, *checkpoint, extra);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *result : "";
  }
  void flip_byte(const std::string& file, std::size_t at) {
    std::string bytes = read_file(folder_ / file);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file(folder_ / file, bytes);
  }
};

TEST_F(Fingerprint, does_not_depend_on_names_places_or_spelling) {
  const std::string original = of(kTinyA);
  EXPECT_EQ(original.size(), 64u);
  EXPECT_EQ(of(folder()), original);
  // Other key order and white space in config.json, other shard names, no index.
  json::value config = json::parse(read_file(folder_ / "config.json"));
  json::object reversed;
  for (const auto& item : config.as_object()) {
    json::object copy;
    copy[item.key()] = item.value();
    for (const auto& earlier : reversed) copy[earlier.key()] = earlier.value();
    reversed = std::move(copy);
  }
  write_file(folder_ / "config.json", json::serialize(reversed));
  fs::remove(folder_ / kIndex);
  fs::rename(folder_ / kShard1, folder_ / "z.safetensors");
  EXPECT_EQ(of(folder()), original);
}

TEST_F(Fingerprint, changes_with_everything_that_decides_a_kv_cache) {
  std::set<std::string> seen = {of(folder())};
  EXPECT_TRUE(seen.insert(of(folder(), "kv 2")).second);
  EXPECT_TRUE(seen.insert(of(kTinyB)).second);
  flip_byte(kShard2, fs::file_size(folder_ / kShard2) - 1);
  EXPECT_TRUE(seen.insert(of(folder())).second) << "payload";
  flip_byte("tokenizer.json", 100);
  EXPECT_TRUE(seen.insert(of(folder())).second) << "tokenizer";
  flip_byte("engram_tables.json", 100);
  EXPECT_TRUE(seen.insert(of(folder())).second) << "engram tables";
  fs::remove(folder_ / "engram_tables.json");
  EXPECT_TRUE(seen.insert(of(folder())).second) << "no engram tables";
  ConfigText config(folder_ / "config.json");
  write_file(folder_ / "config.json",
             config.set("/text_config/routed_scaling_factor", 1.25).text());
  EXPECT_TRUE(seen.insert(of(folder())).second) << "configuration";
}

TEST_F(Fingerprint, needs_configuration_and_tokenizer) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint.ok());
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_EQ(model_fingerprint(folder(), *checkpoint, "").status().code(), StatusCode::kNotFound);
  fs::remove(folder_ / "config.json");
  EXPECT_EQ(model_fingerprint(folder(), *checkpoint, "").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn::engine
