// What to give up when room is needed: a pure function from what is stored to the order in which it
// goes.
#ifndef CAIRN_SESSION_EVICTION_H_
#define CAIRN_SESSION_EVICTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "session/reachability.h"

namespace cairn::session {

// Use of a session doubles in likelihood with each of these that it is younger.
inline constexpr std::int64_t kHalfLifeMs = std::int64_t{24} * 3600 * 1000;
// Before this age a tail goes with its blocks only.
inline constexpr std::int64_t kTailIdleMs = std::int64_t{3600} * 1000;

// How long ago each of the sessions was used, as far as that can be trusted: from the newest use
// that is not in the future, never negative. Idle time alone, a suspended machine and a clock that
// jumps leave the order as it is.
std::vector<std::int64_t> ages_of(std::span<const std::int64_t> used_ms, std::int64_t now_ms);

// 2^-(age / half-life).
double likelihood_of_return(std::int64_t age_ms);

// A stored exact state, as its owner sees it.
struct StoredTail {
  std::uint32_t block = kNoBlock;  // the last of its chain; kNoBlock: none, or it is not stored
  bool useless = false;            // its chain is not whole: nobody can restore it
  bool marked = false;             // a mark names it
  bool passed = false;             // a turn's, behind which the head has gone on
  bool pinned = false;             // its session is open
  std::int64_t age_ms = 0;         // of its session
  std::int64_t bytes = 0;
};

struct Victim {
  enum class Kind : std::uint8_t { kTail, kBlock };
  Kind kind = Kind::kBlock;
  std::uint32_t position = 0;  // in the tails or in the graph

  bool operator==(const Victim&) const = default;
};

// Gives up at least `n_bytes` where that is possible, in this order:
//   1. blocks that no session reaches: of namespaces without a session, then the oldest
//   2. tails of no use, then those that turns left behind, then tails of sessions idle for an hour,
//      the longest idle first; tails of marks after all others
//   3. blocks by their value a byte, the least first, with the tails that end in them
// Only leaves go: a block never before the blocks that follow it, so chains stay without gaps and
// the deepest goes first. Nothing pinned goes.
std::vector<Victim> plan_eviction(const ReachGraph& graph, std::span<const StoredTail> tails,
                                  std::span<const std::uint32_t> namespaces_in_use,
                                  std::int64_t n_bytes);

// Every block that no session reaches and that is not pinned, children first.
std::vector<Victim> plan_unreachable(const ReachGraph& graph);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_EVICTION_H_
