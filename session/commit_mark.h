// The store's high-water mark: a small file beside the database that says how far the commits got
// (FORMAT.md section 1). A database that lost its newest commits to a flipped bit, or was replaced
// by an older copy, opens without an error; the mark knows better.
#ifndef CAIRN_SESSION_COMMIT_MARK_H_
#define CAIRN_SESSION_COMMIT_MARK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/status.h"
#include "session/boot_id.h"
#include "session/file_descriptor.h"
#include "session/manifest_watch.h"

namespace cairn::session {

// A sum over pairs of key and value that does not depend on their order.
struct StateDigest {
  std::uint64_t low = 0, high = 0;

  bool operator==(const StateDigest&) const = default;
  StateDigest& operator+=(const StateDigest& other);
  StateDigest& operator-=(const StateDigest& other);
};

// A state of the database: how many commits it has seen, and what they left.
struct CommitPoint {
  std::uint64_t number = 0;
  StateDigest digest;

  bool operator==(const CommitPoint&) const = default;
};

struct MarkContent {
  CommitPoint pending;       // may be in the database
  CommitPoint acknowledged;  // is in the database
  CommitPoint synced;        // is there after a power cut too
  ManifestPoint manifest;    // with the synced state
  BootId boot{};             // of the machine's start the writer ran in; 0 = unknown

  bool operator==(const MarkContent&) const = default;
};

// Owns the file. Confined to one thread at a time.
class CommitMark {
 public:
  // Opens or makes the file. Fails with kOutOfDisk, kIoError.
  static Result<CommitMark> open(const std::string& path);

  // What the file said when it was opened; nothing where it was empty (new) or damaged.
  const std::optional<MarkContent>& found() const { return found_; }
  bool was_empty() const { return is_empty_; }

  // Replaces the content; the one before stays until the new one is whole. With `sync` it survives
  // a power cut when the call returns. Fails with kOutOfDisk, kIoError.
  Status write(const MarkContent& content, bool sync);

 private:
  explicit CommitMark(std::string path) : path_(std::move(path)) {}
  Status read();

  std::string path_;
  FileDescriptor file_;
  std::string slot_;  // to write
  std::optional<MarkContent> found_;
  bool is_empty_ = true;
  std::uint64_t counter_ = 0;  // of the newest slot
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_COMMIT_MARK_H_
