// The secret does not encrypt values itself: it wraps a random key, which stays when the secret is
// changed. The tag of the wrap is what tells a wrong secret from a right one, before anything of
// the store is read or written; that the wrap itself is undamaged, FORMAT and the header record say
// with their own sums.
#include "session/store_keys.h"

#include <algorithm>
#include <span>
#include <utility>

namespace cairn::session {
namespace {

constexpr std::size_t kKeyBytes = 32;

std::string wrap_context(const StoreHeader& header) {
  return "cairn store key" + std::string(header.store_id.begin(), header.store_id.end());
}

std::string_view view_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status wrap_key(const Cipher& cipher, const SecretKey& key, StoreHeader& header) {
  KeyWrap& wrap = *header.key_wrap;
  Nonce nonce;
  CAIRN_RETURN_IF_ERROR(fill_random(nonce));
  std::ranges::copy(nonce, wrap.wrapped_key.begin());
  return cipher.seal(nonce, wrap_context(header), view_of(key.bytes()), {},
                     std::as_writable_bytes(std::span(wrap.wrapped_key)).data() + kNonceBytes);
}

Result<SecretKey> unwrap_key(const Cipher& cipher, const StoreHeader& header) {
  const std::span wrapped = std::as_bytes(std::span(header.key_wrap->wrapped_key));
  Nonce nonce;
  std::copy_n(header.key_wrap->wrapped_key.begin(), kNonceBytes, nonce.begin());
  SecretKey key;
  const Status status = cipher.open(nonce, wrap_context(header), wrapped.subspan(kNonceBytes),
                                    std::as_writable_bytes(std::span(key.bytes())).data());
  if (status.code() == StatusCode::kCorrupt) {
    return invalid_argument("encrypted store: wrong secret",
                            "open it with the secret that it was made with");
  }
  if (!status.ok()) return status;
  return key;
}

}  // namespace

Status StoreLock::check_secret() const {
  if (secret_.passphrase.empty() || !secret_.key) return {};
  return invalid_argument("store: a passphrase and a key are given", "give one of them");
}

Result<Cipher> StoreLock::wrapping_cipher(const KeyWrap& wrap) const {
  SecretKey secret;
  if (wrap.source == SecretSource::kPassphrase) {
    CAIRN_ASSIGN_OR_RETURN(secret, stretch(secret_.passphrase, wrap.salt, wrap.cost));
  } else {
    CAIRN_RETURN_IF_ERROR(secret_.key(secret.bytes()));
  }
  CAIRN_ASSIGN_OR_RETURN(const SecretKey wrapping, derive_key(secret, "cairn wrap"));
  return Cipher::create(wrapping);
}

Status StoreLock::set_keys(const StoreHeader& header, const SecretKey& store_key) {
  CAIRN_ASSIGN_OR_RETURN(const SecretKey values, derive_key(store_key, "cairn values"));
  CAIRN_ASSIGN_OR_RETURN(SecretKey names, derive_key(store_key, "cairn names"));
  CAIRN_ASSIGN_OR_RETURN(const SecretKey salt, derive_key(store_key, "cairn block salt"));
  CAIRN_ASSIGN_OR_RETURN(Cipher cipher, Cipher::create(values));
  keys_ = StoreKeys{std::move(cipher), std::move(names), std::string(view_of(salt.bytes()))};
  header_ = header;
  return {};
}

Status StoreLock::close(StoreHeader& header) {
  CAIRN_RETURN_IF_ERROR(check_secret());
  if (secret_.empty()) return {};
  KeyWrap& wrap = header.key_wrap.emplace();
  if (!secret_.key) {
    wrap.source = SecretSource::kPassphrase;
    CAIRN_RETURN_IF_ERROR(fill_random(wrap.salt));
  }
  CAIRN_ASSIGN_OR_RETURN(const Cipher cipher, wrapping_cipher(wrap));
  CAIRN_ASSIGN_OR_RETURN(const SecretKey key, random_key());
  CAIRN_RETURN_IF_ERROR(wrap_key(cipher, key, header));
  return set_keys(header, key);
}

Status StoreLock::open(const StoreHeader& header) {
  CAIRN_RETURN_IF_ERROR(check_secret());
  if (!header.key_wrap) {
    if (secret_.empty()) return {};
    return invalid_argument("store: it is not encrypted and a secret is given",
                            "open it without one; to encrypt it, export its sessions and import "
                            "them into a store that is created with a secret");
  }
  if (header_ && header_->store_id == header.store_id && header_->key_wrap == header.key_wrap) {
    return {};
  }
  const bool by_passphrase = header.key_wrap->source == SecretSource::kPassphrase;
  const char* const needed = by_passphrase ? "a passphrase" : "a key";
  if (by_passphrase ? secret_.passphrase.empty() : !secret_.key) {
    return invalid_argument(
        std::string("encrypted store: it is opened with ") + needed + ", and none is given",
        std::string("give ") + needed + " as its secret");
  }
  CAIRN_ASSIGN_OR_RETURN(const Cipher cipher, wrapping_cipher(*header.key_wrap));
  CAIRN_ASSIGN_OR_RETURN(const SecretKey key, unwrap_key(cipher, header));
  return set_keys(header, key);
}

}  // namespace cairn::session
