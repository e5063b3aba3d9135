// A store under more demand than its quota holds: it never grows past the quota, keeps every text,
// and what it still has is right, whatever happens at the same time.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "session/collector.h"
#include "tests/session/sample_sessions.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::SampleSession;

constexpr std::int64_t kMiB = 1 << 20;

// Looks at the directory again and again.
class DiskWatch {
 public:
  explicit DiskWatch(std::string path) : path_(std::move(path)), thread_([this] { run(); }) {}
  ~DiskWatch() {
    stop_ = true;
    thread_.join();
  }
  std::int64_t max() const { return max_; }
  std::int64_t n_looks() const { return n_looks_; }

  static std::int64_t measure(const std::string& path) {
    std::int64_t sum = 0;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(path, error), end; !error && at != end;
         at.increment(error)) {
      struct stat info = {};
      if (lstat(at->path().c_str(), &info) == 0) sum += 512 * info.st_blocks;
    }
    return sum;
  }

 private:
  void run() {
    while (!stop_) {
      max_ = std::max(max_.load(), measure(path_));
      ++n_looks_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::string path_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> max_ = 0, n_looks_ = 0;
  std::thread thread_;
};

// Sessions come, grow by prefills and by single blocks, fork, are removed; about three times as
// much is written as fits.
TEST(Quota, a_store_at_a_third_of_its_demand_never_grows_past_its_quota) {
  constexpr std::int64_t kQuota = 64 * kMiB;
  const std::uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", kQuota);
  Collector collector(*store);
  const DiskWatch watch(folder / "store");
  std::vector<std::unique_ptr<SampleSession>> sessions;
  std::int64_t n_stored = 0, n_commits = 0, n_blocks = 0;
  for (std::uint32_t step = 0; n_blocks * 113'920 < 200 * kMiB; ++step) {
    if (sessions.size() < 4 || random() % 12 == 0) {
      sessions.push_back(
          std::make_unique<SampleSession>(*store, "s" + std::to_string(step), step + 1));
      if (sessions.size() > 1 && random() % 3 == 0) sessions.back()->fork(*sessions.front());
    }
    if (sessions.size() > 6 && random() % 20 == 0) {
      ASSERT_TRUE(store->remove_session(sessions[2]->record().id).ok());
      sessions.erase(sessions.begin() + 2);
    }
    SampleSession& session = *sessions[random() % sessions.size()];
    const std::uint32_t n_new = random() % 2 == 0 ? 1 + random() % 2 : 8 + random() % 9;
    const std::size_t tail_bytes = random() % 5 == 0 ? 2'500'000 : 0;
    const bool stored =
        session.grow(n_new, tail_bytes, 1'700'000'000'000 + step * 60'000LL,
                     random() % 4 == 0 ? Durability::kSynced : Durability::kBuffered);
    n_stored += stored;
    n_blocks += n_new;
    ++n_commits;
    // The collector's thread may be late, but not for as long as it pleases the scheduler.
    if (!stored && random() % 4 == 0) {
      ASSERT_TRUE(collector.collect({}).ok());
    }
    ASSERT_LE(DiskWatch::measure(folder / "store"), kQuota) << "step " << step;
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(collector.collect({}).ok());
  std::size_t n_found = 0;
  for (const auto& session : sessions) {
    n_found += session->check_chain();
    const auto events = store->read_events(session->record().id);
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    EXPECT_EQ(events->size(), session->record().n_events);
  }
  std::printf(
      "%lld of %lld commits with state, %zu blocks there, at most %lld of %lld bytes in "
      "%lld looks\n",
      static_cast<long long>(n_stored), static_cast<long long>(n_commits), n_found,
      static_cast<long long>(watch.max()), static_cast<long long>(kQuota),
      static_cast<long long>(watch.n_looks()));
  EXPECT_LE(watch.max(), kQuota);
  EXPECT_GT(n_stored, n_commits / 10);
  EXPECT_GT(n_found * 113'920, 12u << 20);  // room is used
  EXPECT_TRUE(collector.last_error().ok()) << collector.last_error().to_string();
}

TEST(Quota, text_is_kept_up_to_the_very_limit_and_then_refused_with_the_numbers) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 64 * kMiB);
  const SessionId id = test::create(*store, "name").id;
  std::mt19937 random(1);
  std::uint64_t n_events = 0;
  Status status;
  while (status.ok() && n_events < 2000) {
    std::string text(100'000, '\0');
    for (char& c : text) c = static_cast<char>(random());  // of no use to compression
    status =
        store->commit({.session = id, .events = {test::user_event(n_events + 1, text)}}).status();
    n_events += status.ok();
    ASSERT_LE(test::bytes_on_disk(*store), 64 * kMiB);
  }
  std::printf("%llu events of 100 kB\n", static_cast<unsigned long long>(n_events));
  EXPECT_EQ(status.code(), StatusCode::kOutOfDisk);
  EXPECT_NE(status.message().find("quota of 67108864 bytes"), std::string::npos)
      << status.message();
  EXPECT_GT(n_events, 120u);
  EXPECT_EQ(store->read_events(id)->size(), n_events);
}

// Restores of blocks that are evicted at the same time, and written again.
TEST(Quota, restores_see_a_block_whole_or_not_at_all_while_it_is_evicted) {
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  const std::uint32_t kv_namespace = *store->open_namespace(test::kSampleNamespace);
  const SessionId id = test::create(*store, "name").id;
  const auto chain = test::sample_chain(1, 48, 20'000);
  std::atomic<bool> stop = false;
  std::atomic<int> n_read = 0, n_missing = 0, n_written = 0;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop) {
      Commit commit = {.session = id, .kv_namespace = kv_namespace};
      commit.durability = Durability::kBuffered;
      for (const test::SampleBlock& block : chain) commit.blocks.push_back(block.view());
      const auto receipt = store->commit(commit);
      ASSERT_TRUE(receipt.ok()) << receipt.status().to_string();
      n_written += receipt->blocks_written;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        for (const test::SampleBlock& block : chain) {
          const auto found = store->get_block(block.key, block.tokens);
          if (!found.ok()) {
            ASSERT_EQ(found.status().code(), StatusCode::kNotFound) << found.status().to_string();
            ++n_missing;
            break;
          }
          ASSERT_TRUE(test::same_bytes(found->payload(), block.payload));
          ++n_read;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(7 + 6 * i));
      }
    });
  }
  // As many rounds as it takes until enough of all three happened, however the threads are
  // scheduled.
  std::int64_t n_evicted = 0;
  Collection collection(*store, [](std::int64_t) { return true; });
  for (int i = 0; !HasFailure() && (i < 60 || n_read < 200 || n_evicted < 96); ++i) {
    const auto report = collection.make_room(1);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    n_evicted += report->blocks_removed;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%d blocks read, %d times missing, %d written, %lld evicted\n", n_read.load(),
              n_missing.load(), n_written.load(), static_cast<long long>(n_evicted));
  EXPECT_EQ(store->read_counters().blocks_corrupt, 0);
}

