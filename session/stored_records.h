// Typed reading of what a Storage holds: shared by the owner of a store (SessionStore) and by those
// who look at it from outside (StoreReader). All check sums and decode; none repairs.
#ifndef CAIRN_SESSION_STORED_RECORDS_H_
#define CAIRN_SESSION_STORED_RECORDS_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "session/records.h"
#include "session/storage.h"

namespace cairn::session {

// The same failure, said of `subject`; ok stays ok.
Status with_subject(const std::string& subject, const Status& status);
std::string subject_of(const SessionId& id);
// kNotFound: there is no session of this name or id.
Status no_session(const std::string& which);

// The content of the record under `key`. kNotFound, or as unseal_record.
Result<std::string> get_record(Storage& storage, Family family, const std::string& key);

// One pair of a scan of the family.
Result<SessionRecord> decode_session_entry(std::string_view key, std::string_view value);
Result<LogEvent> decode_log_entry(std::string_view key, std::string_view value);
Result<BlockRecord> decode_block_entry(std::string_view key, std::string_view value);
Result<TailRecord> decode_tail_entry(std::string_view key, std::string_view value);

// kNotFound where there is none.
Result<SessionRecord> load_session(Storage& storage, const SessionId& id);
Result<SessionRecord> find_session(Storage& storage, std::string_view name);
// Newest use first, equal times by name; those removed are among them.
Result<std::vector<SessionRecord>> list_sessions(Storage& storage);

// Whose events make up the log of a session: its own, and before them those that a fork shares with
// its origins. Oldest first; the last is the session itself.
struct LogPart {
  SessionId session;
  std::uint64_t first = 1, last = UINT64_MAX;
};
// kCorrupt where an origin is missing or damaged.
Result<std::vector<LogPart>> log_parts(Storage& storage, const SessionRecord& record);

// One event of the session's own log. kNotFound where there is none.
Result<LogEvent> read_event(Storage& storage, const SessionId& id, std::uint64_t sequence);

// Visits what the event says of stored chains of blocks: the key of the last one and their number,
// 0 = none. Both may be changed.
void visit_chains(LogEvent& event,
                  const std::function<void(BlockKey& key, std::uint32_t& n_blocks)>& visit);

// The events of the session's own log from `first` on, ascending; `visit` returns false to stop.
// kCorrupt if one is damaged, kUnsupported if one is of a kind that must be known and is not.
Status visit_events(Storage& storage, const SessionId& id, std::uint64_t first,
                    const std::function<bool(LogEvent&&)>& visit);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORED_RECORDS_H_
