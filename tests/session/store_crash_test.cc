// Kills a process that commits, at random instants, and opens what it left: every acknowledged
// commit is there, the one in flight is there whole or not at all.
//
// SIGKILL keeps the page cache, so this tests the death of the process, not of the machine.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <thread>

#include "tests/session/crash_script.h"
#include "tests/support/temporary_folder.h"

extern char** environ;

namespace cairn::session {
namespace {

class Writer {
 public:
  explicit Writer(const std::string& path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    std::string program = CAIRN_CRASH_WRITER, argument = path;
    char* const arguments[] = {program.data(), argument.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    acknowledged_ = ends[0];
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { close(acknowledged_); }

  // The last acknowledged commit, 0 if none came. False once the writer is gone.
  bool read_next(std::uint32_t& last) const {
    std::uint32_t number = 0;
    if (read(acknowledged_, &number, sizeof number) != sizeof number) return false;
    last = number;
    return true;
  }

  // Kills it; `last` becomes the last commit that it acknowledged.
  void kill_now(std::uint32_t& last) const {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
    while (read_next(last)) {
    }
  }

 private:
  pid_t pid_ = 0;
  int acknowledged_ = -1;
};

void expect_commit(SessionStore& store, const LogEvent& message, const LogEvent& tokens,
                   const test::CrashCommit& expected, std::uint32_t i) {
  EXPECT_EQ(std::get<MessageAppended>(message.body).message.content[0].text, test::crash_text(i));
  EXPECT_EQ(std::get<TokensGenerated>(tokens.body).tokens,
            std::get<TokensGenerated>(expected.events[1].body).tokens);
  const auto block = store.get_block(expected.block.key, expected.block.tokens);
  ASSERT_TRUE(block.ok()) << block.status().to_string();
  EXPECT_TRUE(test::same_bytes(block->payload(), expected.block.payload));
}

// Checks the whole store and returns the number of the last commit in it.
std::uint32_t check_store(SessionStore& store) {
  const auto record = store.find_by_name(test::kCrashSession);
  if (record.status().code() == StatusCode::kNotFound) return 0;
  EXPECT_TRUE(record.ok()) << record.status().to_string();
  const auto events = store.read_events(record->id);
  EXPECT_TRUE(events.ok()) << events.status().to_string();
  EXPECT_EQ(events->size() % 2, 0u);
  const auto n_commits = static_cast<std::uint32_t>(events->size() / 2);
  EXPECT_EQ(record->head_sequence, 2 * n_commits);

  BlockKey parent = root_key(test::kSampleNamespace);
  test::CrashCommit expected;
  for (std::uint32_t i = 1; i <= n_commits; ++i) {
    expected = test::crash_commit(i, parent);
    parent = expected.block.key;
    expect_commit(store, (*events)[2 * i - 2], (*events)[2 * i - 1], expected, i);
  }
  const auto tail = store.get_tail(record->id);
  EXPECT_EQ(tail.ok(), n_commits > 0) << tail.status().to_string();
  if (tail.ok()) {
    EXPECT_EQ(tail->record.position, n_commits);
    EXPECT_TRUE(test::same_bytes(tail->payload(), expected.tail));
  }
  EXPECT_FALSE(*store.has_block(test::crash_commit(n_commits + 1, parent).block.key));
  EXPECT_EQ(store.stats()->n_blocks, n_commits);
  return n_commits;
}

TEST(StoreCrash, acknowledged_commits_survive_and_none_is_half_there) {
  constexpr int kStores = 6, kKills = 10;
  std::mt19937 random(20240601);
  for (int s = 0; s < kStores; ++s) {
    const test::TemporaryFolder folder;
    std::uint32_t last = 0;
    for (int k = 0; k < kKills && !testing::Test::HasFailure(); ++k) {
      SCOPED_TRACE("store " + std::to_string(s) + " kill " + std::to_string(k));
      const std::uint32_t before = last;
      const Writer writer(folder / "store");
      // Most kills fall among commits, some into opening and creation.
      if (random() % 5 != 0) writer.read_next(last);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      writer.kill_now(last);
      const auto store = test::open_store(folder / "store");
      ASSERT_NE(store, nullptr);
      const std::uint32_t found = check_store(*store);
      EXPECT_GE(found, std::max(before, last));
      EXPECT_LE(found, std::max(before, last) + 1);
      last = found;
    }
  }
}

}  // namespace
}  // namespace cairn::session