// Random clocks: a collection frees what it was asked for and little more.
TEST(Quota, a_clock_that_jumps_evicts_no_more_than_was_asked_for) {
  std::mt19937 random(5);
  const test::TemporaryFolder folder;
  const auto store = test::open_with_quota(folder / "store", 256 * kMiB);
  std::vector<std::unique_ptr<SampleSession>> sessions;
  for (std::uint32_t i = 0; i < 8; ++i) {
    sessions.push_back(std::make_unique<SampleSession>(*store, "s" + std::to_string(i), i + 1));
  }
  constexpr std::int64_t kYear = 31'557'600'000;
  for (int round = 0; round < 12; ++round) {
    for (const auto& session : sessions) {
      const std::int64_t now = 1'700'000'000'000 + static_cast<std::int64_t>(random() % 40) * kYear;
      session->grow(16, 400'000, now - 20 * kYear);
    }
    const std::int64_t before = test::bytes_on_disk(*store);
    const std::int64_t wanted = 4 * kMiB;
    const auto report =
        Collection(*store, [](std::int64_t) { return true; }).make_room(before - wanted);
    ASSERT_TRUE(report.ok());
    EXPECT_LE(report->bytes_after, before - wanted);
    EXPECT_GE(report->bytes_after, before - wanted - 6 * kMiB);
  }
  for (const auto& session : sessions) (void)session->check_chain();
}

}  // namespace
}  // namespace cairn::session
