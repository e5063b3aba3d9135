// Known answers of the standards, and that everything authenticated is.
#include "session/cipher.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "engine/sha256.h"
#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

using test::Bytes;
using test::code_of;

SecretKey key_of(std::uint8_t byte) {
  SecretKey key;
  key.bytes().fill(byte);
  return key;
}

Nonce nonce_of(std::string_view text) {
  Nonce nonce{};
  std::copy(text.begin(), text.end(), nonce.begin());
  return nonce;
}

std::string hex(std::span<const std::byte> bytes) {
  return engine::hex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

Bytes seal(const Cipher& cipher, const Nonce& nonce, std::string_view context,
           std::string_view head, std::span<const std::byte> body = {}) {
  Bytes sealed(head.size() + body.size() + kTagBytes);
  const Status status = cipher.seal(nonce, context, head, body, sealed.data());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return sealed;
}

// C2SP XAES-256-GCM: the two branches of the doubling in CMAC.
TEST(Cipher, gives_the_answers_of_its_standard) {
  const Nonce nonce = nonce_of("ABCDEFGHIJKLMNOPQRSTUVWX");
  EXPECT_EQ(hex(seal(*Cipher::create(key_of(1)), nonce, "", "XAES-256-GCM")),
            "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271");
  EXPECT_EQ(hex(seal(*Cipher::create(key_of(3)), nonce, "c2sp.org/XAES-256-GCM", "XAES-256-GCM")),
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d");
}

// RFC 4231 case 1 has a shorter key; zeros at its end change nothing in HMAC.
TEST(Cipher, hmac_gives_the_answer_of_its_standard) {
  SecretKey key;
  std::fill_n(key.bytes().begin(), 20, std::uint8_t{0x0b});
  EXPECT_EQ(engine::hex(*hmac_sha256(key, "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

// RFC 5869 case 1, which takes 42 bytes of which the first 32 are one round.
TEST(Cipher, derived_keys_are_those_of_their_standard) {
  SecretKey key;
  const std::string hex_key = "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5";
  for (std::size_t i = 0; i < 32; ++i) {
    key.bytes()[i] = static_cast<std::uint8_t>(std::stoi(hex_key.substr(2 * i, 2), nullptr, 16));
  }
  const std::string label = "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9";
  EXPECT_EQ(engine::hex(derive_key(key, label)->bytes()),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

// RFC 7914 section 12, the first 32 of 64 bytes.
TEST(Cipher, scrypt_gives_the_answer_of_its_standard) {
  const std::string salt = "SodiumChloride";
  const auto key =
      stretch("pleaseletmein", std::span(reinterpret_cast<const std::uint8_t*>(salt.data()), 14),
              {.log2_n = 14, .r = 8, .p = 1});
  ASSERT_TRUE(key.ok()) << key.status().to_string();
  EXPECT_EQ(engine::hex(key->bytes()),
            "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2");
}

TEST(Cipher, scrypt_beyond_its_bounds_is_refused) {
  const std::array<std::uint8_t, 16> salt{};
  const auto code = [&](ScryptCost cost) { return code_of(stretch("p", salt, cost)); };
  EXPECT_EQ(code({.log2_n = 63, .r = 8, .p = 1}), StatusCode::kUnsupported);
  EXPECT_EQ(code({.log2_n = 20, .r = 8, .p = 1}), StatusCode::kUnsupported);
  EXPECT_EQ(code({.log2_n = 10, .r = 0, .p = 1}), StatusCode::kUnsupported);
  EXPECT_EQ(code({.log2_n = 10, .r = 8, .p = 0xffffffff}), StatusCode::kUnsupported);
  EXPECT_EQ(code({.log2_n = 0, .r = 8, .p = 1}), StatusCode::kUnsupported);
  EXPECT_EQ(code({.log2_n = 4, .r = 8, .p = 1}), StatusCode::kOk);
}

TEST(Cipher, opens_what_it_sealed_whatever_the_lengths) {
  const Cipher cipher = std::move(*Cipher::create(key_of(7)));
  for (const std::size_t n_head : {0, 1, 15, 16, 17, 300}) {
    for (const std::size_t n_body : {0, 1, 16, 4095, 113'920}) {
      const std::string head(n_head, 'h');
      const Bytes body = test::random_bytes(1, n_body);
      const Nonce nonce = nonce_of("nonce" + std::to_string(n_head * 1000 + n_body));
      Bytes sealed = seal(cipher, nonce, "context", head, body);
      Bytes opened(n_head + n_body);
      ASSERT_TRUE(cipher.open(nonce, "context", sealed, opened.data()).ok());
      EXPECT_EQ(hex(opened), hex(std::as_bytes(std::span(head))) + hex(body));
      // In its own place, too.
      ASSERT_TRUE(cipher.open(nonce, "context", sealed, sealed.data()).ok());
      EXPECT_TRUE(test::same_bytes(std::span(sealed).first(opened.size()), opened));
    }
  }
}

TEST(Cipher, any_other_bit_is_corrupt_and_leaves_nothing_readable) {
  const Cipher cipher = std::move(*Cipher::create(key_of(7)));
  const std::string text = "the text of a session, more than one block of it";
  const std::string context = "family and key";
  const Nonce nonce = nonce_of("ABCDEFGHIJKLMNOPQRSTUVWX");
  const Bytes sealed = seal(cipher, nonce, context, text);
  Bytes opened(text.size());
  const auto code = [&](const Cipher& by, const Nonce& with, std::string_view in,
                        const Bytes& what) {
    std::fill(opened.begin(), opened.end(), std::byte{1});
    const StatusCode result = by.open(with, in, what, opened.data()).code();
    EXPECT_EQ(result == StatusCode::kOk, hex(opened) == hex(std::as_bytes(std::span(text))));
    return result;
  };
  EXPECT_EQ(code(cipher, nonce, context, sealed), StatusCode::kOk);
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    Bytes changed = sealed;
    changed[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_EQ(code(cipher, nonce, context, changed), StatusCode::kCorrupt) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * nonce.size(); ++bit) {
    Nonce changed = nonce;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    ASSERT_EQ(code(cipher, changed, context, sealed), StatusCode::kCorrupt) << bit;
  }
  EXPECT_EQ(code(cipher, nonce, "family and kez", sealed), StatusCode::kCorrupt);
  EXPECT_EQ(code(cipher, nonce, "", sealed), StatusCode::kCorrupt);
  EXPECT_EQ(code(*Cipher::create(key_of(8)), nonce, context, sealed), StatusCode::kCorrupt);
  EXPECT_EQ(code(cipher, nonce, context, Bytes(kTagBytes - 1)), StatusCode::kCorrupt);
  EXPECT_EQ(code(cipher, nonce, context, {}), StatusCode::kCorrupt);
}

TEST(Cipher, a_moved_key_is_wiped) {
  SecretKey from = key_of(9);
  const SecretKey to = std::move(from);
  EXPECT_EQ(to.bytes(), key_of(9).bytes());
  EXPECT_EQ(from.bytes(), SecretKey().bytes());  // NOLINT(bugprone-use-after-move)
}

TEST(Cipher, random_keys_and_bytes_do_not_repeat) {
  std::set<std::array<std::uint8_t, 32>> keys;
  std::set<Nonce> nonces;
  for (int i = 0; i < 10'000; ++i) {
    keys.insert(random_key()->bytes());
    Nonce nonce;
    ASSERT_TRUE(fill_random(nonce).ok());
    nonces.insert(nonce);
  }
  EXPECT_EQ(keys.size(), 10'000u);
  EXPECT_EQ(nonces.size(), 10'000u);
}

}  // namespace
}  // namespace cairn::session
