#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/utf8.h"
#include "tests/support/released_tokenizer.h"

namespace cairn::engine {
namespace {

using cairn::tests::read_file;
using Ids = std::vector<TokenId>;

// A program without its vocabularies has nothing to test; the null dereference ends it.
const Tokenizer& released_tokenizer() { return *cairn::tests::released_tokenizer(); }
const Tokenizer& toy_tokenizer() { return *cairn::tests::toy_tokenizer(); }

Ids encode_text(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode_text(text, ids);
  return ids;
}

Ids encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode_with_added_tokens(text, ids);
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.bytes(id);
  return text;
}

boost::json::value read_json(const std::string& path) {
  return boost::json::parse(read_file(path));
}

Ids ids_of(const boost::json::value& value) { return boost::json::value_to<Ids>(value); }

std::string string_of(const boost::json::value& value) {
  return boost::json::value_to<std::string>(value);
}

TEST(Tokenizer, released_vocabulary_reproduces_the_golden_texts) {
  const auto cases = read_json(CAIRN_TEST_DATA "/tokenizer/golden_tokens.json");
  ASSERT_GE(cases.as_array().size(), 20u);
  for (const auto& item : cases.as_array()) {
    const std::string text = string_of(item.at("text"));
    EXPECT_EQ(encode_prompt(released_tokenizer(), text), ids_of(item.at("ids"))) << text;
  }
}

TEST(Tokenizer, released_vocabulary_reproduces_the_golden_prompts) {
  const auto cases = read_json(CAIRN_TEST_DATA "/prompts/golden_prompts.json");
  ASSERT_GE(cases.as_array().size(), 10u);
  for (const auto& item : cases.as_array()) {
    EXPECT_EQ(encode_prompt(released_tokenizer(), string_of(item.at("prompt"))),
              ids_of(item.at("token_ids")))
        << string_of(item.at("title"));
  }
}

TEST(Tokenizer, released_vocabulary_reproduces_the_specification) {
  const struct {
    const char* text;
    Ids ids;
  } cases[] = {
      {"The capital of France is", {671, 6102, 294, 8760, 344}},
      {"東京タワー2026年", {66771, 11767, 37560, 4045, 939, 24, 695}},
      {"<｜DSML｜ calls>\n", {30, 128825, 10699, 1018}},
      {"</｜DSML｜ calls>", {1718, 128825, 10699, 32}},
      {"<tool_result>", {30, 72461, 46148, 32}},
      {"</tool_result>", {1718, 72461, 46148, 32}},
  };
  for (const auto& item : cases) {
    EXPECT_EQ(encode_prompt(released_tokenizer(), item.text), item.ids) << item.text;
  }
}

TEST(Tokenizer, released_vocabulary_has_the_added_tokens_of_the_table) {
  const Tokenizer& tokenizer = released_tokenizer();
  EXPECT_EQ(tokenizer.size(), 129280);
  std::ifstream table(CAIRN_TEST_DATA "/tokenizer/dsv41_added_tokens.tsv");
  int n_added = 0;
  for (std::string line; std::getline(table, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == line.npos || line.find_first_not_of("0123456789") != tab) continue;
    const TokenId id = std::stoi(line);
    const std::string spelling = line.substr(tab + 1, line.find('\t', tab + 1) - tab - 1);
    EXPECT_EQ(tokenizer.spelling(id), spelling);
    EXPECT_EQ(tokenizer.bytes(id), spelling);
    EXPECT_EQ(tokenizer.added_token(spelling), id);
    EXPECT_TRUE(tokenizer.is_added(id));
    EXPECT_EQ(encode_prompt(tokenizer, spelling), Ids{id});
    ++n_added;
  }
  EXPECT_EQ(n_added, 1283);
  for (const TokenId id : {3, 671, 127999}) EXPECT_FALSE(tokenizer.is_added(id));
}

TEST(Tokenizer, user_text_never_matches_added_tokens) {
  for (const Tokenizer* tokenizer : {&released_tokenizer(), &toy_tokenizer()}) {
    for (TokenId added = 0; added < tokenizer->size(); ++added) {
      if (!tokenizer->is_added(added)) continue;
      const std::string text(tokenizer->spelling(added));
      const Ids ids = encode_text(*tokenizer, text);
      for (const TokenId id : ids) ASSERT_FALSE(tokenizer->is_added(id)) << text;
      ASSERT_EQ(decode(*tokenizer, ids), text);
    }
  }
}

TEST(Tokenizer, longest_added_token_wins_and_the_leftmost_comes_first) {
  auto root = read_json(CAIRN_SOURCE_DIR "/examples/models/tiny-a/tokenizer.json").as_object();
  auto& added = root["added_tokens"].as_array();
  const auto add = [&](std::string_view spelling, int id) {
    auto token = added[0].as_object();
    token["content"] = spelling;
    token["id"] = id;
    added.push_back(token);
  };
  add("<a>", 600);
  add("<a><b>", 601);
  add("><b>c", 602);
  add("<a><b>cdX", 603);
  auto tokenizer = Tokenizer::parse(boost::json::serialize(root), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode_prompt(*tokenizer, "<a><b>"), (Ids{601}));
  EXPECT_EQ(encode_prompt(*tokenizer, "<a><a><b><a>"), (Ids{600, 601, 600}));
  Ids expected{601};
  tokenizer->encode_text("cdY", expected);
  EXPECT_EQ(encode_prompt(*tokenizer, "<a><b>cdY"), expected);
  EXPECT_EQ(encode_prompt(*tokenizer, "<a><b>cdX"), (Ids{603}));
  EXPECT_EQ(tokenizer->size(), 604);
  EXPECT_TRUE(tokenizer->bytes(550).empty());  // a hole
  EXPECT_FALSE(tokenizer->is_added(550));
}

TEST(Tokenizer, ids_out_of_range_have_no_text) {
  const Tokenizer& tokenizer = toy_tokenizer();
  for (const TokenId id : {-1, tokenizer.size(), 1 << 30}) {
    EXPECT_TRUE(tokenizer.bytes(id).empty());
    EXPECT_TRUE(tokenizer.spelling(id).empty());
    EXPECT_FALSE(tokenizer.is_added(id));
  }
  EXPECT_FALSE(tokenizer.added_token("").has_value());
  EXPECT_FALSE(tokenizer.added_token("<think").has_value());
}

// Decoding an encoding gives the text back, whatever the bytes.
TEST(Tokenizer, decoding_inverts_encoding_of_any_bytes) {
  std::mt19937 random(20250711);
  SCOPED_TRACE("seed 20250711");
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = draw(60); i > 0; --i) {
      switch (draw(6)) {
        case 0:
          text.push_back(static_cast<char>(draw(256)));
          break;
        case 1:
          text.push_back(" \t\r\n"[draw(4)]);
          break;
        case 2:
          append_utf8(static_cast<char32_t>(draw(0xD800)), text);
          break;
        case 3:
          append_utf8(static_cast<char32_t>(0xE000 + draw(0x110000 - 0xE000)), text);
          break;
        case 4:
          text.push_back(static_cast<char>('0' + draw(10)));
          break;
        default:
          text.push_back(static_cast<char>('a' + draw(26)));
          break;
      }
    }
    for (const Tokenizer* tokenizer : {&released_tokenizer(), &toy_tokenizer()}) {
      ASSERT_EQ(decode(*tokenizer, encode_text(*tokenizer, text)), text) << "round " << round;
      ASSERT_EQ(decode(*tokenizer, encode_prompt(*tokenizer, text)), text) << "round " << round;
    }
  }
}

