// A storage that numbers its batches and keeps a high-water mark of them, so that a database which
// is older than what was acknowledged is noticed when it is opened.
#ifndef CAIRN_SESSION_MARKED_STORAGE_H_
#define CAIRN_SESSION_MARKED_STORAGE_H_

#include <memory>
#include <string>

#include "cairn/store.h"
#include "session/commit_mark.h"
#include "session/manifest_watch.h"
#include "session/storage.h"

namespace cairn::session {

struct MarkedStorage {
  std::unique_ptr<Storage> storage;
  StoreRecovery recovery;  // what the comparison found; the mark begins anew with the next batch
};

// A mark that waits for its database.
struct OpenedMark {
  CommitMark mark;
  ManifestWatch manifest;
  bool manifest_whole = true;  // as far as it was noted
};

// Opens the file `mark_path` and looks at the database's directory as it was left: call it before
// the database is opened. Fails with kOutOfDisk, kIoError.
Result<OpenedMark> open_mark(const std::string& mark_path, const std::string& database_path);

// Compares `inner`, the opened database, with the mark. The storage merges batches that are written
// at the same time: they share one sync of the disk, and the database sees them in the order of
// their numbers. A batch is acknowledged when the mark has it too; where the mark cannot be
// written, it fails like a write of the database. Fails as the reads of `inner`.
Result<MarkedStorage> mark_storage(std::unique_ptr<Storage> inner, OpenedMark mark);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_MARKED_STORAGE_H_
