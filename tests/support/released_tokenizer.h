// The released tokenizer and other golden files, for tests. Fails the test and returns null or an
// empty text if a file cannot be read.
#ifndef CAIRN_TESTS_SUPPORT_RELEASED_TOKENIZER_H_
#define CAIRN_TESTS_SUPPORT_RELEASED_TOKENIZER_H_

#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "engine/tokenizer.h"

namespace cairn::tests {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string decompressed(const std::string& frame) {
  const auto size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  EXPECT_LT(size, 1ULL << 30);
  if (size >= 1ULL << 30) return {};
  std::string text(size, '\0');
  const std::size_t n = ZSTD_decompress(text.data(), text.size(), frame.data(), frame.size());
  EXPECT_EQ(n, text.size());
  return text;
}

// Parsed once per program.
inline const engine::Tokenizer* released_tokenizer() {
  static const auto tokenizer = engine::Tokenizer::parse(
      decompressed(read_file(CAIRN_TEST_DATA "/tokenizer/tokenizer.json.zst")), "released");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? &*tokenizer : nullptr;
}

// A toy vocabulary without the markers of reasoning and tool calls.
inline const engine::Tokenizer* toy_tokenizer() {
  static const auto tokenizer =
      engine::Tokenizer::load(CAIRN_SOURCE_DIR "/examples/models/tiny-a/tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? &*tokenizer : nullptr;
}

}  // namespace cairn::tests

#endif  // CAIRN_TESTS_SUPPORT_RELEASED_TOKENIZER_H_
