#include "session/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "engine/sha256.h"

namespace cairn::session {
namespace {

std::vector<TokenId> counting(TokenId from, int n = kBlockTokens) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Computed with Python's hashlib from the description in FORMAT.md section 5.
TEST(BlockKey, equals_the_documented_hash) {
  const BlockKey root = root_key({"fingerprint", 1, "salt"});
  EXPECT_EQ(engine::hex(root), "9f9cb2e0a5d0eb0bb37d146a3ba7d415ee533127c0108532c87c9bb89afe7d95");
  const BlockKey first = block_key(root, Provenance::kExact, counting(1000));
  EXPECT_EQ(engine::hex(first), "e7a977be2c328911770a050200867088b0d8b6f70ddb3ae7497e976f8e6ad210");
  const BlockKey second = block_key(first, Provenance::kBounded, counting(1000));
  EXPECT_EQ(engine::hex(second),
            "8118c42507988ef7774e04e98178692d495e1d410514fa41e5086721936cd087");
}

TEST(BlockKey, every_field_changes_it) {
  std::set<BlockKey> keys;
  keys.insert(root_key({"f", 1, "s"}));
  keys.insert(root_key({"g", 1, "s"}));
  keys.insert(root_key({"f", 2, "s"}));
  keys.insert(root_key({"f", 1, "t"}));
  keys.insert(root_key({"f", 1, ""}));
  // The same bytes, cut elsewhere.
  keys.insert(root_key({"fs", 1, ""}));
  keys.insert(root_key({"", 1, "fs"}));
  const BlockKey root = root_key({"f", 1, "s"});
  keys.insert(block_key(root, Provenance::kExact, counting(0)));
  keys.insert(block_key(root, Provenance::kBounded, counting(0)));
  keys.insert(block_key(root, Provenance::kExact, counting(1)));
  keys.insert(block_key(root, Provenance::kExact, counting(0, 127)));
  keys.insert(block_key(root_key({"g", 1, "s"}), Provenance::kExact, counting(0)));
  EXPECT_EQ(keys.size(), 12u);
}

}  // namespace
}  // namespace cairn::session
