// Two slots, each in a page of its own, written in turn: a write that is torn leaves the other. The
// slot with the higher counter and a right checksum counts.
#include "session/commit_mark.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>

#include "session/storage_key.h"

namespace cairn::session {
namespace {

constexpr std::string_view kMagic = "cairnmrk";
constexpr std::uint32_t kMarkVersion = 1;
constexpr off_t kSlotBytes = 4096;
constexpr int kSlots = 2;
// Magic, version, zero, counter, boot, three points of 24 bytes, the MANIFEST's; then the checksum.
constexpr std::size_t kContentBytes = 8 + 4 + 4 + 8 + 16 + 4 * 24;
constexpr std::size_t kSealedBytes = kContentBytes + 8;

Status failed(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return {full ? StatusCode::kOutOfDisk : StatusCode::kIoError,
          "store: " + what + " " + path + ": " + std::generic_category().message(error),
          "close the store and open it again"};
}

// So that a new file is found after a power cut.
Status sync_folder_of(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok() || fsync(directory.get()) != 0) return failed("sync", folder, errno);
  return {};
}

void append(const CommitPoint& point, std::string& out) {
  append_little_endian64(point.number, out);
  append_little_endian64(point.digest.low, out);
  append_little_endian64(point.digest.high, out);
}

CommitPoint take_point(std::string_view& bytes) {
  const CommitPoint point = {little_endian64(bytes),
                             {little_endian64(bytes.substr(8)), little_endian64(bytes.substr(16))}};
  bytes.remove_prefix(24);
  return point;
}

// Into `out`, which has room: a mark is written when there may be no memory.
void encode_slot(const MarkContent& content, std::uint64_t counter, std::string& out) {
  out.assign(kMagic);
  append_little_endian32(kMarkVersion, out);
  append_little_endian32(0, out);
  append_little_endian64(counter, out);
  out.append(reinterpret_cast<const char*>(content.boot.data()), content.boot.size());
  append(content.pending, out);
  append(content.acknowledged, out);
  append(content.synced, out);
  append_little_endian64(content.manifest.number, out);
  append_little_endian64(content.manifest.n_bytes, out);
  append_little_endian64(content.manifest.hash, out);
  append_little_endian64(XXH3_64bits(out.data(), out.size()), out);
}

struct Slot {
  std::uint64_t counter = 0;
  MarkContent content;
};

std::optional<Slot> decode_slot(std::string_view bytes) {
  if (bytes.size() < kSealedBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  if (XXH3_64bits(bytes.data(), kContentBytes) != little_endian64(bytes.substr(kContentBytes))) {
    return std::nullopt;
  }
  if (little_endian32(bytes.substr(kMagic.size())) != kMarkVersion) return std::nullopt;
  Slot slot;
  slot.counter = little_endian64(bytes.substr(16));
  std::copy_n(bytes.begin() + 24, slot.content.boot.size(), slot.content.boot.begin());
  bytes.remove_prefix(40);
  slot.content.pending = take_point(bytes);
  slot.content.acknowledged = take_point(bytes);
  slot.content.synced = take_point(bytes);
  slot.content.manifest = {little_endian64(bytes), little_endian64(bytes.substr(8)),
                           little_endian64(bytes.substr(16))};
  return slot;
}

}  // namespace

StateDigest& StateDigest::operator+=(const StateDigest& other) {
  low += other.low;
  high += other.high;
  return *this;
}

StateDigest& StateDigest::operator-=(const StateDigest& other) {
  low -= other.low;
  high -= other.high;
  return *this;
}

Result<CommitMark> CommitMark::open(const std::string& path) {
  CommitMark mark(path);
  const bool made = access(path.c_str(), F_OK) != 0;
  mark.file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!mark.file_.ok()) return failed("open", path, errno);
  if (made) CAIRN_RETURN_IF_ERROR(sync_folder_of(path));
  CAIRN_RETURN_IF_ERROR(mark.read());
  mark.slot_.reserve(kSealedBytes);
  return mark;
}

Status CommitMark::read() {
  std::array<char, kSealedBytes> bytes{};
  for (int i = 0; i < kSlots; ++i) {
    const ssize_t n = pread(file_.get(), bytes.data(), bytes.size(), i * kSlotBytes);
    if (n < 0) return failed("read", path_, errno);
    if (n > 0) is_empty_ = false;
    const auto slot = decode_slot({bytes.data(), static_cast<std::size_t>(n)});
    if (!slot || slot->counter < counter_) continue;
    counter_ = slot->counter;
    found_ = slot->content;
  }
  return {};
}

Status CommitMark::write(const MarkContent& content, bool sync) {
  encode_slot(content, ++counter_, slot_);
  const off_t at = static_cast<off_t>(counter_ % kSlots) * kSlotBytes;
  const ssize_t n = pwrite(file_.get(), slot_.data(), slot_.size(), at);
  if (n != static_cast<ssize_t>(slot_.size()))
    return failed("write", path_, n < 0 ? errno : ENOSPC);
  if (sync && fdatasync(file_.get()) != 0) return failed("sync", path_, errno);
  return {};
}

}  // namespace cairn::session
