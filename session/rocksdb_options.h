// How our databases are configured. Included by session/rocksdb_*.cc only.
#ifndef CAIRN_SESSION_ROCKSDB_OPTIONS_H_
#define CAIRN_SESSION_ROCKSDB_OPTIONS_H_

#include <rocksdb/db.h>

#include <array>
#include <string>
#include <vector>

#include "session/storage.h"

namespace cairn::session {

// In the order of Family.
inline constexpr std::array<const char*, kFamilyCount> kFamilyNames = {
    "default", "sessions", "events", "block_index", "blocks", "tail_index", "tails"};

inline bool holds_payloads(Family family) {
  return family == Family::kBlocks || family == Family::kTails;
}

// Listeners are the caller's to add.
rocksdb::DBOptions database_options(const std::string& directory);

// Our families in the order of Family, then those that a later version may have added: RocksDB
// opens all or none, and the header that refuses the version is read after opening.
std::vector<rocksdb::ColumnFamilyDescriptor> family_descriptors(const std::string& directory,
                                                                const rocksdb::DBOptions& options);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_OPTIONS_H_