TEST(Tokenizer, invalid_bytes_are_one_token_each) {
  const Tokenizer& tokenizer = released_tokenizer();
  const Ids ids = encode_text(tokenizer, "\xE6\x9D\xFF");  // a cut character and a stray byte
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer.bytes(ids[0]), "\xE6");
  EXPECT_EQ(tokenizer.bytes(ids[1]), "\x9D");
  EXPECT_EQ(tokenizer.bytes(ids[2]), "\xFF");
}

// Segments between added tokens may be encoded on their own.
TEST(Tokenizer, added_tokens_are_hard_boundaries) {
  const Tokenizer& tokenizer = released_tokenizer();
  Ids expected{128803};
  tokenizer.encode_text(" a  ", expected);
  expected.push_back(128804);
  tokenizer.encode_text("\n\nb", expected);
  EXPECT_EQ(encode_prompt(tokenizer, "<｜User｜> a  <｜Assistant｜>\n\nb"), expected);
}

// Pieces a megabyte long lose no bytes, and a merge that were quadratic would not end before the
// program's time limit.
TEST(Tokenizer, long_runs_keep_every_byte) {
  const std::size_t n = 1 << 20;
  for (const std::string& text : {std::string(n, 'a'), std::string(n, ' ') + "x"}) {
    ASSERT_TRUE(decode(released_tokenizer(), encode_text(released_tokenizer(), text)) == text);
  }
  for (const char byte : {'\n', '!', '7', '<', ' ', '\x01', '\xFF'}) {
    const std::string text(1 << 16, byte);
    for (const Tokenizer* tokenizer : {&released_tokenizer(), &toy_tokenizer()}) {
      ASSERT_TRUE(decode(*tokenizer, encode_prompt(*tokenizer, text)) == text);
    }
  }
}

