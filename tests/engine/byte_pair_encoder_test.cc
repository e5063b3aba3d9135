#include "engine/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/byte_alphabet.h"

namespace cairn::engine {
namespace {

// Every byte, and merges of random entries over a few letters: many overlap, some are unreachable.
TokenizerFile random_file(std::mt19937& random) {
  TokenizerFile file;
  for (int byte = 0; byte < 256; ++byte) {
    file.vocabulary.push_back({std::string(byte_spelling(static_cast<std::uint8_t>(byte))), byte});
  }
  std::vector<std::string> parts = {"a", "b", "c"};
  std::map<std::string, TokenId> ids;
  std::map<std::pair<std::string, std::string>, bool> pairs;
  for (int i = 0; i < 60; ++i) {
    const std::string left = parts[random() % parts.size()];
    const std::string right = parts[random() % parts.size()];
    if (left.size() + right.size() > 9 || !pairs.emplace(std::pair(left, right), true).second) {
      continue;
    }
    file.merges.push_back({left, right});
    const std::string merged = left + right;
    if (ids.emplace(merged, 256 + static_cast<TokenId>(ids.size())).second) {
      file.vocabulary.push_back({merged, ids[merged]});
      parts.push_back(merged);
    }
  }
  return file;
}

// The definition: merge the pair of lowest rank, leftmost on ties, until none is left.
std::vector<std::string> merge_by_definition(const TokenizerFile& file, std::string_view text) {
  std::vector<std::string> symbols;
  for (const char byte : text) symbols.emplace_back(1, byte);
  const auto merge_first = [&](const TokenizerFile::Merge& merge) {
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (symbols[i] != merge.left || symbols[i + 1] != merge.right) continue;
      symbols[i] += symbols[i + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return true;
    }
    return false;
  };
  for (bool merged = true; merged;) {
    merged = false;
    for (std::size_t rank = 0; rank < file.merges.size() && !merged; ++rank) {
      merged = merge_first(file.merges[rank]);
    }
  }
  return symbols;
}

TEST(BytePairEncoder, equals_the_definition_on_random_vocabularies) {
  constexpr unsigned kSeed = 4242;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  BytePairEncoder::Scratch scratch;
  for (int round = 0; round < 200; ++round) {
    const TokenizerFile file = random_file(random);
    std::map<TokenId, std::string> spelling;
    for (const auto& entry : file.vocabulary) spelling[entry.id] = entry.spelling;
    const auto encoder = BytePairEncoder::make(file);
    ASSERT_TRUE(encoder.ok()) << encoder.status().message();
    for (int i = 0; i < 50; ++i) {
      std::string text;
      for (auto n = random() % 40; n > 0; --n) text.push_back("abc"[random() % 3]);
      std::vector<TokenId> ids;
      encoder->encode(text, scratch, ids);
      std::vector<std::string> symbols;
      for (const TokenId id : ids) symbols.push_back(spelling[id]);
      ASSERT_EQ(symbols, merge_by_definition(file, text)) << "round " << round << ": " << text;
    }
  }
}

TEST(BytePairEncoder, an_empty_piece_has_no_tokens) {
  std::mt19937 random(1);
  const auto encoder = BytePairEncoder::make(random_file(random));
  ASSERT_TRUE(encoder.ok());
  BytePairEncoder::Scratch scratch;
  std::vector<TokenId> ids = {7};
  encoder->encode("", scratch, ids);
  EXPECT_EQ(ids, std::vector<TokenId>{7});
}

}  // namespace
}  // namespace cairn::engine
