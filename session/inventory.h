// What is stored, and who needs it: the ground for every decision of a collection.
#ifndef CAIRN_SESSION_INVENTORY_H_
#define CAIRN_SESSION_INVENTORY_H_

#include <cstdint>
#include <map>
#include <vector>

#include "session/eviction.h"
#include "session/reachability.h"
#include "session/session_store.h"

namespace cairn::session {

struct Inventory {
  struct Slot {
    SessionId session;
    std::uint64_t slot = 0;
  };

  ReachGraph graph;               // with the reach, the value and the pins of all sessions
  std::vector<StoredTail> tails;  // each state once
  std::vector<std::vector<Slot>> slots_of_tail;
  std::vector<std::uint64_t> tail_numbers;  // 0 = format 1
  std::vector<std::uint32_t> namespaces_in_use;
};

// Marks and branches are in the logs only. Logs are long and only grow, so what was found in them
// is remembered. Confined to one thread.
class LoggedRoots {
 public:
  // The places that the session's log names. Reads what was written since the last call.
  Result<std::vector<Root>> of(Storage& storage, const SessionRecord& record);

 private:
  struct Found {
    std::uint64_t next_sequence = 1;
    std::uint64_t n_removed = 0;  // events, as of the last call; more since: begin again
    std::vector<Root> roots;
  };
  std::map<SessionId, Found> sessions_;
};

// Reads the indexes and the session records. Keep a watch (BlockStore) from before on for as long
// as it is acted upon. A session whose log is damaged reaches what its record says.
Result<Inventory> take_inventory(SessionStore& store, LoggedRoots& logged, std::int64_t now_ms);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_INVENTORY_H_
