// Processes that want one store: one at a time gets it, the death of an owner frees it, and what
// LOCK says about owners that are gone hinders nobody.
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "session/session_store.h"
#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

using session::SessionStore;

struct Shared {
  std::atomic<bool> go = false;
  std::atomic<int> n_owners = 0, n_won = 0, n_busy = 0, n_ready = 0;
};

struct OwnershipTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::string store = folder / "store";
  Shared& told = shared<Shared>();

  std::string open_and_close() {
    const auto opened = SessionStore::open(store);
    return opened.ok() ? std::string() : opened.status().to_string();
  }

  // Waits for the start, opens, is alone for a moment.
  std::string race() {
    ++told.n_ready;
    while (!told.go) std::this_thread::yield();
    const auto opened = SessionStore::open(store);
    if (opened.status().code() == StatusCode::kBusy) {
      ++told.n_busy;
      return {};
    }
    if (!opened.ok()) return opened.status().to_string();
    ++told.n_won;
    if (++told.n_owners != 1) return "two owners";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return --told.n_owners == 0 ? std::string() : "two owners";
  }
};

TEST_F(OwnershipTest, of_racing_processes_one_at_a_time_owns_the_store) {
  const int n_races = 200 * fault_scale();
  for (int i = 0; i < n_races && !HasFailure(); ++i) {
    if (i % 10 == 0) std::filesystem::remove_all(store);  // some races make the store
    told.go = false;
    told.n_ready = told.n_owners = 0;
    const int won = told.n_won;
    std::vector<Child> racers;
    for (int r = 0; r < 2 + i % 2; ++r) racers.emplace_back([&] { return race(); });
    while (told.n_ready < static_cast<int>(racers.size())) std::this_thread::yield();
    told.go = true;
    for (Child& racer : racers) EXPECT_EQ(racer.wait().problem(), "") << "race " << i;
    EXPECT_GT(told.n_won, won) << "race " << i;
  }
  std::printf("%d races, opened %d times, busy %d times\n", n_races, told.n_won.load(),
              told.n_busy.load());
}

TEST_F(OwnershipTest, a_killed_owner_frees_the_store_at_once) {
  constexpr int kTrials = 60;
  for (int i = 0; i < kTrials && !HasFailure(); ++i) {
    told.n_ready = 0;
    Child owner([&]() -> std::string {
      const auto opened = SessionStore::open(store);
      if (!opened.ok()) return opened.status().to_string();
      ++told.n_ready;
      for (;;) pause();
    });
    while (told.n_ready == 0) std::this_thread::yield();
    EXPECT_NE(run_isolated([&] { return open_and_close(); }).problem().find("BUSY"),
              std::string::npos);
    owner.kill_now();
    EXPECT_TRUE(owner.wait().killed());
    EXPECT_EQ(run_isolated([&] { return open_and_close(); }).problem(), "");
  }
  std::printf("%d killed owners\n", kTrials);
}

TEST_F(OwnershipTest, what_lock_says_of_the_dead_hinders_nobody) {
  ASSERT_EQ(run_isolated([&] { return open_and_close(); }).problem(), "");
  const std::string good = read_file(store + "/LOCK");
  // A process that lives has the number of the dead owner; numbers that never were; no text.
  const std::vector<std::string> texts = {"pid 1\nstart 1\n",
                                          "pid " + std::to_string(getpid()) + "\nstart 7\n",
                                          "pid " + std::to_string(getppid()) + "\n",
                                          "pid -5\nstart -5\n",
                                          "pid 99999999999999999999\nstart 0\n",
                                          std::string(5000, 'x'),
                                          std::string(300, '\0'),
                                          "",
                                          good};
  for (const std::string& text : texts) {
    write_file(store + "/LOCK", text);
    EXPECT_EQ(run_isolated([&] { return open_and_close(); }).problem(), "") << text.substr(0, 60);
  }
  std::printf("%zu stale locks\n", texts.size());
}

}  // namespace
}  // namespace cairn::test
