// Large values as tables of their own, past the log. Included by session/rocksdb_*.cc only.
#ifndef CAIRN_SESSION_ROCKSDB_INGESTION_H_
#define CAIRN_SESSION_ROCKSDB_INGESTION_H_

#include <rocksdb/db.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "session/rocksdb_error.h"
#include "session/storage.h"

namespace cairn::session {

// Safe from any thread.
class BulkIngestion {
 public:
  // Borrows the database and its handles, in the order of Family. The tables are built in `folder`,
  // a directory on the database's file system that belongs to this class: it is made, and what a
  // crash left in it is removed.
  static Result<std::unique_ptr<BulkIngestion>> open(
      const std::string& folder, rocksdb::DB& db,
      const std::vector<rocksdb::ColumnFamilyHandle*>& handles, ErrorLatch& latch);

  // Writes the bulk changes of a batch, all families at one instant; they are durable when it
  // returns. kInvalidArgument where a key comes twice, kOutOfDisk where the tables do not fit: then
  // nothing has changed. Other errors are latched.
  Status ingest(const WriteBatch& batch);

  std::int64_t bytes_written() const { return bytes_written_.load(); }  // of tables

 private:
  struct Table {
    Family family;
    std::string path;
  };
  using Changes = std::vector<const WriteBatch::Change*>;

  BulkIngestion(std::string folder, rocksdb::DB& db,
                const std::vector<rocksdb::ColumnFamilyHandle*>& handles, ErrorLatch& latch);
  rocksdb::Status write_table(Family family, Changes changes, const std::string& path);
  rocksdb::Status hand_over(const std::vector<Table>& tables);

  std::string folder_;
  rocksdb::DB& db_;
  const std::vector<rocksdb::ColumnFamilyHandle*>& handles_;
  ErrorLatch& latch_;
  std::vector<rocksdb::Options> options_;  // of each family's tables
  std::atomic<std::uint64_t> next_file_ = 1;
  std::atomic<std::int64_t> bytes_written_ = 0;
  std::mutex mutex_;  // held while tables are handed over: one at a time
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_INGESTION_H_
