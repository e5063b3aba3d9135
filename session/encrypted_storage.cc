// Names. The key "name/<name>" becomes "name/" and the HMAC of the name, so that a name can be
// looked up and not read. The name stands in the encrypted value too, for scans, which must give
// the keys that were written and in their order: the meta family, a hundred bytes a session, is
// therefore read before it is visited. All other keys are random, or hashes that begin with a
// secret salt.
#include "session/encrypted_storage.h"

#include <algorithm>
#include <map>
#include <utility>

#include "session/storage_key.h"

namespace cairn::session {
namespace {

constexpr char kValueVersion = 1;
// Version, nonce; then the encrypted bytes; then the tag.
constexpr std::size_t kHeadBytes = 1 + kNonceBytes;
// Before the value of a name: its length and itself.
constexpr std::size_t kNameSizeBytes = 4;

bool is_plain(Family family, std::string_view key) {
  return family == Family::kMeta && key == kHeaderKey;
}

bool is_name(Family family, std::string_view key) {
  return family == Family::kMeta && key.starts_with(kNamePrefix);
}

// What is authenticated besides the value: it belongs here and nowhere else.
std::string context_of(Family family, std::string_view key) {
  std::string context = {kValueVersion, static_cast<char>(family)};
  context.append(key);
  return context;
}

std::string with_name(std::string_view key, std::string_view value) {
  const std::string_view name = key.substr(kNamePrefix.size());
  std::string out;
  append_little_endian32(static_cast<std::uint32_t>(name.size()), out);
  return out.append(name).append(value);
}

// The name in what with_name made. Its length is authenticated, so it is what was written.
std::string_view name_in(std::string_view value) {
  return value.substr(kNameSizeBytes).substr(0, little_endian32(value));
}

class EncryptedStorage final : public Storage {
 public:
  EncryptedStorage(std::unique_ptr<Storage> inner, StoreKeys keys)
      : inner_(std::move(inner)), keys_(std::move(keys)) {}

