// Runs the command-line program: exit codes, text and JSON of `cairn info`.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "tests/bindings/run_cairn.h"
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::contains;
using test::Outcome;
using test::run_cairn;

const std::string kReleased = std::string(CAIRN_TEST_DATA) + "/released/config.json";
const std::string kTinyA = std::string(CAIRN_SOURCE_DIR) + "/examples/models/tiny-a";

TEST(CliInfo, released_configuration_is_described) {
  const Outcome outcome = run_cairn("info '" + kReleased + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_TRUE(contains(outcome, "40: 20 encoder, 20 decoder"));
  EXPECT_TRUE(contains(outcome, "96,085 tensors, 510,286,023,000 bytes (475.24 GiB)"));
  EXPECT_TRUE(contains(outcome, "763,205,315,794"));
  EXPECT_TRUE(contains(outcome, "   25-27  decoder  reuse "));
  EXPECT_TRUE(contains(outcome, "2,703,360 bytes of sliding windows"));
  EXPECT_TRUE(contains(outcome, "  890\n"));
}

TEST(CliInfo, json_is_one_object_with_everything) {
  const Outcome outcome = run_cairn("info --json '" + kTinyA + "'");
  EXPECT_EQ(outcome.exit_code, 0);
  json::error_code error;
  const json::value root = json::parse(outcome.text, error);
  ASSERT_FALSE(error) << outcome.text;
  EXPECT_EQ(root.at("tensors_found").as_int64(), 1149);
  EXPECT_EQ(root.at("layers").as_array().size(), 12u);
  EXPECT_EQ(root.at("layers").at(6).at("mode").as_string(), "full");
  EXPECT_EQ(root.at("global_kv_bytes_per_token").to_number<double>(), 140.0);
  EXPECT_TRUE(root.at("problems").as_array().empty());
}

TEST(CliInfo, problems_give_exit_code_one_and_stay_printable) {
  test::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(kTinyA)) {
    fs::copy_file(entry.path(), folder.path() / entry.path().filename());
  }
  const std::string shard = folder / "model-00001-of-00002.safetensors";
  std::string bytes = test::read_file(shard);
  bytes.replace(bytes.find("\"embed.weight\""), 14, "\"\\u001b[2Jddd\"");
  test::write_file(shard, bytes);

  const Outcome text = run_cairn("info '" + folder.path().string() + "'");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_TRUE(contains(text, "tensor embed.weight: missing, expected BF16 [512, 128]"));
  EXPECT_EQ(text.text.find('\x1b'), std::string::npos);

  const Outcome as_json = run_cairn("info --json '" + folder.path().string() + "'");
  EXPECT_EQ(as_json.exit_code, 1);
  json::error_code error;
  const json::value root = json::parse(as_json.text, error);
  ASSERT_FALSE(error) << as_json.text;
  EXPECT_GE(root.at("problems").as_array().size(), 2u);
}

TEST(CliInfo, long_problem_lists_are_cut_in_text_only) {
  test::TemporaryFolder folder;
  for (const char* name : {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"}) {
    fs::copy_file(kTinyA + "/" + name, folder / name);
  }
  const Outcome text = run_cairn("info '" + folder.path().string() + "'");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_TRUE(contains(text, "more; --json lists all"));
}

TEST(CliInfo, what_cannot_be_read_gives_exit_code_two) {
  EXPECT_EQ(run_cairn("info /does/not/exist").exit_code, 2);
  const Outcome flat = run_cairn("info '" + kTinyA + "/inference_config.json'");
  EXPECT_EQ(flat.exit_code, 2);
  EXPECT_TRUE(contains(flat, "UNSUPPORTED"));
  EXPECT_EQ(run_cairn("info").exit_code, 2);
  EXPECT_EQ(run_cairn("").exit_code, 2);
  EXPECT_EQ(run_cairn("frobnicate").exit_code, 2);
  EXPECT_EQ(run_cairn("--version").exit_code, 0);
  EXPECT_EQ(run_cairn("info --help").exit_code, 0);
}

}  // namespace
}  // namespace cairn
