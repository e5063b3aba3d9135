// The score is recompute time x likelihood of return / bytes. The sum over sessions makes a shared
// prefix worth at least as much as each of its continuations, so taking leaves by score alone gives
// up whole branches from their ends and never a short prefix that many build on.
#include "session/eviction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

namespace cairn::session {
namespace {

// Takes leaves in order until enough is freed; what loses its last child becomes a leaf.
class Eviction {
 public:
  Eviction(const ReachGraph& graph, std::span<const StoredTail> tails, std::int64_t n_bytes)
      : graph_(graph), tails_(tails), n_bytes_(n_bytes), gone_tails_(tails.size()) {
    n_children_.reserve(graph.blocks().size());
    for (const StoredBlock& block : graph.blocks()) n_children_.push_back(block.n_children);
    tails_of_.resize(graph.blocks().size());
    for (std::uint32_t i = 0; i < tails.size(); ++i) {
      if (tails[i].block != kNoBlock) tails_of_[tails[i].block].push_back(i);
    }
  }

  // `rank` orders leaves, smallest first; blocks that `wanted` refuses stay.
  template <class Wanted, class Rank>
  void take_blocks(const Wanted& wanted, const Rank& rank) {
    using Entry = std::pair<decltype(rank(std::uint32_t{0})), std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> leaves;
    const auto push = [&](std::uint32_t i) {
      if (n_children_[i] == 0 && wanted(i) && may_go(i)) leaves.push({rank(i), i});
    };
    for (std::uint32_t i = 0; i < graph_.blocks().size(); ++i) push(i);
    while (n_freed_ < n_bytes_ && !leaves.empty()) {
      const std::uint32_t leaf = leaves.top().second;
      leaves.pop();
      take_block(leaf);
      const std::uint32_t parent = graph_.blocks()[leaf].parent;
      if (parent != kNoBlock && --n_children_[parent] == 0) push(parent);
    }
  }

  void take_tails(std::vector<std::uint32_t> in_order) {
    for (const std::uint32_t i : in_order) {
      if (n_freed_ >= n_bytes_) return;
      take_tail(i);
    }
  }

  std::vector<Victim> victims() && { return std::move(victims_); }

 private:
  bool may_go(std::uint32_t i) const {
    return !graph_.blocks()[i].pinned &&
           std::ranges::none_of(tails_of_[i], [&](std::uint32_t t) { return tails_[t].pinned; });
  }
  void take_tail(std::uint32_t i) {
    if (gone_tails_[i]) return;
    gone_tails_[i] = true;
    n_freed_ += tails_[i].bytes;
    victims_.push_back({Victim::Kind::kTail, i});
  }
  void take_block(std::uint32_t i) {
    for (const std::uint32_t tail : tails_of_[i]) take_tail(tail);
    n_freed_ += graph_.blocks()[i].bytes;
    victims_.push_back({Victim::Kind::kBlock, i});
    n_children_[i] = kNoBlock;  // never a leaf again
  }

  const ReachGraph& graph_;
  const std::span<const StoredTail> tails_;
  const std::int64_t n_bytes_;
  std::vector<std::uint32_t> n_children_;
  std::vector<std::vector<std::uint32_t>> tails_of_;
  std::vector<bool> gone_tails_;
  std::int64_t n_freed_ = 0;
  std::vector<Victim> victims_;
};

std::vector<std::uint32_t> idle_tails(std::span<const StoredTail> tails) {
  std::vector<std::uint32_t> idle;
  for (std::uint32_t i = 0; i < tails.size(); ++i) {
    if (tails[i].pinned) continue;
    if (tails[i].useless || tails[i].passed || tails[i].age_ms >= kTailIdleMs) idle.push_back(i);
  }
  std::ranges::stable_sort(idle, {}, [&](std::uint32_t i) {
    return std::tuple(!tails[i].useless, !tails[i].passed, tails[i].marked, -tails[i].age_ms);
  });
  return idle;
}

}  // namespace

std::vector<std::int64_t> ages_of(std::span<const std::int64_t> used_ms, std::int64_t now_ms) {
  std::int64_t newest = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t used : used_ms) {
    if (used <= now_ms) newest = std::max(newest, used);
  }
  std::vector<std::int64_t> ages;
  ages.reserve(used_ms.size());
  for (const std::int64_t used : used_ms) ages.push_back(used < newest ? newest - used : 0);
  return ages;
}

double likelihood_of_return(std::int64_t age_ms) {
  // Not below 2^-1000, which is still a number.
  const double half_lives = static_cast<double>(age_ms) / static_cast<double>(kHalfLifeMs);
  return std::exp2(-std::min(half_lives, 1000.0));
}

std::vector<Victim> plan_eviction(const ReachGraph& graph, std::span<const StoredTail> tails,
                                  std::span<const std::uint32_t> namespaces_in_use,
                                  std::int64_t n_bytes) {
  const std::vector<StoredBlock>& blocks = graph.blocks();
  Eviction eviction(graph, tails, n_bytes);
  eviction.take_blocks([&](std::uint32_t i) { return !blocks[i].reachable; },
                       [&](std::uint32_t i) {
                         const bool in_use =
                             std::ranges::find(namespaces_in_use, blocks[i].kv_namespace) !=
                             namespaces_in_use.end();
                         return std::tuple(in_use, blocks[i].number);
                       });
  eviction.take_tails(idle_tails(tails));
  eviction.take_blocks([&](std::uint32_t i) { return blocks[i].reachable; },
                       [&](std::uint32_t i) {
                         const StoredBlock& block = blocks[i];
                         return std::tuple(block.value / static_cast<double>(block.bytes),
                                           -static_cast<std::int64_t>(block.depth), block.number);
                       });
  return std::move(eviction).victims();
}

std::vector<Victim> plan_unreachable(const ReachGraph& graph) {
  const std::vector<StoredBlock>& blocks = graph.blocks();
  Eviction eviction(graph, {}, std::numeric_limits<std::int64_t>::max());
  eviction.take_blocks([&](std::uint32_t i) { return !blocks[i].reachable; },
                       [&](std::uint32_t i) { return blocks[i].number; });
  return std::move(eviction).victims();
}

}  // namespace cairn::session
