// RocksDB appends to the file that CURRENT names and syncs it before it relies on it. It is a few
// hundred bytes for each table, and begun anew at each open. The layer below RocksDB says how far
// it was synced, which saves each synced commit a sync.
#include "session/manifest_watch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace cairn::session {
namespace {

constexpr std::string_view kManifestPrefix = "MANIFEST-";

// The number of the MANIFEST that CURRENT names; 0 where that cannot be told.
std::uint64_t current_number(const std::string& directory) {
  const FileDescriptor file(::open((directory + "/CURRENT").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t n = file.ok() ? ::read(file.get(), text.data(), text.size()) : 0;
  std::string_view name(text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  if (!name.starts_with(kManifestPrefix)) return 0;
  name.remove_prefix(kManifestPrefix.size());
  std::uint64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

std::string manifest_path(const std::string& directory, std::uint64_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, 6 - std::min<std::size_t>(digits.size(), 6), '0');
  return directory + "/" + std::string(kManifestPrefix) + digits;
}

struct SyncedBytes {
  std::mutex mutex;
  std::map<std::string, std::uint64_t, std::less<>> by_path;
};

SyncedBytes& synced_bytes() {
  static SyncedBytes* const kBytes = new SyncedBytes;  // threads may look at it at exit
  return *kBytes;
}

std::optional<std::uint64_t> bytes_synced(const std::string& path) {
  SyncedBytes& synced = synced_bytes();
  const std::lock_guard lock(synced.mutex);
  const auto found = synced.by_path.find(path);
  if (found == synced.by_path.end()) return std::nullopt;
  return found->second;
}

}  // namespace

void note_manifest_synced(const std::string& path, std::uint64_t n_bytes) {
  SyncedBytes& synced = synced_bytes();
  const std::lock_guard lock(synced.mutex);
  synced.by_path[path] = n_bytes;
}

void forget_manifest(const std::string& path) {
  SyncedBytes& synced = synced_bytes();
  const std::lock_guard lock(synced.mutex);
  synced.by_path.erase(path);
}

struct ManifestWatch::Hash {
  Hash() { XXH3_64bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
  XXH3_state_t* state = XXH3_createState();
};

ManifestWatch::ManifestWatch(std::string directory) : directory_(std::move(directory)) {}
ManifestWatch::ManifestWatch(ManifestWatch&&) noexcept = default;
ManifestWatch::~ManifestWatch() = default;

// Makes file_ the one that CURRENT names.
bool ManifestWatch::open_current() {
  const std::uint64_t number = current_number(directory_);
  if (number == 0) return false;
  if (number == number_ && file_.ok()) return true;
  file_ = FileDescriptor(::open(manifest_path(directory_, number).c_str(), O_RDONLY | O_CLOEXEC));
  hash_ = std::make_unique<Hash>();
  number_ = number;
  n_bytes_ = 0;
  return file_.ok() && hash_->state != nullptr;
}

// Hashes on until `n_bytes` are; false where the file has not so many.
bool ManifestWatch::read_to(std::uint64_t n_bytes) {
  std::array<char, 16 << 10> chunk;
  while (n_bytes_ < n_bytes) {
    const std::size_t wanted = std::min<std::uint64_t>(chunk.size(), n_bytes - n_bytes_);
    const ssize_t n = pread(file_.get(), chunk.data(), wanted, static_cast<off_t>(n_bytes_));
    if (n <= 0) return false;
    XXH3_64bits_update(hash_->state, chunk.data(), static_cast<std::size_t>(n));
    n_bytes_ += static_cast<std::uint64_t>(n);
  }
  return true;
}

ManifestPoint ManifestWatch::look() noexcept {
  try {
    look_again();
  } catch (...) {  // no memory for a name: what was seen last holds as well
  }
  return last_;
}

void ManifestWatch::look_again() {
  if (!open_current()) return;
  const std::optional<std::uint64_t> synced = bytes_synced(manifest_path(directory_, number_));
  struct stat info = {};
  if (!synced && fstat(file_.get(), &info) != 0) return;
  const std::uint64_t n_bytes = synced ? *synced : static_cast<std::uint64_t>(info.st_size);
  if (last_.number == number_ && last_.n_bytes == n_bytes) return;
  // RocksDB may be between writing and syncing it.
  if (!read_to(n_bytes) || (!synced && fdatasync(file_.get()) != 0)) return;
  last_ = {number_, n_bytes_, XXH3_64bits_digest(hash_->state)};
}

bool ManifestWatch::still_has(const ManifestPoint& noted) {
  const std::uint64_t number = current_number(directory_);
  if (noted.number == 0 || number > noted.number || number == 0) return true;
  if (number < noted.number) return false;
  return open_current() && read_to(noted.n_bytes) && XXH3_64bits_digest(hash_->state) == noted.hash;
}

}  // namespace cairn::session
