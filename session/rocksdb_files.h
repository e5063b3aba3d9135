// How RocksDB reaches its files. Included by session/rocksdb_*.cc only.
#ifndef CAIRN_SESSION_ROCKSDB_FILES_H_
#define CAIRN_SESSION_ROCKSDB_FILES_H_

#include <rocksdb/env.h>

#include <string>

namespace cairn::session {

// The default environment, but every file it makes is readable by its owner only. Lives as long as
// the process: RocksDB's threads may look at it after a database was closed.
rocksdb::Env* database_env();

// To be alive while tables from outside the database's directory are ingested, on the thread that
// does it. Two faults of RocksDB 7.8.3 become harmless:
// - Where the list of files could not be written to its end, the new tables are removed, though the
//   list may name them, and a list that names a missing table cannot be opened. In the scope no
//   file of the database is removed; the next open removes what is in no list.
// - A read of a new table that fails is overlooked (the table is then taken over with the wrong
//   bounds, and its keys are lost) or ends the process by an assertion. In the scope a table from
//   outside is read as a whole when it is opened, and only that can fail.
class IngestionScope {
 public:
  // Borrows the name of the database's directory.
  explicit IngestionScope(const std::string& database);
  IngestionScope(const IngestionScope&) = delete;
  IngestionScope& operator=(const IngestionScope&) = delete;
  ~IngestionScope();
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_FILES_H_
