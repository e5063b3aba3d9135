// The keys of an encrypted store: a random one, kept in the store under a key made of the host's
// secret, and what is derived from it.
#ifndef CAIRN_SESSION_STORE_KEYS_H_
#define CAIRN_SESSION_STORE_KEYS_H_

#include <optional>
#include <string>

#include "cairn/status.h"
#include "cairn/store.h"
#include "session/cipher.h"
#include "session/records.h"

namespace cairn::session {

struct StoreKeys {
  Cipher values;
  SecretKey names;      // of HMAC-SHA256, in place of session names in keys
  std::string kv_salt;  // 32 bytes; before the salt of every KvNamespace
};

// The lock that a host's secret opens. Confined to one thread; borrows the secret.
class StoreLock {
 public:
  explicit StoreLock(const StoreSecret& secret) : secret_(secret) {}

  // Takes a new random key for the store with this header and puts its wrap there; without a secret
  // does nothing. Fails with what the secret's callback returns, kInvalidArgument (two secrets).
  Status close(StoreHeader& header);

  // Gets the keys of a store. Asks and stretches the secret only once for equal headers. Fails with
  // kInvalidArgument where the secret is missing, wrong, or given for a store without encryption;
  // with what the secret's callback returns; kUnsupported.
  Status open(const StoreHeader& header);

  // Of the store that was closed or opened; empty for one without encryption. Once.
  std::optional<StoreKeys> take_keys() { return std::move(keys_); }

 private:
  Status check_secret() const;
  Result<Cipher> wrapping_cipher(const KeyWrap& wrap) const;
  Status set_keys(const StoreHeader& header, const SecretKey& store_key);

  const StoreSecret& secret_;
  std::optional<StoreHeader> header_;  // that keys_ belong to
  std::optional<StoreKeys> keys_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORE_KEYS_H_
