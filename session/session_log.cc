// A path is a list of runs: only a rewind's event has a parent that is not the sequence before it,
// and every event knows the newest rewind at or before it (HeadState::last_rewind). So a path is
// found from its end without looking at what lies beside it, and read with one scan a run.
#include "session/session_log.h"

#include <algorithm>
#include <string>

namespace cairn::session {
void advance(HeadState& head, const LogEvent& event) {
  if (const auto* started = std::get_if<TurnStarted>(&event.body)) {
    head.n_tokens = started->n_prompt_tokens;
    head.appended_tokens = 0;
    head.open_turn = event.sequence;
    head.n_turns = started->turn + 1;
  } else if (const auto* generated = std::get_if<TokensGenerated>(&event.body)) {
    head.n_tokens += static_cast<std::int64_t>(generated->tokens.size());
  } else if (std::holds_alternative<TurnEnded>(event.body)) {
    head.open_turn = 0;
  } else if (std::holds_alternative<HeadMoved>(event.body)) {
    head.last_rewind = event.sequence;
  } else if (std::holds_alternative<ModelChanged>(event.body)) {
    head.last_model = event.sequence;
    head.stored_blocks = 0;
  }
}

Result<SessionLog> SessionLog::open(Storage& storage, const SessionRecord& record) {
  SessionLog log(storage);
  CAIRN_ASSIGN_OR_RETURN(log.parts_, log_parts(storage, record));
  return log;
}

const LogPart& SessionLog::part_of(std::uint64_t sequence) const {
  const auto holds = [&](const LogPart& part) { return sequence >= part.first; };
  const auto found = std::find_if(parts_.rbegin(), parts_.rend(), holds);
  return found == parts_.rend() ? parts_.front() : *found;
}

Status SessionLog::missing(std::uint64_t sequence) const {
  return corrupt("session " + part_of(sequence).session.to_hex() + ": event " +
                 std::to_string(sequence) + " is missing");
}

Result<LogEvent> SessionLog::read(std::uint64_t sequence) const {
  return read_event(*storage_, part_of(sequence).session, sequence);
}

Result<LogEvent> SessionLog::read_surely(std::uint64_t sequence) const {
  Result<LogEvent> event = read(sequence);
  if (event.status().code() == StatusCode::kNotFound) return missing(sequence);
  return event;
}

Result<std::uint64_t> SessionLog::begin_run(Run* run) const {
  CAIRN_ASSIGN_OR_RETURN(const LogEvent end, read_surely(run->last));
  run->first = end.head ? end.head->last_rewind : 0;
  if (run->first == 0) {
    run->first = 1;
    return std::uint64_t{0};
  }
  CAIRN_ASSIGN_OR_RETURN(const LogEvent rewind, read_surely(run->first));
  if (run->first > run->last || rewind.parent >= run->first) {
    return corrupt("session " + part_of(run->last).session.to_hex() + ": event " +
                   std::to_string(run->last) + " has an impossible place in the log");
  }
  return rewind.parent;
}

Status SessionLog::visit_run(const Run& run, const std::function<void(LogEvent&&)>& visit) const {
  std::uint64_t next = run.first;
  for (const LogPart& part : parts_) {
    const std::uint64_t last = std::min(run.last, part.last);
    if (next < part.first || next > last) continue;
    CAIRN_RETURN_IF_ERROR(visit_events(*storage_, part.session, next, [&](LogEvent&& event) {
      if (event.sequence != next || event.sequence > last) return false;
      if (event.sequence > run.first && event.parent != event.sequence - 1) return false;
      ++next;
      visit(std::move(event));
      return next <= last;
    }));
    if (next <= last) return missing(next);
  }
  return next > run.last ? Status() : missing(next);
}

Status SessionLog::visit_path(std::uint64_t last,
                              const std::function<void(LogEvent&&)>& visit) const {
  std::vector<Run> runs;
  while (last > 0) {
    Run& run = runs.emplace_back(Run{1, last});
    CAIRN_ASSIGN_OR_RETURN(last, begin_run(&run));
  }
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    CAIRN_RETURN_IF_ERROR(visit_run(*run, visit));
  }
  return {};
}

Result<bool> SessionLog::on_path(std::uint64_t event, std::uint64_t last) const {
  while (event > 0 && event <= last) {
    Run run{1, last};
    CAIRN_ASSIGN_OR_RETURN(last, begin_run(&run));
    if (event >= run.first) return true;
  }
  return false;
}

Result<bool> SessionLog::contains(std::uint64_t event) const {
  const LogPart& own = parts_.back();
  if (event < own.first) return on_path(event, own.first - 1);
  const Result<LogEvent> found = read(event);
  if (found.status().code() == StatusCode::kNotFound) return false;
  if (!found.ok()) return found.status();
  return true;
}

}  // namespace cairn::session
