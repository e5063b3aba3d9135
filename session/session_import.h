// A session made of a file that export_session wrote, perhaps in another store.
#ifndef CAIRN_SESSION_SESSION_IMPORT_H_
#define CAIRN_SESSION_SESSION_IMPORT_H_

#include <string>

#include "session/session_store.h"

namespace cairn::session {

// Reads the whole file twice: first to check it, then to write its blocks, and last, at one
// instant, everything else. What fails before that leaves blocks that no session reaches. `name`:
// empty = as it was. Fails with kNotFound (no file), kAlreadyExists (the name), kInvalidArgument
// (the name), kCorrupt, kUnsupported, kOutOfDisk, kIoError.
Result<SessionRecord> import_session(SessionStore& store, const std::string& file,
                                     const std::string& name);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_IMPORT_H_
