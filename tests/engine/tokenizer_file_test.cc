#include "engine/tokenizer_file.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>

#include "engine/byte_alphabet.h"
#include "engine/tokenizer.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;

// The smallest whole tokenizer: every byte, three merges, one added token.
json::object small_file() {
  json::object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[byte_spelling(static_cast<std::uint8_t>(byte))] = byte;
  }
  vocabulary["ab"] = 256;
  vocabulary["bc"] = 257;
  vocabulary["abc"] = 258;
  return {
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", {{{"id", 300}, {"content", "<x>"}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"b c", "a b", "a bc"}}}}};
}

using Change = std::function<void(json::object& root)>;

Result<Tokenizer> parse_changed(const Change& change) {
  json::object root = small_file();
  change(root);
  return Tokenizer::parse(json::serialize(root), "some/tokenizer.json");
}

json::object& model(json::object& root) { return root["model"].as_object(); }

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode_text(text, ids);
  return ids;
}

TEST(TokenizerFile, merges_apply_by_rank_and_leftmost_first) {
  const auto tokenizer = parse_changed([](json::object&) {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(*tokenizer, "abc"), (std::vector<TokenId>{258}));
  EXPECT_EQ(encode(*tokenizer, "abab"), (std::vector<TokenId>{256, 256}));
  EXPECT_EQ(encode(*tokenizer, "ababc"), (std::vector<TokenId>{256, 258}));
  EXPECT_EQ(tokenizer->size(), 301);
}

// An entry that merging does not reach is a token only where the file says to ignore merges.
TEST(TokenizerFile, whole_pieces_are_taken_only_if_merging_agrees) {
  const auto without_last = [](json::object& root) { model(root)["merges"] = {"b c", "a b"}; };
  const auto by_merges = parse_changed(without_last);
  ASSERT_TRUE(by_merges.ok()) << by_merges.status().message();
  EXPECT_EQ(encode(*by_merges, "abc"), (std::vector<TokenId>{'a', 257}));
  const auto by_entries = parse_changed([&](json::object& root) {
    without_last(root);
    model(root)["ignore_merges"] = true;
  });
  ASSERT_TRUE(by_entries.ok()) << by_entries.status().message();
  EXPECT_EQ(encode(*by_entries, "abc"), (std::vector<TokenId>{258}));
}

TEST(TokenizerFile, merges_may_be_pairs) {
  const auto tokenizer = parse_changed([](json::object& root) {
    model(root)["merges"] = json::array{json::array{"a", "b"}, json::array{"b", "c"}};
  });
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(*tokenizer, "abc"), (std::vector<TokenId>{256, 'c'}));
}

