// A pure function of what is stored. Slots are sequences of events, so the highest is the newest.
#include "session/turn_tails.h"

#include <algorithm>
#include <set>

namespace cairn::session {
namespace {

constexpr std::size_t kTailsOfATurn = 2;

// The events at which the conversation stands before and after each of the user's messages.
std::set<std::uint64_t> places_of_user_messages(std::span<const Message> conversation) {
  std::set<std::uint64_t> places;
  for (std::size_t i = 0; i < conversation.size(); ++i) {
    if (conversation[i].role != Role::kUser) continue;
    places.insert(conversation[i].event);
    if (i > 0) places.insert(conversation[i - 1].event);
  }
  return places;
}

std::size_t n_to_keep(std::int64_t n_tail_bytes, std::int64_t n_block_bytes) {
  const std::int64_t room = std::max(kTurnTailBytes, n_block_bytes);
  const auto n_fit = static_cast<std::size_t>(room / std::max<std::int64_t>(n_tail_bytes, 1));
  return std::clamp(n_fit, kTurnTailsMin, kTurnTailsMax);
}

}  // namespace

bool is_turn_tail(const TailRecord& tail) { return tail.slot > 0 && tail.slot == tail.sequence; }

std::vector<std::uint64_t> expired_turn_tails(std::span<const TailRecord> tails,
                                              std::span<const Message> conversation,
                                              std::int64_t n_block_bytes) {
  std::vector<std::uint64_t> slots;
  std::int64_t n_bytes_max = 0;
  for (const TailRecord& tail : tails) {
    if (!is_turn_tail(tail)) continue;
    slots.push_back(tail.slot);
    n_bytes_max = std::max(n_bytes_max, static_cast<std::int64_t>(tail.payload_bytes));
  }
  std::ranges::sort(slots, std::ranges::greater());
  const std::size_t n_kept = n_to_keep(n_bytes_max, n_block_bytes) - kTailsOfATurn;
  if (slots.size() <= n_kept) return {};
  const std::set<std::uint64_t> wanted = places_of_user_messages(conversation);
  // The newest half, then those at the user's messages, then the rest by age.
  const auto half = slots.begin() + static_cast<std::ptrdiff_t>(n_kept / 2);
  std::stable_partition(half, slots.end(),
                        [&](std::uint64_t slot) { return wanted.contains(slot); });
  slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(n_kept));
  return slots;
}

}  // namespace cairn::session
