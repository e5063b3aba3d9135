// Two pipes and a child. Its death is SIGKILL: nothing of it runs any more.
#include "tests/session/life_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

extern char** environ;

namespace cairn::test {

namespace json = boost::json;

LifeProcess::~LifeProcess() { stop(); }

void LifeProcess::start() {
  int to[2], from[2];
  ASSERT_EQ(pipe2(to, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(from, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::string program = CAIRN_LIFE_HOST, store = store_;
  char* const arguments[] = {program.data(), store.data(), nullptr};
  ASSERT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
  read_.clear();
  const json::object opened = read_answer();
  ASSERT_FALSE(opened.contains("error")) << json::serialize(opened);
}

void LifeProcess::stop() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(to_);
  close(from_);
}

json::object LifeProcess::ask(const json::object& request) {
  const Clock::time_point begin = Clock::now();
  send(request);
  json::object answer = read_answer();
  took_[std::string(request.at("do").as_string())] = Clock::now() - begin;
  EXPECT_FALSE(answer.contains("error")) << json::serialize(request) << "\n"
                                         << json::serialize(answer);
  return answer;
}

std::optional<json::object> LifeProcess::ask_and_kill(const json::object& request,
                                                      std::mt19937& random) {
  const Clock::duration usual = took_[std::string(request.at("do").as_string())];
  send(request);
  const auto at = Clock::duration(static_cast<Clock::rep>(
      std::uniform_real_distribution(0.0, 1.1)(random) * static_cast<double>(usual.count())));
  if (answers_before(Clock::now() + at)) return read_answer();
  stop();
  ++n_kills_;
  start();
  return std::nullopt;
}

void LifeProcess::send(const json::object& request) {
  const std::string line = json::serialize(request) + "\n";
  ASSERT_EQ(write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

bool LifeProcess::answers_before(Clock::time_point end) {
  pollfd ready = {from_, POLLIN, 0};
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now());
  const auto n = std::max<std::int64_t>(left.count(), 0);
  const timespec wait = {n / 1'000'000'000, n % 1'000'000'000};
  return ppoll(&ready, 1, &wait, nullptr) == 1;
}

json::object LifeProcess::read_answer() {
  for (std::size_t end = 0; (end = read_.find('\n')) == std::string::npos;) {
    char bytes[4096];
    const ssize_t n = read(from_, bytes, sizeof bytes);
    if (n <= 0) {
      ADD_FAILURE() << "the host of sessions died: " << read_;
      return {{"error", "died"}};
    }
    read_.append(bytes, static_cast<std::size_t>(n));
  }
  const std::size_t end = read_.find('\n');
  const std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  boost::system::error_code failed;
  const json::value answer = json::parse(line, failed);
  if (!failed && answer.is_object()) return answer.as_object();
  ADD_FAILURE() << "the host of sessions says: " << line;
  return {{"error", line}};
}

}  // namespace cairn::test
