#include "session/compression.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + " of a tool's output\n";
  return text;
}

TEST(Compression, returns_what_it_was_given) {
  for (const std::string& text : {std::string(), std::string("x"), sample_text()}) {
    const auto frame = compress(text);
    ASSERT_TRUE(frame.ok());
    const auto back = decompress(*frame, 1 << 20);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, text);
  }
  EXPECT_LT(compress(sample_text())->size(), sample_text().size() / 4);
}

TEST(Compression, refuses_more_bytes_than_allowed) {
  const std::string frame = *compress(std::string(1000, 'a'));
  EXPECT_TRUE(decompress(frame, 1000).ok());
  EXPECT_EQ(decompress(frame, 999).status().code(), StatusCode::kCorrupt);
}

TEST(Compression, refuses_cut_frames_and_trailing_bytes) {
  const std::string frame = *compress(sample_text());
  for (std::size_t n = 0; n < frame.size(); ++n) {
    EXPECT_EQ(decompress(frame.substr(0, n), 1 << 20).status().code(), StatusCode::kCorrupt) << n;
  }
  EXPECT_EQ(decompress(frame + '\0', 1 << 20).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(decompress(frame + frame, 1 << 20).status().code(), StatusCode::kCorrupt);
}

TEST(Compression, damaged_frames_never_give_more_bytes_than_stated) {
  const std::string text = sample_text(), frame = *compress(text);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = frame;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const auto back = decompress(damaged, text.size());
      if (back.ok()) {
        EXPECT_LE(back->size(), text.size());
      }
    }
  }
}

}  // namespace
}  // namespace cairn::session
