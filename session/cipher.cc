// Nonces. GCM loses everything when a nonce repeats under one key, so the question is who makes
// sure. A counter cannot: a store that is copied or put back, and then written twice, would count
// the same numbers again. Random nonces of 96 bits are good for 2^32 values only, which a busy
// store reaches. XAES draws 192 random bits: 96 choose a key of their own, 96 are its nonce. Two of
// 2^64 values share all 192 bits with probability 2^-65, and nothing has to be remembered. Per
// value that costs 24 bytes and about 3 us, half of them for the random bits.
//
// Not chosen: AES-GCM-SIV (needs OpenSSL 3.2), XChaCha20-Poly1305 (not in OpenSSL, and 3.0 GB/s
// instead of 4.3 on the machine of DESIGN.md).
#include "session/cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <string>
#include <utility>

namespace cairn::session {
namespace {

constexpr std::size_t kBlockBytes = 16, kGcmNonceBytes = 12;
using AesBlock = std::array<std::uint8_t, kBlockBytes>;

// One update of OpenSSL counts its bytes in an int.
constexpr std::size_t kUpdateBytesMax = std::size_t{1} << 30;
constexpr std::uint64_t kScryptMemoryMax = std::uint64_t{512} << 20;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }  // wipes it
};
struct FreeCipher {
  void operator()(EVP_CIPHER* cipher) const { EVP_CIPHER_free(cipher); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;
using Algorithm = std::unique_ptr<EVP_CIPHER, FreeCipher>;

// The algorithms are built in and the arguments are ours, so memory is what may be missing.
Status failed(const char* what) {
  return {StatusCode::kOutOfMemory, std::string("encryption: ") + what + " failed in OpenSSL"};
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// Multiplication by x in GF(2^128): the first sub-key of CMAC.
AesBlock doubled(const AesBlock& in) {
  AesBlock out;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    const std::uint8_t next = i + 1 < kBlockBytes ? in[i + 1] : 0;
    out[i] = static_cast<std::uint8_t>(in[i] << 1 | next >> 7);
  }
  const auto carry = static_cast<std::uint8_t>(-(in[0] >> 7));
  out[kBlockBytes - 1] ^= carry & 0x87;
  return out;
}

Status encrypt_blocks(const EVP_CIPHER* ecb, const SecretKey& key, std::span<std::uint8_t> blocks) {
  const Context context(EVP_CIPHER_CTX_new());
  int n = 0;
  if (!context ||
      EVP_EncryptInit_ex2(context.get(), ecb, key.bytes().data(), nullptr, nullptr) != 1 ||
      EVP_CIPHER_CTX_set_padding(context.get(), 0) != 1 ||
      EVP_EncryptUpdate(context.get(), blocks.data(), &n, blocks.data(),
                        static_cast<int>(blocks.size())) != 1) {
    return failed("AES-256");
  }
  return {};
}

// EVP_CipherUpdate for any number of bytes. `out` null: `in` is authenticated and not encrypted.
bool update(EVP_CIPHER_CTX* context, const unsigned char* in, std::size_t n_bytes,
            unsigned char* out) {
  while (n_bytes > 0) {
    const std::size_t n_now = std::min(n_bytes, kUpdateBytesMax);
    int n = 0;
    if (EVP_CipherUpdate(context, out, &n, in, static_cast<int>(n_now)) != 1) return false;
    in += n_now;
    if (out) out += n_now;
    n_bytes -= n_now;
  }
  return true;
}

}  // namespace

// -- keys --

SecretKey::SecretKey(SecretKey&& other) noexcept { *this = std::move(other); }

SecretKey& SecretKey::operator=(SecretKey&& other) noexcept {
  bytes_ = other.bytes_;
  if (this != &other) OPENSSL_cleanse(other.bytes_.data(), other.bytes_.size());
  return *this;
}

SecretKey::~SecretKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Status fill_random(std::span<std::uint8_t> out) {
  if (RAND_bytes(out.data(), static_cast<int>(out.size())) == 1) return {};
  return {StatusCode::kIoError, "encryption: the random source failed"};
}

Result<SecretKey> random_key() {
  SecretKey key;
  if (RAND_priv_bytes(key.bytes().data(), static_cast<int>(key.bytes().size())) != 1) {
    return Status(StatusCode::kIoError, "encryption: the random source failed");
  }
  return key;
}

Result<std::array<std::uint8_t, 32>> hmac_sha256(const SecretKey& key, std::string_view bytes) {
  std::array<std::uint8_t, 32> out;
  if (!HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()), bytes_of(bytes),
            bytes.size(), out.data(), nullptr)) {
    return failed("HMAC-SHA256");
  }
  return out;
}

Result<SecretKey> derive_key(const SecretKey& key, std::string_view label) {
  const std::string input = std::string(label) + '\x01';  // the first and only round
  SecretKey derived;
  CAIRN_ASSIGN_OR_RETURN(derived.bytes(), hmac_sha256(key, input));
  return derived;
}

