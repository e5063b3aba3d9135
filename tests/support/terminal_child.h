// A program on a terminal of its own, typed at by a test.
#ifndef CAIRN_TESTS_SUPPORT_TERMINAL_CHILD_H_
#define CAIRN_TESTS_SUPPORT_TERMINAL_CHILD_H_

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::test {

class TerminalChild {
 public:
  explicit TerminalChild(std::vector<std::string> command) {
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    winsize size = {.ws_row = 50, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    if (child_ < 0) std::abort();
  }
  TerminalChild(const TerminalChild&) = delete;
  TerminalChild& operator=(const TerminalChild&) = delete;
  ~TerminalChild() {
    kill();
    close(terminal_);
  }

  void type(std::string_view keys) const {
    if (write(terminal_, keys.data(), keys.size()) < 0) std::abort();
  }

  // Waits until `text` is shown after what earlier calls waited for. False: the program ended, or
  // five minutes passed, without.
  bool sees(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (true) {
      const std::size_t found = shown_.find(text, seen_);
      if (found != std::string::npos) {
        seen_ = found + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() > deadline || !read_some()) return false;
    }
  }

  // Everything shown so far.
  const std::string& shown() const { return shown_; }

  // The exit code of the program, which ends by itself; -1 if a signal ended it.
  int wait_for_end() {
    while (read_some()) continue;
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void kill() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  bool read_some() {
    pollfd output = {terminal_, POLLIN, 0};
    if (poll(&output, 1, 1000) == 0) return true;
    char bytes[4096];
    const ssize_t n = ::read(terminal_, bytes, sizeof bytes);
    if (n > 0) shown_.append(bytes, static_cast<std::size_t>(n));
    return n > 0;  // a terminal whose program ended gives an error
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SUPPORT_TERMINAL_CHILD_H_
