// The log of a session as a reader of its tree sees it: its own events, and before them those that
// a fork shares with its origins.
#ifndef CAIRN_SESSION_SESSION_LOG_H_
#define CAIRN_SESSION_SESSION_LOG_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "session/records.h"
#include "session/storage.h"
#include "session/stored_records.h"

namespace cairn::session {

// What the event does to the head, but for what only its writer knows: tokens of messages, where a
// rewind goes, how much a changed model counts.
void advance(HeadState& head, const LogEvent& event);

// Const methods are safe from any thread; the storage outlives it. A missing or damaged event is
// kCorrupt, with the session and the event in the message.
class SessionLog {
 public:
  // Reads the records of the session's origins, nothing else.
  static Result<SessionLog> open(Storage& storage, const SessionRecord& record);

  // kNotFound where there is none.
  Result<LogEvent> read(std::uint64_t sequence) const;
  // The events from the first to `last`, parents before children. The work is that of reading
  // these: nothing is read of branches beside them.
  Status visit_path(std::uint64_t last, const std::function<void(LogEvent&&)>& visit) const;
  // Whether `event` lies on the path to `last`. Reads two events for each rewind between them.
  Result<bool> on_path(std::uint64_t event, std::uint64_t last) const;
  // Whether the session may go to `event`: one of its own, or one on the path to its fork point.
  Result<bool> contains(std::uint64_t event) const;

 private:
  // Sequences that follow each other on a path without a gap.
  struct Run {
    std::uint64_t first = 1, last = 0;
  };

  explicit SessionLog(Storage& storage) : storage_(&storage) {}
  const LogPart& part_of(std::uint64_t sequence) const;
  Status missing(std::uint64_t sequence) const;
  Result<LogEvent> read_surely(std::uint64_t sequence) const;  // kCorrupt where there is none
  // The last event of the run before the one that ends at `*run`; sets where that one begins. 0 =
  // there is no run before.
  Result<std::uint64_t> begin_run(Run* run) const;
  Status visit_run(const Run& run, const std::function<void(LogEvent&&)>& visit) const;

  Storage* storage_;
  std::vector<LogPart> parts_;  // oldest first, the last is the session's own
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_LOG_H_
