#include "engine/sha256.h"

#include <openssl/evp.h>

#include <new>

namespace cairn::engine {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// OpenSSL's digest calls fail for want of memory only: the algorithm is built in and the arguments
// are ours.
void require(bool ok) {
  if (!ok) throw std::bad_alloc();
}

}  // namespace

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, FreeContext> evp;

  void start() { require(EVP_DigestInit_ex(evp.get(), EVP_sha256(), nullptr) == 1); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  context_->evp.reset(EVP_MD_CTX_new());
  require(context_->evp != nullptr);
  context_->start();
}

Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  unsigned int n_bytes = 0;
  require(EVP_DigestFinal_ex(context_->evp.get(), digest.data(), &n_bytes) == 1);
  context_->start();
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

}  // namespace cairn::engine