  Result<std::string> get(Family family, std::string_view key) override {
    CAIRN_ASSIGN_OR_RETURN(const std::string stored_key, stored(family, key));
    CAIRN_ASSIGN_OR_RETURN(const std::string sealed, inner_->get(family, stored_key));
    std::string value;
    CAIRN_RETURN_IF_ERROR(decrypt(family, stored_key, sealed, value));
    return value;
  }

  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> stored_keys, stored(family, keys));
    CAIRN_ASSIGN_OR_RETURN(const auto sealed, inner_->multi_get(family, stored_keys));
    std::vector<std::optional<std::string>> values(sealed.size());
    for (std::size_t i = 0; i < sealed.size(); ++i) {
      if (!sealed[i]) continue;
      CAIRN_RETURN_IF_ERROR(
          decrypt_or_empty(family, stored_keys[i], *sealed[i], values[i].emplace()));
    }
    return values;
  }

  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> stored_keys, stored(family, keys));
    Status status;
    std::string value;
    CAIRN_RETURN_IF_ERROR(inner_->view(
        family, stored_keys, [&](std::size_t i, std::optional<std::string_view> sealed) {
          if (!sealed) return visit(i, std::nullopt);
          status = decrypt_or_empty(family, stored_keys[i], *sealed, value);
          return status.ok() && visit(i, value);
        }));
    return status;
  }

  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    if (family == Family::kMeta) return scan_meta(prefix, first, visit);
    Status status;
    std::string value;
    CAIRN_RETURN_IF_ERROR(
        inner_->scan(family, prefix, first, [&](std::string_view key, std::string_view sealed) {
          status = decrypt_or_empty(family, key, sealed, value);
          return status.ok() && visit(key, value);
        }));
    return status;
  }

  Status write(const WriteBatch& batch, Durability durability) override {
    std::size_t n_bytes = 0;
    for (const WriteBatch::Change& change : batch.changes()) {
      n_bytes += change.key.size() + change.head.size() + change.body.size() + kNameSizeBytes +
                 kTagBytes;  // enough for names, ample for the rest
    }
    const auto sealed = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
    std::byte* at = sealed.get();  // room for the rest of the batch
    WriteBatch encrypted;
    for (const WriteBatch::Change& change : batch.changes()) {
      CAIRN_RETURN_IF_ERROR(add(change, at, encrypted));
    }
    return inner_->write(encrypted, durability);
  }

  Status flush() override { return inner_->flush(); }

  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    // Names that are beside each other are not so as they are stored.
    if (is_name(family, first) || is_name(family, last)) return inner_->reclaim(family, "", "\xff");
    return inner_->reclaim(family, first, last);
  }

  Status drop_tables(Family family, std::span<const KeyRange> ranges) override {
    return inner_->drop_tables(family, ranges);  // of numbers: names have no order
  }

  std::int64_t table_bytes(Family family) const override { return inner_->table_bytes(family); }
  std::int64_t bytes_written() const override { return inner_->bytes_written(); }

 private:
  // -- keys --

  Result<std::string> stored(Family family, std::string_view key) const {
    if (!is_name(family, key)) return std::string(key);
    CAIRN_ASSIGN_OR_RETURN(const auto hidden,
                           hmac_sha256(keys_.names, key.substr(kNamePrefix.size())));
    return std::string(kNamePrefix).append(hidden.begin(), hidden.end());
  }

  Result<std::vector<std::string>> stored(Family family, std::span<const std::string> keys) const {
    std::vector<std::string> out;
    out.reserve(keys.size());
    for (const std::string& key : keys) {
      CAIRN_ASSIGN_OR_RETURN(std::string stored_key, stored(family, key));
      out.push_back(std::move(stored_key));
    }
    return out;
  }

  // -- values --

  // Adds `change` to `out`, encrypted at `at`, which moves on.
  Status add(const WriteBatch::Change& change, std::byte*& at, WriteBatch& out) const {
    CAIRN_ASSIGN_OR_RETURN(std::string key, stored(change.family, change.key));
    if (change.remove) {
      out.remove(change.family, std::move(key));
      return {};
    }
    if (is_plain(change.family, key)) {
      out.put(change.family, std::move(key), change.head, change.body);
      return {};
    }
    std::string head = change.head;
    if (is_name(change.family, key)) head = with_name(change.key, change.head);
    Nonce nonce;
    CAIRN_RETURN_IF_ERROR(fill_random(nonce));
    CAIRN_RETURN_IF_ERROR(
        keys_.values.seal(nonce, context_of(change.family, key), head, change.body, at));
    const std::span<const std::byte> body(at, head.size() + change.body.size() + kTagBytes);
    at += body.size();
    std::string start = {kValueVersion};
    start.append(nonce.begin(), nonce.end());
    if (change.bulk) {
      out.put_bulk(change.family, std::move(key), std::move(start), body);
    } else {
      out.put(change.family, std::move(key), std::move(start), body);
    }
    return {};
  }

  // What was written where `sealed` lies.
  Status decrypt(Family family, std::string_view key, std::string_view sealed,
                 std::string& value) const {
    if (is_plain(family, key)) {
      value = sealed;
      return {};
    }
    CAIRN_RETURN_IF_ERROR(open_value(family, key, sealed, value));
    if (is_name(family, key)) value.erase(0, kNameSizeBytes + name_in(value).size());
    return {};
  }

  Status open_value(Family family, std::string_view key, std::string_view sealed,
                    std::string& value) const {
    if (sealed.size() < kHeadBytes + kTagBytes) {
      return corrupt("encrypted value: shorter than its frame");
    }
    if (sealed[0] != kValueVersion) return corrupt("encrypted value: unknown version");
    Nonce nonce;
    std::copy_n(sealed.begin() + 1, kNonceBytes, nonce.begin());
    sealed.remove_prefix(kHeadBytes);
    value.resize(sealed.size() - kTagBytes);
    return keys_.values.open(nonce, context_of(family, key), std::as_bytes(std::span(sealed)),
                             std::as_writable_bytes(std::span(value)).data());
  }

  Status decrypt_or_empty(Family family, std::string_view key, std::string_view sealed,
                          std::string& value) const {
    const Status status = decrypt(family, key, sealed, value);
    if (status.code() != StatusCode::kCorrupt) return status;
    value.clear();
    return {};
  }

  // -- the meta family --

  // Puts the pair into `pairs` as it was written. A name that does not decrypt keeps its stored
  // key.
  Status add_pair(std::string_view key, std::string_view sealed,
                  std::map<std::string, std::string>& pairs) const {
    std::string value;
    if (!is_name(Family::kMeta, key)) {
      CAIRN_RETURN_IF_ERROR(decrypt_or_empty(Family::kMeta, key, sealed, value));
      pairs.emplace(key, std::move(value));
      return {};
    }
    const Status status = open_value(Family::kMeta, key, sealed, value);
    if (status.code() == StatusCode::kCorrupt) {
      pairs.emplace(key, "");
      return {};
    }
    CAIRN_RETURN_IF_ERROR(status);
    const std::string_view name = name_in(value);
    pairs.emplace(name_key(name), value.substr(kNameSizeBytes + name.size()));
    return {};
  }

  Status scan_meta(std::string_view prefix, std::string_view first, const Visitor& visit) const {
    std::map<std::string, std::string> pairs;
    Status status;
    const std::string_view stored_prefix = is_name(Family::kMeta, prefix) ? kNamePrefix : prefix;
    CAIRN_RETURN_IF_ERROR(inner_->scan(Family::kMeta, stored_prefix, stored_prefix,
                                       [&](std::string_view key, std::string_view sealed) {
                                         status = add_pair(key, sealed, pairs);
                                         return status.ok();
                                       }));
    CAIRN_RETURN_IF_ERROR(status);
    for (auto at = pairs.lower_bound(std::string(std::max(prefix, first))); at != pairs.end();
         ++at) {
      if (!at->first.starts_with(prefix) || !visit(at->first, at->second)) break;
    }
    return {};
  }

  std::unique_ptr<Storage> inner_;
  StoreKeys keys_;
};

}  // namespace

std::unique_ptr<Storage> encrypted_storage(std::unique_ptr<Storage> inner, StoreKeys keys) {
  return std::make_unique<EncryptedStorage>(std::move(inner), std::move(keys));
}

}  // namespace cairn::session
