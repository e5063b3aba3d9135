// Tests engine/safetensors.cc and engine/mapped_file.cc.

#include "engine/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "tests/support/safetensors_text.h"
#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

using test::safetensors_file;
using test::TemporaryFolder;
using test::write_file;

// a: F32 [2, 2] = 1 2 3 4, empty: F32 [0, 3], b: BF16 [3], c: I64 scalar = 7; 30 bytes of data.
constexpr char kHeader[] = R"({"__metadata__":{"format":"pt","note":"caf\u00e9"},)"
                           R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                           R"("c":{"dtype":"I64","shape":[],"data_offsets":[22,30]},)"
                           R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]},)"
                           R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

std::string sample_data() {
  std::string data(30, '\0');
  const float values[] = {1, 2, 3, 4};
  std::memcpy(data.data(), values, sizeof values);
  data[22] = 7;
  return data;
}

class Safetensors : public testing::Test {
 protected:
  Result<SafetensorsFile> open(std::string_view bytes) {
    const std::string path = folder_ / "x.safetensors";
    write_file(path, bytes);
    return SafetensorsFile::open(path);
  }
  void expect_error(std::string_view bytes, StatusCode code, std::string_view part) {
    const Result<SafetensorsFile> file = open(bytes);
    ASSERT_FALSE(file.ok()) << part;
    EXPECT_EQ(file.status().code(), code) << file.status().to_string();
    EXPECT_NE(file.status().message().find(part), std::string_view::npos)
        << file.status().to_string() << "\nexpected: " << part;
    EXPECT_NE(file.status().message().find("x.safetensors"), std::string_view::npos);
  }
  void expect_bad_header(const std::string& header, std::string_view part) {
    expect_error(safetensors_file(header, sample_data()), StatusCode::kCorrupt, part);
  }

  TemporaryFolder folder_;
};

TEST_F(Safetensors, tensors_come_with_type_shape_and_bytes_in_file_order) {
  const Result<SafetensorsFile> file = open(safetensors_file(kHeader, sample_data()));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[1].name, "empty");
  EXPECT_EQ(file->tensors()[2].name, "b");
  EXPECT_EQ(file->tensors()[3].name, "c");
  EXPECT_EQ(file->payload_bytes(), 30);

  const TensorEntry* const a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(a->n_bytes, 16);
  EXPECT_TRUE(a->aligned());
  float last = 0;
  std::memcpy(&last, a->data + 12, sizeof last);
  EXPECT_EQ(last, 4.0f);
  EXPECT_EQ(std::to_integer<int>(*file->find("c")->data), 7);
  EXPECT_FALSE(file->find("c")->aligned());
  EXPECT_EQ(file->find("d"), nullptr);
  ASSERT_EQ(file->metadata().size(), 2u);
  EXPECT_EQ(file->metadata()[1].second, "caf\u00e9");
}

TEST_F(Safetensors, entries_stay_valid_when_the_file_object_moves) {
  Result<SafetensorsFile> file = open(safetensors_file(kHeader, sample_data()));
  ASSERT_TRUE(file.ok());
  const TensorEntry* const before = file->find("a");
  SafetensorsFile moved = std::move(*file);
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(moved));
  files.reserve(100);
  EXPECT_EQ(files[0].find("a"), before);
  EXPECT_EQ(before->name, "a");
  EXPECT_EQ(std::to_integer<int>(before->data[7]), 0x40);  // 2.0f
}

TEST_F(Safetensors, every_truncation_is_an_error) {
  const std::string whole = safetensors_file(kHeader, sample_data());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const Result<SafetensorsFile> file = open(std::string_view(whole).substr(0, n));
    ASSERT_FALSE(file.ok()) << n;
    EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << file.status().to_string();
  }
  expect_error("", StatusCode::kCorrupt, "truncated: 0 bytes");
  expect_error(whole.substr(0, 100), StatusCode::kCorrupt, "in a file of 100");
  expect_error(whole.substr(0, whole.size() - 1), StatusCode::kCorrupt,
               "tensor c: ends at byte 30 of a data section of 29");
}

TEST_F(Safetensors, trailing_bytes_gaps_and_overlaps_are_errors) {
  expect_error(safetensors_file(kHeader, sample_data() + "x"), StatusCode::kCorrupt,
               "data section has 31 bytes, its tensors end at 30");
  expect_error(safetensors_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                                "12345"),
               StatusCode::kCorrupt, "tensor b: begins at byte 3, expected 2: bytes between");
  expect_error(safetensors_file(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                R"("b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
                                "12345"),
               StatusCode::kCorrupt, "tensor b: begins at byte 2, expected 3: overlaps");
  expect_error(safetensors_file(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                R"("b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
                                "123"),
               StatusCode::kCorrupt, "overlaps");
  expect_error(safetensors_file("{}", "x"), StatusCode::kCorrupt, "data section has 1 bytes");
  EXPECT_TRUE(open(safetensors_file("{}", "")).ok());
}

