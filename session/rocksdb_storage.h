// Storage on RocksDB 7.8. The options are in rocksdb_storage.cc with the reason of each.
#ifndef CAIRN_SESSION_ROCKSDB_STORAGE_H_
#define CAIRN_SESSION_ROCKSDB_STORAGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "session/storage.h"

namespace cairn::session {

struct RocksdbOptions {
  bool create_if_missing = true;
  // Writes fail with kOutOfDisk, and change nothing, where the file system would have less than
  // this left; small ones (the log, removals) may use half of it. Opening after a crash needs up to
  // twice the log's 32 MiB. 0 = write until the disk is full.
  std::int64_t free_bytes_kept = std::int64_t{96} << 20;
};

// Opens the database in `directory`, replaying what a crash left in its log. The caller makes sure
// that no other process has it open (StoreDirectory's lock). Destroying the storage flushes it.
// Fails with kNotFound (missing and not to be created), kCorrupt, kBusy, kOutOfDisk, kIoError.
Result<std::unique_ptr<Storage>> open_rocksdb_storage(const std::string& directory,
                                                      const RocksdbOptions& options = {});

// Opens a database that no process writes to, and changes nothing in it: what a crash left in its
// log is replayed in memory, writes fail with kUnsupported. Every file is open when this returns:
// the directory may be removed then. Fails with kNotFound, kCorrupt, kIoError.
Result<std::unique_ptr<Storage>> open_rocksdb_read_only(const std::string& directory);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_STORAGE_H_
