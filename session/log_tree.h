// A session's own log as a tree, without what its events say: which places are kept besides the
// head, and which events lead nowhere any more.
#ifndef CAIRN_SESSION_LOG_TREE_H_
#define CAIRN_SESSION_LOG_TREE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "session/records.h"
#include "session/storage.h"

namespace cairn::session {

// A mark, or the end of a branch that a rewind left, and how far its state was stored.
struct LogPlace {
  std::uint64_t event = 0;
  bool rewound = false;  // the end of a branch
  std::string name = {};
  std::int64_t time_ms = 0;  // when it was set or left
  std::int64_t n_tokens = 0;
  BlockKey chain_key{};
  std::uint32_t stored_blocks = 0;
};

// Confined to one thread.
class LogTree {
 public:
  // Reads all events of the session's own log, whichever branch they are on. Fails as visit_events.
  static Result<LogTree> read(Storage& storage, const SessionRecord& record);

  // Marks, and the ends of branches that are there and not on the path to `head`; oldest first. An
  // end may be an event of the session's origins.
  std::vector<LogPlace> places(std::uint64_t head) const;

  // The event and those before it are needed.
  void keep(std::uint64_t event);
  // Whether the event is in this log and nothing that is needed leads through it.
  bool is_unneeded(std::uint64_t event) const;
  // Those that are not needed, ascending.
  std::vector<std::uint64_t> unneeded() const;
  // The newest event of the origins that is needed, 0 where none is.
  std::uint64_t needed_of_origins() const { return needed_of_origins_; }

 private:
  // Adds the event and those before it, up to one that was there before. Returns the first that is
  // not added.
  std::uint64_t add_path(std::uint64_t event, std::set<std::uint64_t>& path) const;

  std::uint64_t origin_sequence_ = 0;  // of a fork: events up to it are its origin's
  std::uint64_t needed_of_origins_ = 0;
  std::map<std::uint64_t, std::uint64_t> parents_;  // by event
  std::set<std::uint64_t> rewinds_, kept_;
  std::vector<LogPlace> marks_, left_;  // left_: as each rewind says it
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_LOG_TREE_H_
