// A store described for people: what the command-line tools show.
#ifndef CAIRN_SESSION_SESSION_VIEW_H_
#define CAIRN_SESSION_SESSION_VIEW_H_

#include <string>

#include "cairn/store.h"
#include "session/storage.h"

namespace cairn::session {

// Fails with kNotFound, kCorrupt. Reads the session's whole log and the block index.
Result<SessionTree> show_session(Storage& storage, const std::string& name);

// Counts keys and adds up files. Memory and quota are the owner's to know: 0.
Result<StoreStats> read_stats(Storage& storage, const std::string& path);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_VIEW_H_
