// How RocksDB reaches its files. Included by session/rocksdb_*.cc only.
#ifndef CAIRN_SESSION_ROCKSDB_FILES_H_
#define CAIRN_SESSION_ROCKSDB_FILES_H_

#include <rocksdb/env.h>
#include <rocksdb/io_status.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rocksdb {
class FileSystem;
}

namespace cairn::session {

// The default environment, but every file it makes is readable by its owner only. Lives as long as
// the process: RocksDB's threads may look at it after a database was closed.
rocksdb::Env* database_env();

// To be alive while tables are built outside the database's directory and ingested, on the thread
// that does it. Each table is synced once, by its name in the database, before RocksDB's list of
// files names any of them; and the directory once after all are there. Besides, two faults of
// RocksDB 7.8.3 become harmless:
// - Where the list of files could not be written to its end, the new tables are removed, though the
//   list may name them, and a list that names a missing table cannot be opened. In the scope no
//   file of the database is removed; the next open removes what is in no list.
// - A read of a new table that fails is overlooked (the table is then taken over with the wrong
//   bounds, and its keys are lost) or ends the process by an assertion. In the scope a table from
//   outside is read as a whole when it is opened, and only that can fail.
class IngestionScope {
 public:
  // Borrows the name of the database's directory. All `n_tables` are ingested by one call.
  IngestionScope(const std::string& database, std::size_t n_tables);
  IngestionScope(const IngestionScope&) = delete;
  IngestionScope& operator=(const IngestionScope&) = delete;
  ~IngestionScope();

  // For the file system.
  bool has_database_of(const std::string& path) const;  // whether the file is the database's
  void note_made(const std::string& path);              // a table is in the database's directory
  bool is_unsynced(const std::string& path) const;
  bool is_reserving() const;      // no table is there yet
  bool waits_for_tables() const;  // some are there, not all
  rocksdb::IOStatus sync_tables(rocksdb::FileSystem& files);

 private:
  const std::string& database_;
  const std::size_t n_tables_;
  bool any_made_ = false;
  std::vector<std::string> unsynced_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_FILES_H_
