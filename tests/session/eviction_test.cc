// The order of eviction on random stores, against a slow reference that looks at everything anew
// for each step.
#include "session/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <tuple>

namespace cairn::session {
namespace {

BlockKey key_of(std::uint32_t i) {
  BlockKey key{};
  std::memcpy(key.data(), &i, sizeof i);
  key[31] = 1;  // no root key
  return key;
}

struct SampleStore {
  ReachGraph graph;
  std::vector<StoredTail> tails;
  std::vector<std::uint32_t> namespaces_in_use = {1};
};

// A random forest with sessions at random places of it.
SampleStore random_store(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  SampleStore store;
  const std::uint32_t n_blocks = 1 + below(120);
  std::vector<BlockRecord> records;
  for (std::uint32_t i = 0; i < n_blocks; ++i) {
    BlockRecord record = {.kv_namespace = 1 + below(10) / 9, .number = i, .n_tokens = 128};
    record.payload_bytes = 1000 + below(3) * 500;
    // Mostly a chain, now and then a fork, a new chain or a chain whose beginning is lost.
    const std::uint32_t way = i == 0 ? 0 : below(20);
    const std::uint32_t parent = way < 15 ? i - 1 : below(std::max(i, 1U));
    if (i > 0 && way > 0) {
      record.parent = key_of(parent);
      record.depth = records[parent].depth + 1;
      record.kv_namespace = records[parent].kv_namespace;
      if (way == 19) record.parent = key_of(1'000'000 + i);
    }
    records.push_back(record);
    store.graph.add(key_of(i), record);
  }
  store.graph.link();
  const std::uint32_t n_sessions = below(8);
  for (std::uint32_t session = 1; session <= n_sessions; ++session) {
    const double weight = likelihood_of_return(below(100) * 3'600'000LL) * (1 + below(3));
    const bool open = below(5) == 0;
    for (std::uint32_t n = 1 + below(3); n > 0; --n) {
      const BlockKey end = key_of(below(n_blocks));
      store.graph.reach(end, session, weight);
      if (open) store.graph.pin(end);
      if (below(2) == 0) continue;
      StoredTail& tail = store.tails.emplace_back();
      tail.block = store.graph.find(end);
      tail.useless = !store.graph.blocks()[tail.block].attached;
      tail.marked = below(3) == 0;
      tail.pinned = open;
      tail.age_ms = below(5) * 1'200'000LL;
      tail.bytes = 3000 + below(100);
    }
  }
  return store;
}

// What may be given up next, and in which order: smaller is earlier.
using Rank = std::tuple<int, bool, bool, std::int64_t, double, std::int64_t, std::uint64_t>;

class Reference {
 public:
  explicit Reference(const SampleStore& store) : store_(store) {}

  std::vector<Victim> evict(std::int64_t n_bytes) {
    while (n_freed_ < n_bytes) {
      std::optional<std::pair<Rank, Victim>> best;
      const auto offer = [&](const Rank& rank, const Victim& victim) {
        if (!best || rank < best->first) best = {rank, victim};
      };
      for (std::uint32_t i = 0; i < blocks().size(); ++i) {
        if (may_go(i)) offer(rank_of_block(i), {Victim::Kind::kBlock, i});
      }
      for (std::uint32_t i = 0; i < store_.tails.size(); ++i) {
        const StoredTail& tail = store_.tails[i];
        if (gone_tails_.contains(i) || tail.pinned) continue;
        if (!tail.useless && tail.age_ms < kTailIdleMs) continue;
        offer({1, !tail.useless, tail.marked, -tail.age_ms, 0, 0, i}, {Victim::Kind::kTail, i});
      }
      if (!best) break;
      take(best->second);
    }
    return victims_;
  }

 private:
  const std::vector<StoredBlock>& blocks() const { return store_.graph.blocks(); }

