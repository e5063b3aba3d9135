// Kills a process that holds a conversation, at random instants, until it gets to the end. What it
// delivered is always a beginning of what an unbroken conversation says, a turn that it saw end
// stays ended, and in the end both logs say the same.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <thread>

#include "tests/session/session_script.h"

extern char** environ;

namespace cairn {
namespace {

using test::kScriptTurns;
using test::WriterNote;

struct Conversation {
  std::array<std::string, kScriptTurns> texts;
  std::array<std::vector<TokenId>, kScriptTurns> tokens;
};

Conversation unbroken_conversation() {
  Conversation conversation;
  test::LiveStore store;
  Session session = store.create(test::kScriptSession);
  for (std::uint32_t turn = 0; turn < kScriptTurns; ++turn) {
    conversation.texts[turn] =
        test::ask(session, test::script_message(turn), test::script_options(turn)).text();
    conversation.tokens[turn] = test::last_tokens(session);
  }
  return conversation;
}

// One life of the writer.
class Writer {
 public:
  explicit Writer(const std::string& path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    std::string program = CAIRN_SESSION_WRITER, argument = path;
    char* const arguments[] = {program.data(), argument.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    notes_ = ends[0];
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { close(notes_); }

  // Waits for a first note, or the end.
  void wait_for_note() { read_note(); }
  // Kills it, reads what it said until then. False if it had come to its end by itself.
  bool kill_now() {
    kill(pid_, SIGKILL);
    while (read_note()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    if (WIFSIGNALED(status)) return true;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return false;
  }

  const std::array<std::string, kScriptTurns>& delivered() const { return delivered_; }
  std::uint32_t n_ended() const { return n_ended_; }

 private:
  bool read_note() {
    WriterNote note;
    if (!read_all(&note, sizeof note)) return false;
    if (note.n_bytes == WriterNote::kEnded) {
      n_ended_ = note.turn + 1;
      return true;
    }
    std::string bytes(note.n_bytes, '\0');
    if (!read_all(bytes.data(), bytes.size())) return false;
    delivered_.at(note.turn) += bytes;
    return true;
  }
  bool read_all(void* out, std::size_t n) const {
    for (char* at = static_cast<char*>(out); n > 0;) {
      const ssize_t got = read(notes_, at, n);
      if (got <= 0) return false;
      at += got;
      n -= static_cast<std::size_t>(got);
    }
    return true;
  }

  pid_t pid_ = 0;
  int notes_ = -1;
  std::array<std::string, kScriptTurns> delivered_;
  std::uint32_t n_ended_ = 0;
};

void expect_beginnings(const Writer& writer, const Conversation& expected) {
  for (std::uint32_t turn = 0; turn < kScriptTurns; ++turn) {
    const std::string& delivered = writer.delivered()[turn];
    EXPECT_EQ(expected.texts[turn].substr(0, delivered.size()), delivered) << "turn " << turn;
  }
}

// The turns that ended are in the log with what they said.
std::uint32_t check_log(const std::string& path, const Conversation& expected) {
  const Result<Store> store = Store::open(test::live_runtime(), path);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  if (!store.ok()) return 0;
  const Result<Session> session = Session::open(test::live_model(), *store, test::kScriptSession);
  if (session.status().code() == StatusCode::kNotFound) return 0;
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return 0;
  const auto messages = session->messages();
  const auto n_turns = static_cast<std::uint32_t>(messages->size() / 2);
  for (std::uint32_t turn = 0; turn < n_turns; ++turn) {
    EXPECT_EQ(messages->at(2 * turn + 1).sampled_tokens, expected.tokens[turn]);
  }
  return n_turns;
}

TEST(SessionCrash, a_conversation_survives_any_number_of_kills) {
  constexpr int kConversations = 3, kKillsMin = 6, kKillsMax = 60;
  const Conversation expected = unbroken_conversation();
  std::mt19937 random(20240602);
  int n_kills = 0;
  for (int c = 0; (c < kConversations || n_kills < kKillsMin) && !HasFailure(); ++c) {
    const test::TemporaryFolder folder;
    const std::string path = folder / "store";
    for (bool over = false; !over && !testing::Test::HasFailure();) {
      SCOPED_TRACE("conversation " + std::to_string(c) + " kill " + std::to_string(n_kills));
      Writer writer(path);
      // Most kills fall into turns, some into opening. Some lives are long enough to get on.
      if (random() % 6 != 0) writer.wait_for_note();
      const bool long_life = random() % 4 == 0 || n_kills > kKillsMax;
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % (long_life ? 400'000 : 60'000)));
      over = !writer.kill_now();
      n_kills += !over;
      expect_beginnings(writer, expected);
      EXPECT_GE(check_log(path, expected), writer.n_ended());
    }
    EXPECT_EQ(check_log(path, expected), kScriptTurns);
  }
}

}  // namespace
}  // namespace cairn
