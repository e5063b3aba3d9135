#include "engine/model_info.h"

#include "engine/weights_loader.h"

namespace cairn::engine {
namespace {

// Record sizes of spec/architecture.md section 10.1: payload, then scales.
std::int64_t main_entry_bytes(const ModelConfig& c) {  // E2M1, one E4M3 scale per 16
  return c.head_dim / 2 + c.head_dim / 16;
}
std::int64_t index_entry_bytes(const ModelConfig& c) {  // E2M1, one E8M0 scale per 32
  return c.index_head_dim / 2 + c.index_head_dim / 32;
}
std::int64_t window_row_bytes(const ModelConfig& c) {  // E4M3, one E8M0 scale per 32
  return c.head_dim + c.head_dim / 32;
}

KvSourceInfo describe_source(const ModelConfig& config, int layer) {
  KvSourceInfo source;
  source.layer = layer;
  source.ratio = config.plan[layer].ratio;
  source.main_entry_bytes = main_entry_bytes(config);
  source.index_entry_bytes = index_entry_bytes(config);
  source.bytes_numerator = source.main_entry_bytes + source.index_entry_bytes;
  source.bytes_denominator = source.ratio;
  return source;
}

}  // namespace

ModelInfo describe_model(const ModelConfig& config) {
  ModelInfo info;
  info.architecture = config.architecture;
  info.n_layers = config.n_layers;
  info.n_encoder_layers = config.n_encoder_layers;
  info.vocab_size = config.vocab_size;
  info.max_context = config.max_positions;
  info.window = config.window;
  for (const int layer : config.kv_source_layers) {
    const KvSourceInfo source = describe_source(config, layer);
    // Exact: every ratio divides a block.
    info.global_kv_bytes_per_block +=
        source.bytes_numerator * (kBlockTokens / source.bytes_denominator);
    info.kv_sources.push_back(source);
  }
  info.global_kv_bytes_per_token =
      static_cast<double>(info.global_kv_bytes_per_block) / kBlockTokens;
  info.window_bytes = std::int64_t{config.n_layers} * config.window * window_row_bytes(config);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    info.weight_bytes += payload_bytes(tensor);
  }
  return info;
}

}  // namespace cairn::engine
