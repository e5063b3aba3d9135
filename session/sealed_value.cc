// The only file that includes xxHash. XXH3-64 is against accidents, not against an attacker, who
// could rewrite the sum too; 7 GB/s and more on one core makes checking every read affordable.
#include "session/sealed_value.h"

#define XXH_INLINE_ALL  // the state on the stack, no dependence on the layout of a shared library
#include <xxhash.h>

#include <cstdint>

#include "session/compression.h"
#include "session/storage_key.h"

namespace cairn::session {
namespace {

constexpr char kSchemaVersion = 1;
enum Encoding : char { kPlain = 0, kZstd = 1 };

// Record: version, encoding, sum, content.
constexpr std::size_t kRecordSumAt = 2, kRecordHeaderBytes = 10;
// Payload: version, three zero bytes, size of the descriptor, sum, descriptor, payload.
constexpr std::size_t kDescriptorSizeAt = 4, kPayloadSumAt = 8, kPayloadHeaderBytes = 16;

// Shorter contents gain less than the frame costs.
constexpr std::size_t kCompressFrom = 96;

class Sum {
 public:
  Sum(Family family, std::string_view key) {
    XXH3_64bits_reset_withSeed(&state_, static_cast<XXH64_hash_t>(family));
    add(key);
  }
  Sum& add(std::string_view bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
    return *this;
  }
  std::uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_{};
};

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status bad_sum(std::uint64_t stored, std::uint64_t computed) {
  return corrupt("stored value: checksum mismatch (stored " + to_hex64(stored) + ", computed " +
                 to_hex64(computed) + ")");
}

Status check_version(char version) {
  if (version == kSchemaVersion) return {};
  return {StatusCode::kUnsupported,
          "stored value: schema version " + std::to_string(static_cast<unsigned char>(version)) +
              " is not known to this version",
          "use a newer version of Cairn"};
}

}  // namespace

Result<std::string> seal_record(Family family, std::string_view key, std::string_view content) {
  if (content.size() > kRecordBytesMax) {
    return invalid_argument("store: a record of " + std::to_string(content.size()) +
                            " bytes; at most " + std::to_string(kRecordBytesMax) + " are allowed");
  }
  Encoding encoding = kPlain;
  std::string compressed;
  if (content.size() >= kCompressFrom) {
    CAIRN_ASSIGN_OR_RETURN(compressed, compress(content));
    if (compressed.size() < content.size()) encoding = kZstd;
  }
  const std::string_view stored = encoding == kZstd ? std::string_view(compressed) : content;
  std::string value = {kSchemaVersion, encoding};
  const std::uint64_t sum = Sum(family, key).add(value).add(stored).digest();
  append_little_endian64(sum, value);
  value.append(stored);
  return value;
}

Status put_record(Family family, const std::string& key, std::string_view content,
                  WriteBatch& batch) {
  CAIRN_ASSIGN_OR_RETURN(std::string value, seal_record(family, key, content));
  batch.put(family, key, std::move(value));
  return {};
}

Result<std::string> unseal_record(Family family, std::string_view key, std::string_view value) {
  if (value.size() < kRecordHeaderBytes) return corrupt("stored value: shorter than its header");
  const std::string_view stored = value.substr(kRecordHeaderBytes);
  const std::uint64_t found = little_endian64(value.substr(kRecordSumAt));
  const std::uint64_t sum =
      Sum(family, key).add(value.substr(0, kRecordSumAt)).add(stored).digest();
  if (found != sum) return bad_sum(found, sum);
  CAIRN_RETURN_IF_ERROR(check_version(value[0]));
  switch (value[1]) {
    case kPlain:
      return std::string(stored);
    case kZstd:
      return decompress(stored, kRecordBytesMax);
    default:
      return corrupt("stored value: unknown encoding");
  }
}

std::string seal_payload(Family family, std::string_view key, std::string_view descriptor,
                         std::span<const std::byte> payload) {
  std::string head = {kSchemaVersion, 0, 0, 0};
  append_little_endian32(static_cast<std::uint32_t>(descriptor.size()), head);
  const std::uint64_t sum =
      Sum(family, key).add(head).add(descriptor).add(view_of(payload)).digest();
  append_little_endian64(sum, head);
  head.append(descriptor);
  return head;
}

Result<PayloadView> unseal_payload(Family family, std::string_view key, std::string_view value) {
  if (value.size() < kPayloadHeaderBytes) return corrupt("stored value: shorter than its header");
  const std::string_view rest = value.substr(kPayloadHeaderBytes);
  const std::uint64_t found = little_endian64(value.substr(kPayloadSumAt));
  const std::uint64_t sum = Sum(family, key).add(value.substr(0, kPayloadSumAt)).add(rest).digest();
  if (found != sum) return bad_sum(found, sum);
  CAIRN_RETURN_IF_ERROR(check_version(value[0]));
  const std::size_t n_descriptor = little_endian32(value.substr(kDescriptorSizeAt));
  if (n_descriptor > rest.size()) return corrupt("stored value: descriptor longer than the value");
  return PayloadView{rest.substr(0, n_descriptor), rest.substr(n_descriptor)};
}

}  // namespace cairn::session
