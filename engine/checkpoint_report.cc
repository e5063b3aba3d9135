// Implements cairn/checkpoint.h: the configuration decides what to expect, the headers tell what is
// there. Payload is never read.

#include <filesystem>
#include <system_error>

#include "cairn/checkpoint.h"
#include "engine/layer_plan.h"
#include "engine/mapped_file.h"
#include "engine/model_info.h"
#include "engine/weights_loader.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

LayerSummary summarise(const engine::ModelConfig& config, int layer) {
  const engine::LayerPlan& plan = config.plan[layer];
  LayerSummary summary;
  summary.layer = layer;
  summary.half = config.in_decoder(layer) ? "decoder" : "encoder";
  summary.ratio = plan.ratio;
  summary.mode = engine::layer_mode_name(plan.mode);
  summary.kv_source = plan.kv_source;
  summary.index_source = plan.index_source;
  summary.engram = plan.engram_slot >= 0;
  summary.writes_candidates = plan.writes_candidates;
  summary.uses_candidates = plan.uses_candidates;
  return summary;
}

CheckpointReport describe(const engine::ModelConfig& config) {
  CheckpointReport report;
  report.model = engine::describe_model(config);
  for (int layer = 0; layer < config.n_layers; ++layer) {
    report.layers.push_back(summarise(config, layer));
  }
  report.n_draft_stages = config.n_draft_stages;
  report.has_vision = config.has_vision;
  for (const engine::ExpectedTensor& tensor : engine::expected_tensors(config)) {
    ++report.tensors_expected;
    report.bytes_expected += engine::payload_bytes(tensor);
    report.parameters += engine::parameter_count(tensor);
  }
  return report;
}

void check_weights(const engine::ModelConfig& config, const std::string& folder,
                   CheckpointReport& report) {
  report.weights_checked = true;
  const Result<engine::Checkpoint> checkpoint = engine::Checkpoint::open_readable_part(folder);
  if (!checkpoint.ok()) {
    report.problems.emplace_back(checkpoint.status().message());
    return;
  }
  report.tensors_found = checkpoint->n_tensors();
  report.bytes_found = checkpoint->total_bytes();
  report.problems = engine::check_tensors(config, *checkpoint);
}

void check_tokenizer(const std::string& folder, CheckpointReport& report) {
  const std::string path = (fs::path(folder) / "tokenizer.json").string();
  const Result<engine::MappedFile> file = engine::MappedFile::open(path);
  if (!file.ok()) report.problems.emplace_back(file.status().message());
}

}  // namespace

Result<CheckpointReport> inspect_checkpoint(const std::string& path) {
  std::error_code ignored;  // a path that cannot be looked at fails to open just below
  const bool is_folder = fs::is_directory(path, ignored);
  const std::string config_path = is_folder ? (fs::path(path) / "config.json").string() : path;
  CAIRN_ASSIGN_OR_RETURN(const engine::MappedFile file, engine::MappedFile::open(config_path));
  const auto parsed = engine::parse_model_config(file.text(), /*unknown_keys=*/nullptr);
  if (!parsed.ok()) {
    const Status& status = parsed.status();
    return Status(status.code(), path + ": " + std::string(status.message()),
                  std::string(status.hint()));
  }
  const engine::ModelConfig& config = *parsed;
  CheckpointReport report = describe(config);
  if (is_folder) {
    check_weights(config, path, report);
    check_tokenizer(path, report);
  }
  return report;
}

}  // namespace cairn
