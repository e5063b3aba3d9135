// One collection: takes an inventory, gives up what is of the least use, gives its disk space back.
#ifndef CAIRN_SESSION_COLLECTION_H_
#define CAIRN_SESSION_COLLECTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"
#include "session/inventory.h"
#include "session/session_store.h"

namespace cairn::session {

// Commits and restores go on meanwhile: removals come in small batches, and whatever somebody began
// to rely on since the inventory stays. Confined to one thread; one collection of a store at a
// time.
class Collection {
 public:
  // Called between pieces of work with the bytes that the last one rewrote; false ends the
  // collection early.
  using Pause = std::function<bool(std::int64_t n_rewritten)>;

  // Borrows the store.
  Collection(SessionStore& store, Pause pause) : store_(store), pause_(std::move(pause)) {}

  // Removes garbage, then evicts until the directory takes at most `target_bytes`, as far as that
  // is possible. Fails with what the storage says.
  Result<CollectReport> make_room(std::int64_t target_bytes);

  // Removes the rewound branches of all sessions that run no turn. Returns the number of events.
  Result<std::int64_t> remove_branches();

  // SessionStore::remove_session, and then every block that no session reaches. Makes sure that
  // none of it is in the store's files any more.
  Result<CollectReport> remove_session(const SessionId& id);

 private:
  using Number = std::pair<std::uint32_t, std::uint64_t>;  // namespace and number of a block
  using Numbers = std::set<Number>;

  Result<CollectReport> erase_unreachable();
  Result<Inventory> take();
  Status remove(const Inventory& inventory, const std::vector<Victim>& victims,
                BlockStore::Watch& watch, CollectReport& report);
  Status remove_tail(const Inventory& inventory, std::uint32_t tail, CollectReport& report);
  Status remove_damaged(const Inventory& inventory);
  Status drop_dead_tables(const Inventory& inventory);
  Result<std::vector<Number>> find(const Numbers& numbers);
  // Rewrites the tables that still hold blocks of these numbers, as far as the quota has room for
  // having them twice.
  Status erase(const Numbers& numbers);
  Status erase_texts();
  Status measure(CollectReport& report);

  SessionStore& store_;
  const Pause pause_;
  LoggedRoots logged_;

  // Of the collection that runs.
  bool stopped_ = false;
  std::map<std::uint32_t, std::uint64_t> settled_;  // see BlockStore::settled_numbers
  Numbers dead_;                                    // forgotten by the index
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_COLLECTION_H_
