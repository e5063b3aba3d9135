#include "engine/engram_tables.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/released_tokenizer.h"

namespace cairn::engine {
namespace {

using cairn::tests::read_file;
using cairn::tests::released_tokenizer;
using cairn::tests::toy_tokenizer;
namespace json = boost::json;

using Numbers = std::vector<std::uint64_t>;

const std::string kTinyA = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
const std::string kTinyB = CAIRN_TEST_DATA "/tiny-b/model";

ModelConfig released_config() {
  ModelConfig config;
  config.vocab_size = 129280;
  config.engram_layers = {1, 14};
  config.engram_rows = {384006168, 384016682};
  config.engram_max_ngram = 4;
  config.engram_n_heads = 8;
  config.engram_prime_start = 16000000;
  config.engram_n_classes = 99092;
  config.engram_pad_id = 2;
  return config;
}

ModelConfig tiny_a_config() {
  ModelConfig config = released_config();
  config.vocab_size = 512;
  config.engram_layers = {1, 4};
  config.engram_rows = {630, 834};
  config.engram_n_heads = 2;
  config.engram_prime_start = 97;
  config.engram_n_classes = 324;
  return config;
}

ModelConfig tiny_b_config() {
  ModelConfig config = tiny_a_config();
  config.engram_rows = {272, 348};
  config.engram_max_ngram = 3;
  config.engram_prime_start = 61;
  return config;
}

// A checkpoint folder that a test fills; removed at the end.
class Folder {
 public:
  Folder() {
    path_ =
        std::filesystem::temp_directory_path() / ("engram_tables_test." + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write_tables(const json::value& tables) const {
    std::ofstream(path_ / "engram_tables.json") << json::serialize(tables);
  }
  void write_text(const std::string& text) const {
    std::ofstream(path_ / "engram_tables.json") << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void flatten(const json::value& value, Numbers& out) {
  if (value.is_array()) {
    for (const auto& item : value.as_array()) flatten(item, out);
  } else if (value.is_string()) {
    out.push_back(std::stoull(std::string(value.as_string())));
  } else {
    out.push_back(value.to_number<std::uint64_t>());
  }
}

Numbers flat(const json::value& value) {
  Numbers out;
  flatten(value, out);
  return out;
}

void expect_equals_file(const EngramTables& tables, const json::value& file) {
  EXPECT_EQ(Numbers(tables.classes.begin(), tables.classes.end()), flat(file.at("token_map")));
  ASSERT_EQ(tables.layers.size(), file.at("primes").as_array().size());
  for (std::size_t i = 0; i < tables.layers.size(); ++i) {
    EXPECT_EQ(tables.layers[i].primes, flat(file.at("primes").at(i)));
    EXPECT_EQ(tables.layers[i].offsets, flat(file.at("offsets").at(i)));
    EXPECT_EQ(tables.layers[i].multipliers, flat(file.at("multipliers").at(i)));
  }
}

void expect_failure(const ModelConfig& config, const Tokenizer& tokenizer,
                    const std::string& folder, StatusCode code, std::string_view words) {
  const auto tables = make_engram_tables(config, tokenizer, folder);
  ASSERT_FALSE(tables.ok()) << words;
  EXPECT_EQ(tables.status().code(), code) << tables.status().to_string();
  EXPECT_NE(tables.status().message().find(words), std::string_view::npos)
      << tables.status().to_string();
}

TEST(EngramTables, toy_checkpoints_are_derived_exactly) {
  const Folder without_file;
  const auto a = make_engram_tables(tiny_a_config(), *toy_tokenizer(), without_file.path());
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  expect_equals_file(*a, json::parse(read_file(kTinyA + "/engram_tables.json")));
  const auto b = make_engram_tables(tiny_b_config(), *toy_tokenizer(), without_file.path());
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  expect_equals_file(*b, json::parse(read_file(kTinyB + "/engram_tables.json")));
}

TEST(EngramTables, toy_checkpoints_load_with_their_files) {
  const auto a = make_engram_tables(tiny_a_config(), *toy_tokenizer(), kTinyA);
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  expect_equals_file(*a, json::parse(read_file(kTinyA + "/engram_tables.json")));
  const auto b = make_engram_tables(tiny_b_config(), *toy_tokenizer(), kTinyB);
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  expect_equals_file(*b, json::parse(read_file(kTinyB + "/engram_tables.json")));
}

TEST(EngramTables, released_constants_are_derived_exactly) {
  const auto tables = make_engram_tables(released_config(), *released_tokenizer(), "/nonexistent");
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  const auto golden = json::parse(read_file(CAIRN_TEST_DATA "/unit/golden_engram.json"));
  for (const std::size_t i : {0u, 1u}) {
    const char* layer = i == 0 ? "1" : "14";
    EXPECT_EQ(tables->layers[i].primes, flat(golden.at("primes").at(layer)));
    EXPECT_EQ(tables->layers[i].multipliers, flat(golden.at("multipliers").at(layer)));
  }
  EXPECT_EQ(tables->layers[0].offsets.back(), 368005705u);
  EXPECT_EQ(tables->layers[1].offsets.back(), 368015793u);
  EXPECT_EQ(tables->pad_class, json::value_to<std::int32_t>(golden.at("pad_class")));
  const std::string digest = json::value_to<std::string>(golden.at("token_map_sha256"));
  EXPECT_EQ(engram_classes_digest(tables->classes), digest);
  EXPECT_EQ(kReleasedEngramClassesDigest, digest);
}

TEST(EngramTables, released_classes_equal_the_published_map) {
  const auto classes = build_engram_classes(*released_tokenizer(), 129280);
  const std::string published = read_file(CAIRN_TEST_DATA "/tokenizer/dsv41_token_map.i32le");
  ASSERT_EQ(published.size(), classes.size() * 4);
  for (std::size_t id = 0; id < classes.size(); ++id) {
    std::uint32_t expected = 0;
    for (std::size_t i = 4; i-- > 0;) {
      expected = expected << 8 | static_cast<std::uint8_t>(published[4 * id + i]);
    }
    ASSERT_EQ(static_cast<std::uint32_t>(classes[id]), expected)
        << id << " " << released_tokenizer()->spelling(static_cast<TokenId>(id));
  }
  std::map<std::int32_t, int> n_members;
  for (const std::int32_t value : classes) ++n_members[value];
  EXPECT_EQ(n_members.size(), 99092u);
  EXPECT_EQ(std::count_if(n_members.begin(), n_members.end(), [](auto& m) { return m.second > 1; }),
            15502);
  EXPECT_EQ(n_members[174], 163);
  EXPECT_EQ(n_members[237], 9);
}

TEST(EngramTables, golden_sequences_have_their_classes) {
  const auto classes = build_engram_classes(*released_tokenizer(), 129280);
  const auto golden = json::parse(read_file(CAIRN_TEST_DATA "/unit/golden_engram.json"));
  ASSERT_GE(golden.at("cases").as_array().size(), 5u);
  for (const auto& item : golden.at("cases").as_array()) {
    const auto ids = json::value_to<std::vector<TokenId>>(item.at("token_ids"));
    const auto expected = json::value_to<std::vector<std::int32_t>>(item.at("class_ids"));
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (expected[t] < 0) continue;  // a position of an image
      EXPECT_EQ(classes[static_cast<std::size_t>(ids[t])], expected[t]);
    }
  }
}

TEST(EngramTables, ids_without_a_token_share_the_class_of_empty_text) {
  const auto classes = build_engram_classes(*toy_tokenizer(), 520);
  ASSERT_EQ(classes.size(), 520u);
  EXPECT_EQ(classes[512], 324);
  for (std::size_t id = 513; id < 520; ++id) EXPECT_EQ(classes[id], classes[512]);
}

TEST(EngramNormalisation, follows_the_steps_of_the_specification) {
  const struct {
    const char* text;
    const char* key;
  } cases[] = {
      {" The", "the"},
      {"TH\u00C9", "the"},               // a mark composed
      {"the\u0301\u20DD", "the"},        // Mn and Me
      {"\u0915\u093E", "\u0915"},        // Mc
      {"\uFB01\uFF21", "fia"},           // compatibility: a ligature, full width
      {"\u0130", "i"},                   // its full lower case is a letter and a mark
      {"\u03A3\u03A3", "\u03C3\u03C3"},  // no final sigma
      {" \t\r\n ", " "},                 // a lone blank survives stripping
      {"\u00A0", " "},                   // by compatibility a space
      {"\u2028", ""},                    // white space, but not one of the four blanks
      {"a \t b\n", "a b"},
      {" \u0301", " "},
      {"\u0301", ""},
      {"\u2003x\u2029", "x"},
      {"\x1C", "\x1C"},  // not White_Space
      {"\uE000", " "},
      {"", ""},
  };
  for (const auto& item : cases) EXPECT_EQ(normalise_for_engram(item.text), item.key) << item.text;
  EXPECT_EQ(normalise_for_engram(std::string_view("A\0B", 3)), std::string("a\0b", 3));
  // One character that decomposes into eighteen.
  EXPECT_EQ(normalise_for_engram("\uFDFA").find("\u0635\u0644\u0649"), 0u);
}

TEST(EngramTables, another_tokenizer_is_refused_for_the_released_checkpoint) {
  const std::string text =
      cairn::tests::decompressed(read_file(CAIRN_TEST_DATA "/tokenizer/tokenizer.json.zst"));
  auto root = json::parse(text).as_object();
  for (auto& token : root["added_tokens"].as_array()) {
    auto& content = token.as_object()["content"];
    if (content == "<think>") content = "</THINK>";
  }
  const auto tokenizer = Tokenizer::parse(json::serialize(root), "changed");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  // "</THINK>" falls into the class of "</think>".
  expect_failure(released_config(), *tokenizer, "/nonexistent", StatusCode::kCorrupt,
                 "99091 token classes");
}

TEST(EngramTables, a_map_of_the_right_size_with_another_digest_is_refused) {
  auto classes = build_engram_classes(*released_tokenizer(), 129280);
  std::swap(classes[128800], classes[128801]);
  const Folder folder;
  folder.write_tables(json::value{{"token_map", json::value_from(classes)}});
  expect_failure(released_config(), *released_tokenizer(), folder.path(), StatusCode::kCorrupt,
                 "not the checkpoint's");
}

TEST(EngramTables, the_file_replaces_map_and_multipliers) {
  auto file = json::parse(read_file(kTinyA + "/engram_tables.json"));
  auto& map = file.as_object()["token_map"].as_array();
  std::swap(map[5], map[6]);
  file.as_object()["multipliers"].as_array()[1].as_array()[2] = "12345678901234567";
  const Folder folder;
  folder.write_tables(file);
  const auto tables = make_engram_tables(tiny_a_config(), *toy_tokenizer(), folder.path());
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  expect_equals_file(*tables, file);
  EXPECT_EQ(tables->layers[1].multipliers[2], 12345678901234567u);
}

TEST(EngramTables, a_file_that_contradicts_the_configuration_is_refused) {
  const auto original = json::parse(read_file(kTinyA + "/engram_tables.json"));
  const Folder folder;
  const auto expect_refused = [&](std::string_view words, auto change) {
    auto file = original.as_object();
    change(file);
    folder.write_tables(file);
    expect_failure(tiny_a_config(), *toy_tokenizer(), folder.path(), StatusCode::kCorrupt, words);
  };
  expect_refused("token_map", [](auto& f) { f["token_map"].as_array().pop_back(); });
  expect_refused("token_map", [](auto& f) { f["token_map"].as_array()[9] = 324; });
  expect_refused("token_map", [](auto& f) { f["token_map"].as_array()[9] = -1; });
  expect_refused("token_map", [](auto& f) { f["token_map"] = "x"; });
  expect_refused("compressed_vocab_size", [](auto& f) { f["compressed_vocab_size"] = 325; });
  expect_refused("pad_id", [](auto& f) { f["pad_id"] = 3; });
  expect_refused("primes[0]",
                 [](auto& f) { f["primes"].as_array()[0].as_array()[0].as_array()[0] = 89; });
  expect_refused("offsets[1]", [](auto& f) { f["offsets"].as_array()[1].as_array()[1] = 1; });
  expect_refused("multipliers", [](auto& f) { f["multipliers"].as_array().pop_back(); });
  const auto set_multiplier = [](const char* text) {
    return [text](auto& f) { f["multipliers"].as_array()[0].as_array()[0] = text; };
  };
  expect_refused("multipliers", set_multiplier("2"));                     // even
  expect_refused("multipliers", set_multiplier("28467197644614739"));     // overflows
  expect_refused("multipliers", set_multiplier("99999999999999999999"));  // beyond 64 bits
  expect_refused("multipliers", set_multiplier("-1"));
  expect_refused("multipliers", set_multiplier("3x"));
  folder.write_text("{\"token_map\": [");
  expect_failure(tiny_a_config(), *toy_tokenizer(), folder.path(), StatusCode::kCorrupt, "JSON");
  folder.write_text("[]");
  expect_failure(tiny_a_config(), *toy_tokenizer(), folder.path(), StatusCode::kCorrupt, "object");
}

TEST(EngramTables, table_rows_must_be_the_sum_of_the_primes) {
  ModelConfig config = tiny_a_config();
  config.engram_rows[1] = 835;
  expect_failure(config, *toy_tokenizer(), kTinyA, StatusCode::kCorrupt,
                 "rows of the table of layer 4");
}

TEST(EngramTables, class_count_must_be_the_configured_one) {
  ModelConfig config = tiny_a_config();
  config.engram_n_classes = 325;
  expect_failure(config, *toy_tokenizer(), "/nonexistent", StatusCode::kCorrupt,
                 "324 token classes");
}

TEST(EngramTables, sizes_out_of_range_are_refused_at_once) {
  const auto expect_refused = [](std::string_view key, auto change) {
    ModelConfig config = tiny_a_config();
    change(config);
    expect_failure(config, *toy_tokenizer(), "/nonexistent", StatusCode::kUnsupported, key);
  };
  expect_refused("engram_vocab_size", [](auto& c) { c.engram_prime_start = 1; });
  expect_refused("engram_vocab_size", [](auto& c) { c.engram_prime_start = INT64_MAX; });
  expect_refused("engram_max_ngram_size", [](auto& c) { c.engram_max_ngram = 1; });
  expect_refused("engram_n_heads", [](auto& c) { c.engram_n_heads = 0; });
  expect_refused("engram_compressed_vocab_size", [](auto& c) { c.engram_n_classes = 0; });
  expect_refused("engram_pad_token_id", [](auto& c) { c.engram_pad_id = 512; });
}

TEST(EngramTables, a_model_without_engram_has_empty_tables) {
  const auto tables = make_engram_tables(ModelConfig{}, *toy_tokenizer(), "/nonexistent");
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  EXPECT_TRUE(tables->layers.empty());
  EXPECT_TRUE(tables->classes.empty());
}

}  // namespace
}  // namespace cairn::engine
