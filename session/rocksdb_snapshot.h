// A database seen from outside while another process owns it.
#ifndef CAIRN_SESSION_ROCKSDB_SNAPSHOT_H_
#define CAIRN_SESSION_ROCKSDB_SNAPSHOT_H_

#include <memory>
#include <string>

#include "session/storage.h"

namespace cairn::session {

// The database in `directory` as of one instant of this call, read-only: it stays that whatever the
// owner does meanwhile. Takes no lock and changes nothing there. Needs room for the database's
// write-ahead log and manifest in the directory for temporary files while it runs, and keeps the
// disk space of tables that the owner drops until it is destroyed. Fails with kNotFound (no
// database), kCorrupt, kBusy (it kept changing for ten seconds), kOutOfDisk, kIoError.
Result<std::unique_ptr<Storage>> open_rocksdb_snapshot(const std::string& directory);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_SNAPSHOT_H_