  bool may_go(std::uint32_t i) const {
    if (gone_.contains(i) || blocks()[i].pinned) return false;
    for (std::uint32_t child = 0; child < blocks().size(); ++child) {
      if (blocks()[child].parent == i && !gone_.contains(child)) return false;
    }
    return std::ranges::none_of(store_.tails,
                                [&](const StoredTail& t) { return t.pinned && t.block == i; });
  }
  Rank rank_of_block(std::uint32_t i) const {
    const StoredBlock& block = blocks()[i];
    if (!block.reachable) {
      return {0, block.kv_namespace == 1, false, 0, 0, 0, block.number};
    }
    return {2,
            false,
            false,
            0,
            block.value / static_cast<double>(block.bytes),
            -static_cast<std::int64_t>(block.depth),
            block.number};
  }
  void take(const Victim& victim) {
    if (victim.kind == Victim::Kind::kTail) {
      gone_tails_.insert(victim.position);
      n_freed_ += store_.tails[victim.position].bytes;
    } else {
      for (std::uint32_t t = 0; t < store_.tails.size(); ++t) {
        if (store_.tails[t].block == victim.position && !gone_tails_.contains(t)) {
          take({Victim::Kind::kTail, t});
        }
      }
      gone_.insert(victim.position);
      n_freed_ += blocks()[victim.position].bytes;
    }
    victims_.push_back(victim);
  }

