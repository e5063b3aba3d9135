// Reads every value of a store and checks it against all others: what `cairn verify` runs.
#ifndef CAIRN_SESSION_STORE_VERIFIER_H_
#define CAIRN_SESSION_STORE_VERIFIER_H_

#include "cairn/store.h"
#include "session/storage.h"
#include "session/store_directory.h"

namespace cairn::session {

// A finding is a problem where something acknowledged is damaged, missing or contradicts itself,
// and a note where nothing is lost: garbage, state that will be computed again. Needs memory for
// the block index and the token ids of all blocks: about 800 bytes a block. Fails with kIoError and
// kOutOfMemory only: damage is in the report.
Result<VerifyReport> verify_store(Storage& storage, const DirectoryView& directory);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORE_VERIFIER_H_
