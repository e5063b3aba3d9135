// One session of a store as a file.
#ifndef CAIRN_SESSION_SESSION_EXPORT_H_
#define CAIRN_SESSION_SESSION_EXPORT_H_

#include <string>

#include "session/storage.h"

namespace cairn::session {

// Writes the session's record, its log (what leads from its origins to it included), and as
// much of its blocks and tails as checks and hangs together. Fails with kNotFound (no session),
// kCorrupt (its record or log), kAlreadyExists (the file), kOutOfDisk, kIoError; no file then.
Status export_session(Storage& storage, const std::string& name, const std::string& file);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_EXPORT_H_