TEST(TokenizerFile, idle_components_are_accepted) {
  const auto tokenizer = parse_changed([](json::object& root) {
    root["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
    root["post_processor"] = {{"type", "ByteLevel"}};
    root.erase("decoder");
    model(root)["dropout"] = nullptr;
    model(root)["byte_fallback"] = false;
    model(root)["end_of_word_suffix"] = "";
    model(root)["unk_token"] = nullptr;
  });
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
}

json::object byte_level_step() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

json::object split_step() {
  return {{"type", "Split"},
          {"pattern", {{"Regex", "\\s+"}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Change with_steps(json::array steps) {
  return [steps](json::object& root) {
    root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  };
}

Change with_split(std::string_view key, json::value value) {
  json::object split = split_step();
  split[key] = std::move(value);
  return with_steps({split, byte_level_step()});
}

Change with_model(std::string_view key, json::value value) {
  return [key, value](json::object& root) { model(root)[key] = value; };
}

Change with_entry(std::string_view spelling, json::value id) {
  return [spelling, id](json::object& root) { model(root)["vocab"].as_object()[spelling] = id; };
}

Change with_added(json::object token) {
  return [token](json::object& root) { root["added_tokens"].as_array().push_back(token); };
}

struct Refusal {
  Change change;
  StatusCode code;
  const char* names;  // what the message must name
};

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    const auto result = parse_changed(refusal.change);
    ASSERT_FALSE(result.ok()) << refusal.names;
    EXPECT_EQ(result.status().code(), refusal.code) << result.status().message();
    EXPECT_NE(result.status().message().find(refusal.names), std::string_view::npos)
        << refusal.names << " in: " << result.status().message();
    EXPECT_TRUE(result.status().message().starts_with("some/tokenizer.json: "));
  }
}

TEST(TokenizerFile, other_kinds_of_tokenizers_are_unsupported_and_named) {
  constexpr auto kCode = StatusCode::kUnsupported;
  const auto top = [](std::string_view key, json::value value) -> Change {
    return [key, value](json::object& root) { root[key] = value; };
  };
  const auto flagged = [](std::string_view flag) {
    json::object token{{"id", 301}, {"content", "<y>"}};
    token[flag] = true;
    return with_added(token);
  };
  expect_refusals({
      {top("normalizer", {{"type", "NFC"}}), kCode, "normalizer"},
      {top("pre_tokenizer", {{"type", "Whitespace"}}), kCode, "pre_tokenizer.type"},
      {top("pre_tokenizer", {{"type", "ByteLevel"}}), kCode, "pre_tokenizer.add_prefix_space"},
      {top("decoder", {{"type", "Metaspace"}}), kCode, "decoder.type"},
      {with_steps({split_step(), split_step()}), kCode, "pretokenizers[1].type"},
      {with_steps({{{"type", "Digits"}}, byte_level_step()}), kCode, "pretokenizers[0].type"},
      {with_split("behavior", "Removed"), kCode, "pretokenizers[0].behavior"},
      {with_split("invert", true), kCode, "pretokenizers[0].invert"},
      {with_split("pattern", {{"String", " "}}), kCode, "pretokenizers[0].pattern"},
      {with_split("pattern", {{"Regex", "\\w+"}}), kCode, "\\w"},
      {with_model("type", "Unigram"), kCode, "model.type"},
      {with_model("dropout", 0.1), kCode, "model.dropout"},
      {with_model("byte_fallback", true), kCode, "model.byte_fallback"},
      {with_model("continuing_subword_prefix", "##"), kCode, "model.continuing_subword_prefix"},
      {with_model("end_of_word_suffix", "</w>"), kCode, "model.end_of_word_suffix"},
      {flagged("lstrip"), kCode, "added_tokens[1].lstrip"},
      {flagged("rstrip"), kCode, "added_tokens[1].rstrip"},
      {flagged("single_word"), kCode, "added_tokens[1].single_word"},
      {with_added({{"id", 258}, {"content", "abc"}}), kCode, "id 258"},
      {with_added({{"id", 97}, {"content", "a"}}), kCode, "id 97"},
      {[](json::object& root) { model(root)["vocab"].as_object().erase("z"); }, kCode, "byte 122"},
  });
}

TEST(TokenizerFile, malformed_files_are_corrupt_and_say_where) {
  constexpr auto kCode = StatusCode::kCorrupt;
  const auto without = [](std::string_view key) -> Change {
    return [key](json::object& root) { root.erase(key); };
  };
  expect_refusals({
      {without("pre_tokenizer"), kCode, "pre_tokenizer"},
      {without("model"), kCode, "model"},
      {with_steps({}), kCode, "pretokenizers"},
      {with_steps({7}), kCode, "pretokenizers[0]"},
      {with_split("behavior", 1), kCode, "behavior"},
      {with_split("pattern", {{"Regex", 1}}), kCode, "pattern.Regex"},
      {with_model("vocab", json::array()), kCode, "model.vocab"},
      {with_model("merges", "a b"), kCode, "model.merges"},
      {with_model("merges", {"a b", "ab"}), kCode, "model.merges[1]"},
      {with_model("merges", {"a b c"}), kCode, "model.merges[0]"},
      {with_model("merges", json::array{json::array{"a", "b", "c"}}), kCode, "model.merges[0]"},
      {with_model("merges", json::array{json::array{"a", 1}}), kCode, "model.merges[0]"},
      {with_model("merges", {"a b", "a c"}), kCode, "model.merges[1]: the result 'ac'"},
      {with_model("merges", {"zz a"}), kCode, "'zz'"},
      {with_model("merges", {"a zz"}), kCode, "'zz'"},
      {with_model("merges", {"a b", "a b"}), kCode, "listed twice"},
      {with_model("ignore_merges", 1), kCode, "model.ignore_merges"},
      {with_entry("ab", 255), kCode, "id 255"},
      {with_entry("ab", -1), kCode, "id -1"},
      {with_entry("ab", std::int64_t{1} << 40), kCode, "id 1099511627776"},
      {with_entry("ab", "256"), kCode, "entry 'ab'"},
      {with_added({{"id", 300}, {"content", "<y>"}}), kCode, "id 300"},
      {with_added({{"id", 301}, {"content", "<x>"}}), kCode, "'<x>' is listed twice"},
      {with_added({{"id", 258}, {"content", "<y>"}}), kCode, "id 258"},
      {with_added({{"id", 301}, {"content", "abc"}}), kCode, "'abc'"},
      {with_added({{"id", 301}, {"content", ""}}), kCode, "added_tokens[1].content"},
      {with_added({{"content", "<y>"}}), kCode, "added_tokens[1].id"},
      {with_added({{"id", 1.5}, {"content", "<y>"}}), kCode, "added_tokens[1].id"},
  });
}

TEST(TokenizerFile, every_truncation_is_an_error) {
  const std::string text = json::serialize(small_file());
  for (std::size_t n = 0; n < text.size(); n += 7) {
    const auto result = Tokenizer::parse(std::string_view(text).substr(0, n), "cut");
    ASSERT_FALSE(result.ok()) << n;
    EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
  }
  EXPECT_FALSE(Tokenizer::parse("[]", "array").ok());
  EXPECT_FALSE(Tokenizer::parse(std::string(1000, '['), "deep").ok());
}

TEST(ByteAlphabet, is_gpt2s) {
  EXPECT_EQ(byte_spelling('a'), "a");
  EXPECT_EQ(byte_spelling(' '), "Ġ");
  EXPECT_EQ(byte_spelling('\n'), "Ċ");
  EXPECT_EQ(byte_spelling(0), "Ā");
  EXPECT_EQ(byte_spelling(173), "\u0143");
  std::string all, spelled;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
    spelled += byte_spelling(static_cast<std::uint8_t>(byte));
  }
  EXPECT_EQ(bytes_of_spelling(spelled), all);
}

TEST(ByteAlphabet, other_characters_stand_for_nothing) {
  for (const char* spelling : {"a b", "\u0144", "\u00AD", "\uFF5C", "\n"}) {
    EXPECT_FALSE(bytes_of_spelling(spelling).has_value()) << spelling;
  }
}

}  // namespace
}  // namespace cairn::engine
