#include "engine/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace cairn::engine {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Vectors of FIPS 180-4's examples.
TEST(Sha256, published_vectors) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, parts_give_the_digest_of_the_whole) {
  const std::string text(1000, 'x');
  for (const std::size_t cut : {0u, 1u, 63u, 64u, 65u, 999u, 1000u}) {
    Sha256 hash;
    hash.update(bytes_of(std::string_view(text).substr(0, cut)));
    hash.update(bytes_of(std::string_view(text).substr(cut)));
    EXPECT_EQ(hash.finish(), sha256(bytes_of(text))) << cut;
  }
}

TEST(Sha256, starts_over_after_finish) {
  Sha256 hash;
  hash.update(bytes_of("left over"));
  EXPECT_NE(hash.finish(), sha256({}));
  hash.update(bytes_of("abc"));
  EXPECT_EQ(hash.finish(), sha256(bytes_of("abc")));
  EXPECT_EQ(hash.finish(), sha256({}));
}

}  // namespace
}  // namespace cairn::engine
