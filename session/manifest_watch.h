// How far the database's MANIFEST goes. RocksDB takes one that lost its end for an older one and
// then plays the log on top: what lay in the tables between is missing, without an error. So its
// length and hash are kept in the mark.
#ifndef CAIRN_SESSION_MANIFEST_WATCH_H_
#define CAIRN_SESSION_MANIFEST_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "session/file_descriptor.h"

namespace cairn::session {

struct ManifestPoint {
  std::uint64_t number = 0;  // in the file's name; 0 = not known
  std::uint64_t n_bytes = 0;
  std::uint64_t hash = 0;  // XXH3-64 of these bytes

  bool operator==(const ManifestPoint&) const = default;
};

// What is known to be on the disk of MANIFESTs that are being written by this process, by whom
// writes them. Safe from any thread.
void note_manifest_synced(const std::string& path, std::uint64_t n_bytes);
void forget_manifest(const std::string& path);

// Confined to one thread at a time.
class ManifestWatch {
 public:
  // Of the database in this directory.
  explicit ManifestWatch(std::string directory);
  ManifestWatch(ManifestWatch&&) noexcept;
  ~ManifestWatch();

  // As far as it is durable now, or made so by the call. Reads what was added since the last call.
  // Where that fails, the point before.
  ManifestPoint look() noexcept;

  // Whether the MANIFEST still begins as noted, or is a later one. Look before the database is
  // opened: that makes a new one.
  bool still_has(const ManifestPoint& noted);

 private:
  struct Hash;
  bool open_current();
  void look_again();
  bool read_to(std::uint64_t n_bytes);

  std::string directory_;
  FileDescriptor file_;
  std::unique_ptr<Hash> hash_;
  std::uint64_t number_ = 0, n_bytes_ = 0;  // of what was hashed
  ManifestPoint last_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_MANIFEST_WATCH_H_