  const SampleStore& store_;
  std::set<std::uint32_t> gone_, gone_tails_;
  std::int64_t n_freed_ = 0;
  std::vector<Victim> victims_;
};

TEST(Eviction, takes_what_a_search_of_everything_takes_on_1000_random_stores) {
  std::mt19937 random(20261130);
  std::size_t n_victims = 0, n_tails = 0, n_stopped_early = 0;
  for (int trace = 0; trace < 1000; ++trace) {
    SCOPED_TRACE("trace " + std::to_string(trace));
    const SampleStore store = random_store(random);
    const auto n_bytes = static_cast<std::int64_t>(random() % 200'000);
    const std::vector<Victim> victims =
        plan_eviction(store.graph, store.tails, store.namespaces_in_use, n_bytes);
    ASSERT_EQ(victims, Reference(store).evict(n_bytes));
    n_victims += victims.size();
    for (const Victim& victim : victims) n_tails += victim.kind == Victim::Kind::kTail;
    n_stopped_early += victims.size() < store.graph.blocks().size();
  }
  std::printf("%zu victims, %zu of them tails; %zu stores keep blocks\n", n_victims, n_tails,
              n_stopped_early);
  EXPECT_GT(n_victims, 10'000u);
  EXPECT_GT(n_tails, 300u);
}

// Said again, independently of any order.
TEST(Eviction, never_leaves_a_gap_nor_takes_what_is_pinned) {
  std::mt19937 random(7);
  for (int trace = 0; trace < 1000; ++trace) {
    SCOPED_TRACE("trace " + std::to_string(trace));
    const SampleStore store = random_store(random);
    const std::vector<StoredBlock>& blocks = store.graph.blocks();
    std::vector<bool> gone(blocks.size());
    std::int64_t n_freed = 0, n_pinned = 0;
    for (const Victim& victim : plan_eviction(store.graph, store.tails, store.namespaces_in_use,
                                              std::numeric_limits<std::int64_t>::max())) {
      if (victim.kind == Victim::Kind::kTail) {
        EXPECT_FALSE(store.tails[victim.position].pinned);
        continue;
      }
      EXPECT_FALSE(blocks[victim.position].pinned);
      EXPECT_FALSE(gone[victim.position]);
      gone[victim.position] = true;
      ++n_freed;
      for (std::size_t child = 0; child < blocks.size(); ++child) {
        if (blocks[child].parent == victim.position) {
          EXPECT_TRUE(gone[child]);
        }
      }
    }
    for (const StoredBlock& block : blocks) n_pinned += block.pinned;
    EXPECT_EQ(n_freed + n_pinned, static_cast<std::int64_t>(blocks.size()));
  }
}

TEST(Eviction, a_short_shared_prefix_outlives_all_that_follows_it) {
  ReachGraph graph;
  for (std::uint32_t i = 0; i < 30; ++i) {  // 0..9 shared, then two branches of ten
    BlockRecord record = {.kv_namespace = 1, .number = i, .n_tokens = 128, .payload_bytes = 1000};
    const std::uint32_t parent = i == 20 ? 9 : i - 1;
    record.depth = i < 20 ? i : i - 10;
    if (i > 0) record.parent = key_of(parent);
    graph.add(key_of(i), record);
  }
  graph.link();
  graph.reach(key_of(19), 1, 1.0);
  graph.reach(key_of(29), 2, 0.01);
  const std::vector<std::uint32_t> in_use = {1};
  const std::vector<Victim> victims = plan_eviction(graph, {}, in_use, 25 * 1900);
  ASSERT_EQ(victims.size(), 25u);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(victims[i].position, 29 - i);  // the rarer one
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(victims[10 + i].position, 19 - i);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(victims[20 + i].position, 9 - i);
}

TEST(Eviction, dear_blocks_outlive_cheap_ones_of_the_same_age) {
  ReachGraph graph;
  for (std::uint32_t i = 0; i < 2; ++i) {
    graph.add(key_of(i), {.kv_namespace = 1, .number = i, .n_tokens = 128, .payload_bytes = 1000});
  }
  graph.link();
  graph.reach(key_of(0), 1, 5000);
  graph.reach(key_of(1), 2, 200);
  const std::vector<std::uint32_t> in_use = {1};
  const std::vector<Victim> victims = plan_eviction(graph, {}, in_use, 1);
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_EQ(victims[0].position, 1u);
}

TEST(Eviction, room_that_is_there_evicts_nothing_however_old) {
  ReachGraph graph;
  graph.add(key_of(0), {.kv_namespace = 9, .number = 1, .n_tokens = 128, .payload_bytes = 1000});
  graph.link();
  const std::vector<StoredTail> tails = {
      {.useless = true, .age_ms = 10'000'000'000'000, .bytes = 3'000'000}};
  EXPECT_TRUE(plan_eviction(graph, tails, {}, 0).empty());
  EXPECT_TRUE(plan_eviction(graph, tails, {}, -1).empty());
}

// Whatever the clock does, sessions keep their order and the newest is new.
TEST(Eviction, a_clock_that_jumps_changes_no_order) {
  constexpr std::int64_t kNow = 1'800'000'000'000, kYear = 31'557'600'000;
  std::mt19937_64 random(3);
  for (int trace = 0; trace < 1000; ++trace) {
    std::vector<std::int64_t> used;
    for (std::size_t n = 1 + random() % 20; n > 0; --n) {
      used.push_back(kNow - static_cast<std::int64_t>(random() % kYear));
    }
    const std::vector<std::int64_t> ages = ages_of(used, kNow);
    EXPECT_EQ(ages_of(used, kNow + 3 * kYear), ages);  // forwards, or a machine that slept
    EXPECT_EQ(*std::ranges::min_element(ages), 0);
    // Backwards: those of the time that is gone count as used now, the rest keep their order.
    const std::int64_t back = kNow - kYear / 2;
    const std::vector<std::int64_t> ages_back = ages_of(used, back);
    for (std::size_t i = 0; i < used.size(); ++i) {
      EXPECT_GE(ages_back[i], 0);
      if (used[i] > back) {
        EXPECT_EQ(ages_back[i], 0);
      }
      for (std::size_t j = 0; j < used.size(); ++j) {
        if (used[i] <= used[j]) {
          EXPECT_GE(ages_back[i], ages_back[j]);
        }
      }
    }
  }
}

TEST(Eviction, the_likelihood_of_return_halves_in_a_day_and_never_vanishes) {
  EXPECT_EQ(likelihood_of_return(0), 1);
  EXPECT_EQ(likelihood_of_return(kHalfLifeMs), 0.5);
  EXPECT_GT(likelihood_of_return(kHalfLifeMs * 100), 0);
  EXPECT_GT(likelihood_of_return(std::numeric_limits<std::int64_t>::max()), 0);
  double before = 1;
  for (std::int64_t age = 0; age < 1000 * kHalfLifeMs; age += kHalfLifeMs / 3) {
    EXPECT_LE(likelihood_of_return(age), before);
    before = likelihood_of_return(age);
  }
}

}  // namespace
}  // namespace cairn::session