Result<SecretKey> stretch(std::string_view passphrase, std::span<const std::uint8_t> salt,
                          const ScryptCost& cost) {
  const bool in_bounds = cost.log2_n >= 1 && cost.log2_n <= 22 && cost.r >= 1 && cost.r <= 32 &&
                         cost.p >= 1 && cost.p <= 16 &&
                         (std::uint64_t{128} * cost.r << cost.log2_n) <= kScryptMemoryMax;
  if (!in_bounds) {
    return Status(StatusCode::kUnsupported,
                  "encryption: scrypt with N = 2^" + std::to_string(cost.log2_n) +
                      ", r = " + std::to_string(cost.r) + ", p = " + std::to_string(cost.p) +
                      " is beyond what this version computes");
  }
  SecretKey key;
  if (EVP_PBE_scrypt(passphrase.data(), passphrase.size(), salt.data(), salt.size(),
                     std::uint64_t{1} << cost.log2_n, cost.r, cost.p, 2 * kScryptMemoryMax,
                     key.bytes().data(), key.bytes().size()) != 1) {
    return failed("scrypt");
  }
  return key;
}

// -- the cipher --

struct Cipher::State {
  Algorithm ecb, gcm;  // looked up once: OpenSSL 3 takes microseconds and a lock for it
  SecretKey key;
  AesBlock cmac_key{};

  // A context that is ready for the data: it has key, nonce and `aad`.
  Result<Context> start(bool encrypt, const Nonce& nonce, std::string_view aad) const;
};

// The key is CMAC(key, 00 01 'X' 00 nonce[0..11]) and CMAC(key, 00 02 'X' 00 nonce[0..11]): each
// input is one whole block, so each CMAC is one encryption.
Result<Context> Cipher::State::start(bool encrypt, const Nonce& nonce, std::string_view aad) const {
  SecretKey derived;
  for (std::size_t half = 0; half < 2; ++half) {
    const std::span block = std::span(derived.bytes()).subspan(half * kBlockBytes, kBlockBytes);
    block[1] = static_cast<std::uint8_t>(half + 1);
    block[2] = 'X';
    std::copy_n(nonce.begin(), kNonceBytes - kGcmNonceBytes, block.begin() + 4);
    for (std::size_t i = 0; i < kBlockBytes; ++i) block[i] ^= cmac_key[i];
  }
  CAIRN_RETURN_IF_ERROR(encrypt_blocks(ecb.get(), key, derived.bytes()));

  Context context(EVP_CIPHER_CTX_new());
  const std::uint8_t* const gcm_nonce = nonce.data() + kNonceBytes - kGcmNonceBytes;
  if (!context ||
      EVP_CipherInit_ex2(context.get(), gcm.get(), derived.bytes().data(), gcm_nonce,
                         encrypt ? 1 : 0, nullptr) != 1 ||
      !update(context.get(), bytes_of(aad), aad.size(), nullptr)) {
    return failed("AES-256-GCM");
  }
  return context;
}

Cipher::Cipher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Cipher::Cipher(Cipher&&) noexcept = default;
Cipher& Cipher::operator=(Cipher&&) noexcept = default;
Cipher::~Cipher() {
  if (state_) OPENSSL_cleanse(state_->cmac_key.data(), state_->cmac_key.size());
}

Result<Cipher> Cipher::create(const SecretKey& key) {
  auto state = std::make_unique<State>();
  state->ecb.reset(EVP_CIPHER_fetch(nullptr, "AES-256-ECB", nullptr));
  state->gcm.reset(EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr));
  if (!state->ecb || !state->gcm) return failed("looking up AES-256");
  state->key.bytes() = key.bytes();
  AesBlock zero{};
  CAIRN_RETURN_IF_ERROR(encrypt_blocks(state->ecb.get(), state->key, zero));
  state->cmac_key = doubled(zero);
  OPENSSL_cleanse(zero.data(), zero.size());
  return Cipher(std::move(state));
}

Status Cipher::seal(const Nonce& nonce, std::string_view context, std::string_view head,
                    std::span<const std::byte> body, std::byte* out) const {
  CAIRN_ASSIGN_OR_RETURN(const Context started, state_->start(true, nonce, context));
  auto* const at = reinterpret_cast<unsigned char*>(out);
  unsigned char* const tag = at + head.size() + body.size();
  int n = 0;
  const bool ok = update(started.get(), bytes_of(head), head.size(), at) &&
                  update(started.get(), reinterpret_cast<const unsigned char*>(body.data()),
                         body.size(), at + head.size()) &&
                  EVP_EncryptFinal_ex(started.get(), tag, &n) == 1 &&
                  EVP_CIPHER_CTX_ctrl(started.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
  return ok ? Status() : failed("AES-256-GCM");
}

Status Cipher::open(const Nonce& nonce, std::string_view context, std::span<const std::byte> sealed,
                    std::byte* out) const {
  if (sealed.size() < kTagBytes) return corrupt("encrypted value: shorter than its tag");
  CAIRN_ASSIGN_OR_RETURN(const Context started, state_->start(false, nonce, context));
  const auto* const in = reinterpret_cast<const unsigned char*>(sealed.data());
  const std::size_t n_bytes = sealed.size() - kTagBytes;
  std::array<unsigned char, kTagBytes> tag;
  std::copy_n(in + n_bytes, kTagBytes, tag.begin());
  if (!update(started.get(), in, n_bytes, reinterpret_cast<unsigned char*>(out)) ||
      EVP_CIPHER_CTX_ctrl(started.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) != 1) {
    return failed("AES-256-GCM");
  }
  int n = 0;
  unsigned char nothing[kBlockBytes];
  if (EVP_DecryptFinal_ex(started.get(), nothing, &n) == 1) return {};
  // What was decrypted is nobody's to see: not a byte of it is known to be right.
  OPENSSL_cleanse(out, n_bytes);
  return corrupt("encrypted value: damaged, or not written here");
}

}  // namespace cairn::session