TEST_F(Safetensors, sizes_have_to_follow_from_shapes) {
  expect_error(
      safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,6]}})", "123456"),
      StatusCode::kCorrupt, "tensor a: F32 [2] needs 8 bytes, data_offsets give 6");
  // 2^32 * 2^32 * 4 wraps to 0.
  expect_error(
      safetensors_file(
          R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
      StatusCode::kCorrupt, "needs more than 2^63 bytes");
  expect_error(safetensors_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[4,2]}})", "1234"),
               StatusCode::kCorrupt, "run backwards");
  expect_error(safetensors_file(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "1"),
               StatusCode::kUnsupported, "tensor a: unknown dtype \"F4\"");
}

TEST_F(Safetensors, header_of_another_shape_is_an_error) {
  expect_bad_header("", "not valid JSON");
  expect_bad_header("[]", "unexpected list");
  expect_bad_header("3", "unexpected number");
  expect_bad_header("null", "unexpected null");
  expect_bad_header("{", "not valid JSON");
  expect_bad_header("{} {}", "text after the JSON object");
  expect_bad_header(R"({"a":1})", "a: unexpected number");
  expect_bad_header(R"({"a":"x"})", "a: unexpected string");
  expect_bad_header(R"({"a":[]})", "a: unexpected list");
  expect_bad_header(R"({"a":{}})", "expected dtype, shape and data_offsets");
  expect_bad_header(R"({"a":{"dtype":"U8","shape":[]}})", "expected dtype, shape");
  expect_bad_header(R"({"a":{"dtype":"U8","dtype":"U8"}})", "a: dtype: repeated field");
  expect_bad_header(R"({"a":{"colour":1}})", "a: colour: unknown field");
  expect_bad_header(R"({"a":{"dtype":8}})", "a: dtype: unexpected number");
  expect_bad_header(R"({"a":{"dtype":{}}})", "unexpected object");
  expect_bad_header(R"({"a":{"shape":[-1]}})", "a: shape: unexpected number");
  expect_bad_header(R"({"a":{"shape":[1.5]}})", "a: shape: expected integers");
  expect_bad_header(R"({"a":{"shape":[18446744073709551615]}})", "a: shape: number too large");
  expect_bad_header(R"({"a":{"shape":[[1]]}})", "unexpected list");
  expect_bad_header(R"({"a":{"shape":["1"]}})", "unexpected string");
  expect_bad_header(R"({"a":{"shape":[true]}})", "unexpected value");
  expect_bad_header(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0]}})",
                    "expected two data_offsets");
  expect_bad_header(R"({"__metadata__":{"a":1}})", "a: unexpected number");
  expect_bad_header(R"({"__metadata__":{"a":{}}})", "unexpected object");
  expect_bad_header(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                    R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                    "a: appears twice");
  expect_bad_header("{\"\xff\":{}}", "not valid JSON");
}

TEST_F(Safetensors, header_length_beyond_the_limit_is_an_error) {
  std::string file = safetensors_file("{}", "");
  file[7] = '\x7f';
  expect_error(file, StatusCode::kCorrupt, "expected at most 100000000");
}

TEST_F(Safetensors, data_after_a_header_of_odd_length_is_found_but_not_aligned) {
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  if (header.size() % 2 == 0) header += ' ';
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  const Result<SafetensorsFile> result = open(file + header + "1234");
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(static_cast<char>(*result->find("a")->data), '1');
  EXPECT_FALSE(result->find("a")->aligned());
}

TEST_F(Safetensors, what_is_no_regular_file_is_an_error) {
  EXPECT_EQ(SafetensorsFile::open(folder_ / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::open(folder_.path().string()).status().code(), StatusCode::kIoError);
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::open(fifo).status().code(), StatusCode::kIoError);
}

// Every byte of length and header takes random values: an error or a file whose entries all lie
// inside the mapping.
TEST_F(Safetensors, random_damage_never_leads_outside_the_file) {
  const std::string good = safetensors_file(kHeader, sample_data());
  const std::size_t n_header = good.size() - sample_data().size();
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int flips = 1 + round % 3; flips > 0; --flips) {
      bad[random() % n_header] = static_cast<char>(round % 2 ? random() : '0' + random() % 10);
    }
    const Result<SafetensorsFile> file = open(bad);
    if (!file.ok()) continue;
    const std::span<const std::byte> bytes = file->file().bytes();
    for (const TensorEntry& tensor : file->tensors()) {
      ASSERT_GE(tensor.data, bytes.data());
      ASSERT_LE(tensor.data + tensor.n_bytes, bytes.data() + bytes.size());
    }
  }
}

TEST(SafetensorsGolden, every_golden_file_opens) {
  int n_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CAIRN_TEST_DATA)) {
    if (entry.path().extension() != ".safetensors") continue;
    const Result<SafetensorsFile> file = SafetensorsFile::open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_FALSE(file->tensors().empty());
    ++n_files;
  }
  EXPECT_GT(n_files, 10);
}

}  // namespace
}  // namespace cairn::engine
