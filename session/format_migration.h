// From the formats of earlier versions to this one's (FORMAT.md section 9).
#ifndef CAIRN_SESSION_FORMAT_MIGRATION_H_
#define CAIRN_SESSION_FORMAT_MIGRATION_H_

#include "cairn/status.h"
#include "session/storage.h"
#include "session/tail_store.h"

namespace cairn::session {

// Moves tails under numbers and fills in what session records of format 1 lack. What was done
// before an interruption is not done again. Tails that do not check, or for which the disk has no
// room, are dropped. Fails like reads and writes of `storage`, and where a log cannot be read.
Status migrate_from_format_1(Storage& storage, TailStore& tails);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_FORMAT_MIGRATION_H_
