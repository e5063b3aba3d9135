#include "session/log_tree.h"

#include <algorithm>

#include "session/stored_records.h"

namespace cairn::session {

Result<LogTree> LogTree::read(Storage& storage, const SessionRecord& record) {
  LogTree tree;
  if (record.origin) tree.origin_sequence_ = record.origin_sequence;
  CAIRN_RETURN_IF_ERROR(visit_events(storage, record.id, 1, [&](LogEvent&& event) {
    tree.parents_[event.sequence] = event.parent;
    if (auto* mark = std::get_if<MarkSet>(&event.body)) {
      tree.marks_.push_back({event.sequence, false, std::move(mark->name), event.time_ms,
                             mark->n_tokens, mark->chain_key, mark->stored_blocks});
    } else if (const auto* moved = std::get_if<HeadMoved>(&event.body)) {
      tree.rewinds_.insert(event.sequence);
      tree.left_.push_back({moved->from,
                            true,
                            {},
                            event.time_ms,
                            moved->n_tokens,
                            moved->chain_key,
                            moved->stored_blocks});
    }
    return true;
  }));
  return tree;
}

std::uint64_t LogTree::add_path(std::uint64_t event, std::set<std::uint64_t>& path) const {
  while (parents_.contains(event) && path.insert(event).second) event = parents_.at(event);
  return event;
}

std::vector<LogPlace> LogTree::places(std::uint64_t head) const {
  std::set<std::uint64_t> seen;  // on the path to the head, or listed
  // The events of a fork's origins are one path, so those up to here are on that to the head.
  const std::uint64_t shared = add_path(head, seen);
  std::vector<LogPlace> places = marks_;
  for (LogPlace place : left_) {
    // A rewind that nothing followed adds nothing to where it went.
    while (rewinds_.contains(place.event)) place.event = parents_.at(place.event);
    const bool is_listed =
        place.event > origin_sequence_ ? parents_.contains(place.event) : place.event > shared;
    if (is_listed && seen.insert(place.event).second) places.push_back(std::move(place));
  }
  std::ranges::sort(places, {}, &LogPlace::event);
  return places;
}

void LogTree::keep(std::uint64_t event) {
  const std::uint64_t reached = add_path(event, kept_);
  if (reached <= origin_sequence_) needed_of_origins_ = std::max(needed_of_origins_, reached);
}

bool LogTree::is_unneeded(std::uint64_t event) const {
  return parents_.contains(event) && !kept_.contains(event);
}

std::vector<std::uint64_t> LogTree::unneeded() const {
  std::vector<std::uint64_t> events;
  for (const auto& [event, parent] : parents_) {
    if (!kept_.contains(event)) events.push_back(event);
  }
  return events;
}

}  // namespace cairn::session
