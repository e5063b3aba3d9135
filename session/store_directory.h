// The directory of a store: who owns it, which format it has, where the database lies.
#ifndef CAIRN_SESSION_STORE_DIRECTORY_H_
#define CAIRN_SESSION_STORE_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "session/file_descriptor.h"
#include "session/records.h"

namespace cairn::session {

// What the FORMAT file says. It repeats the header in the database so that a version that cannot
// read the database is refused before it touches it.
enum class FormatFile : std::uint8_t { kMissing, kDamaged, kValid };

// A store's directory as it can be seen without its lock.
struct DirectoryView {
  FormatFile format_file = FormatFile::kMissing;
  StoreHeader format;  // as FORMAT has it; meaningful where format_file is kValid
  std::string owner;   // who has it open, for people; empty = nobody
};
// Changes nothing. Fails with kNotFound (no store there), kUnsupported, kIoError.
Result<DirectoryView> look_into(const std::string& path);

// Allocated blocks of every file below the store's directory, its own included.
Result<std::int64_t> bytes_on_disk(const std::string& path);

// Owns the directory for as long as it lives. Confined to one thread.
class StoreDirectory {
 public:
  // Creates the directory (mode 0700) if it is missing and may be created, takes its lock, reads
  // FORMAT. Fails with
  //   kNotFound         no store there and none to be created
  //   kBusy             another owner holds it: the message has its pid
  //   kUnsupported      made by a version whose stores this one cannot read, or on a network file
  //                     system that is not allowed
  //   kInvalidArgument  not a directory, or one with other things in it, or of another user
  //   kOutOfDisk, kIoError
  static Result<StoreDirectory> open(const std::string& path, bool create_if_missing,
                                     bool allow_network_file_system = false);

  const std::string& path() const { return path_; }
  std::string database_path() const { return path_ + "/db"; }
  std::string mark_path() const { return path_ + "/MARK"; }

  FormatFile format_file() const { return format_file_; }
  // As FORMAT has it; meaningful where format_file() is kValid.
  const StoreHeader& format() const { return format_; }
  // Replaces FORMAT, atomically and durably.
  Status write_format(const StoreHeader& header);

  Result<std::int64_t> bytes_on_disk() const { return session::bytes_on_disk(path_); }

 private:
  StoreDirectory(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
  FormatFile format_file_ = FormatFile::kMissing;
  StoreHeader format_;
};

// The name of the network file system whose f_type (statfs) this is; null for others.
const char* network_file_system(std::uint32_t type);

// kUnsupported unless this build can read a store with this header.
Status check_readable(const StoreHeader& header, const std::string& path);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORE_DIRECTORY_H_
