// A storage that encrypts every value, and the names in keys, before another storage sees them
// (FORMAT.md section 8).
#ifndef CAIRN_SESSION_ENCRYPTED_STORAGE_H_
#define CAIRN_SESSION_ENCRYPTED_STORAGE_H_

#include <memory>

#include "session/storage.h"
#include "session/store_keys.h"

namespace cairn::session {

// The store's header stays as it is: the wrap of the key is in it. A value that does not decrypt
// under its key and family is kCorrupt from get, and empty, which no sealed value is, from
// multi_get, view and scan: there, too, the caller finds one damaged value among others.
std::unique_ptr<Storage> encrypted_storage(std::unique_ptr<Storage> inner, StoreKeys keys);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ENCRYPTED_STORAGE_H_
