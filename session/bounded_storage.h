// A storage that stays below a quota: every write asks the store's Space first.
#ifndef CAIRN_SESSION_BOUNDED_STORAGE_H_
#define CAIRN_SESSION_BOUNDED_STORAGE_H_

#include <memory>

#include "session/space.h"
#include "session/storage.h"

namespace cairn::session {

// Passes everything on to `inner`. Writes that do not fit fail with kOutOfDisk and change nothing.
// Borrows the space.
std::unique_ptr<Storage> bound_storage(std::unique_ptr<Storage> inner, Space& space);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BOUNDED_STORAGE_H_