TEST(Tokenizer, almost_every_base_token_of_the_release_encodes_to_itself) {
  const Tokenizer& tokenizer = released_tokenizer();
  int n_whole = 0;
  for (TokenId id = 3; id < 128000; ++id) {
    const Ids ids = encode_text(tokenizer, tokenizer.bytes(id));
    ASSERT_EQ(decode(tokenizer, ids), tokenizer.bytes(id));
    n_whole += ids == Ids{id} ? 1 : 0;
  }
  EXPECT_GT(n_whole, 120000);  // the others contain a piece boundary
}

TEST(Tokenizer, const_methods_may_run_on_several_threads) {
  const std::string text = read_file(CAIRN_SOURCE_DIR "/engine/tokenizer.h");
  const Ids expected = encode_text(released_tokenizer(), text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] { result = encode_text(released_tokenizer(), text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, toy_vocabulary_splits_like_gpt2) {
  const Tokenizer& tokenizer = toy_tokenizer();
  EXPECT_EQ(tokenizer.size(), 512);
  // Trailing blanks go with the end, one blank goes with the next word, contractions stand alone.
  const std::vector<std::string> pieces = {"I", "'ll", " say", "  ", " hi", "!!", " 42", "\n "};
  std::string text;
  Ids expected;
  for (const std::string& piece : pieces) {
    text += piece;
    tokenizer.encode_text(piece, expected);
  }
  EXPECT_EQ(encode_text(tokenizer, text), expected);
}

TEST(Tokenizer, missing_file_is_not_found) {
  const auto result = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
}

std::string assemble(std::string_view bytes, std::size_t chunk) {
  Utf8Assembler assembler;
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += chunk) {
    out += assembler.append(bytes.substr(i, chunk));
    EXPECT_EQ(valid_utf8_prefix(out), out.size());
  }
  return out + assembler.finish();
}

TEST(Utf8Assembler, any_split_gives_the_text) {
  const std::string text = "aé東🙂\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD z";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Assembler assembler;
    const std::string_view view = text;
    std::string out = assembler.append(view.substr(0, cut));
    out += assembler.append(view.substr(cut));
    EXPECT_EQ(out, text) << cut;
    EXPECT_EQ(assembler.finish(), "");
  }
  for (std::size_t chunk = 1; chunk < 6; ++chunk) EXPECT_EQ(assemble(text, chunk), text);
}

TEST(Utf8Assembler, holds_back_only_unfinished_characters) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.append("a\xF0\x9F"), "a");
  EXPECT_EQ(assembler.append("\x99"), "");
  EXPECT_EQ(assembler.append("\x82"
                             "b"),
            "🙂b");
  EXPECT_EQ(assembler.append("\xE6"), "");
  EXPECT_EQ(assembler.finish(), "\uFFFD");
  EXPECT_EQ(assembler.finish(), "");
}

TEST(Utf8Assembler, replaces_each_maximal_invalid_run_once) {
  const struct {
    const char* bytes;
    const char* text;
  } cases[] = {
      {"\x80"
       "a",
       "\uFFFDa"},
      {"\xE6\x9D"
       "a",
       "\uFFFDa"},                                       // a cut character is one run
      {"\xF0\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // overlong: no byte continues F0
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xF1\x80\x80\xE1\x80\xC2\x62",
       "\uFFFD\uFFFD\uFFFD"
       "b"},  // table 3-8 of the standard
  };
  for (const auto& item : cases) {
    for (std::size_t chunk = 1; chunk < 5; ++chunk) {
      EXPECT_EQ(assemble(item.bytes, chunk), item.text) << chunk;
    }
  }
}

}  // namespace
}  // namespace cairn::engine
