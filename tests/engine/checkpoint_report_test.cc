// Tests engine/checkpoint_report.cc and engine/model_info.cc against the published sizes.

#include <gtest/gtest.h>

#include <filesystem>

#include "cairn/checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

const std::string kReleased = std::string(CAIRN_TEST_DATA) + "/released/config.json";
const std::string kTinyA = std::string(CAIRN_SOURCE_DIR) + "/examples/models/tiny-a";

// spec/architecture.md section 10, spec/checkpoint.md.
TEST(CheckpointReport, released_configuration_gives_the_published_sizes) {
  const Result<CheckpointReport> report = inspect_checkpoint(kReleased);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const ModelInfo& model = report->model;
  EXPECT_EQ(model.global_kv_bytes_per_token, 890.0);
  EXPECT_EQ(model.global_kv_bytes_per_block, 113'920);
  EXPECT_EQ(model.window_bytes, 2'703'360);
  EXPECT_EQ(model.weight_bytes, 510'286'023'000);
  EXPECT_EQ(model.n_layers, 40);
  EXPECT_EQ(model.n_encoder_layers, 20);
  EXPECT_EQ(model.max_context, 1'048'576);
  EXPECT_TRUE(model.fingerprint.empty());
  ASSERT_EQ(model.kv_sources.size(), 4u);
  for (const KvSourceInfo& source : model.kv_sources) {
    EXPECT_EQ(source.main_entry_bytes, 288);
    EXPECT_EQ(source.index_entry_bytes, 68);
    EXPECT_EQ(source.bytes_numerator, 356);
    EXPECT_EQ(source.bytes_denominator, source.ratio);
    EXPECT_EQ(source.ratio, source.layer == 20 ? 1 : 2);
  }
  EXPECT_EQ(report->tensors_expected, 96'085);
  EXPECT_EQ(report->bytes_expected, 510'286'023'000);
  EXPECT_EQ(report->parameters, 763'205'315'794);
  EXPECT_EQ(report->n_draft_stages, 3);
  EXPECT_TRUE(report->has_vision);
  EXPECT_FALSE(report->weights_checked);
  EXPECT_TRUE(report->problems.empty());
  ASSERT_EQ(report->layers.size(), 40u);
  EXPECT_EQ(report->layers[24].mode, "reindex");
  EXPECT_EQ(report->layers[24].half, "decoder");
  EXPECT_TRUE(report->layers[24].uses_candidates);
  EXPECT_EQ(report->layers[24].kv_source, 20);
  EXPECT_TRUE(report->layers[14].engram);
}

TEST(CheckpointReport, whole_checkpoint_has_no_problems) {
  const Result<CheckpointReport> report = inspect_checkpoint(kTinyA);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->weights_checked);
  EXPECT_TRUE(report->problems.empty()) << report->problems.front();
  EXPECT_EQ(report->tensors_found, report->tensors_expected);
  EXPECT_EQ(report->bytes_found, report->bytes_expected);
}

TEST(CheckpointReport, incomplete_folder_is_a_report_and_not_an_error) {
  test::TemporaryFolder folder;
  fs::copy_file(kTinyA + "/config.json", folder / "config.json");
  const Result<CheckpointReport> report = inspect_checkpoint(folder.path().string());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->weights_checked);
  EXPECT_EQ(report->tensors_found, 0);
  ASSERT_EQ(report->problems.size(), 2u);
  EXPECT_NE(report->problems[0].find("no .safetensors files"), std::string::npos);
  EXPECT_NE(report->problems[1].find("tokenizer.json"), std::string::npos);
}

TEST(CheckpointReport, unreadable_or_foreign_configuration_is_an_error) {
  test::TemporaryFolder folder;
  EXPECT_EQ(inspect_checkpoint(folder.path().string()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(inspect_checkpoint(folder / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(inspect_checkpoint("").status().code(), StatusCode::kNotFound);
  test::write_file(folder / "config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  const Status status = inspect_checkpoint(folder.path().string()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("LlamaForCausalLM"), std::string_view::npos);
}

}  // namespace
}  // namespace cairn
