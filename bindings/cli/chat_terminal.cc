#include "bindings/cli/chat_terminal.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "bindings/cli/terminal_text.h"
#include "examples/workspace_tools.h"

namespace cairn::cli {
namespace {

constexpr std::string_view kPlain = "\033[0m", kBold = "\033[1m", kDim = "\033[2m",
                           kRed = "\033[31m", kGreen = "\033[32m", kCyan = "\033[36m";
constexpr int kPollMs = 100;  // SIGINT may reach another thread: the flag is looked at
constexpr std::size_t kMaxResultLines = 20;

volatile std::sig_atomic_t was_interrupted = 0;

void note_interrupt(int) {
  was_interrupted = 1;
  cancel_tests();
}

void handle_interrupt(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

// Without what a terminal would obey; lines and tabs stay.
std::string harmless(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += printable(text.substr(0, end));
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

ChatTerminal::ChatTerminal()
    : shows_input_(isatty(STDIN_FILENO) == 0), has_colours_(isatty(STDOUT_FILENO) != 0) {
  was_interrupted = 0;
  handle_interrupt(note_interrupt);
}

ChatTerminal::~ChatTerminal() { handle_interrupt(SIG_DFL); }

bool ChatTerminal::interrupted() const { return was_interrupted != 0; }
void ChatTerminal::forget_interrupt() { was_interrupted = 0; }

// Waits for input for a moment. False: there will be none.
bool ChatTerminal::read_more() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, kPollMs) <= 0) return true;
  char bytes[4096];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n > 0) input_.append(bytes, static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

ChatTerminal::Input ChatTerminal::read_line(std::string_view prompt, std::string& line) {
  was_interrupted = 0;
  put(kBold, prompt);
  std::fflush(stdout);
  std::size_t end = input_.find('\n');
  while (end == std::string::npos && !input_ended_ && was_interrupted == 0) {
    input_ended_ = !read_more();
    end = input_.find('\n');
  }
  if (was_interrupted != 0) {
    input_.clear();
    put(kPlain, "\n");
    return Input::kInterrupted;
  }
  if (end == std::string::npos && input_.empty()) {
    put(kPlain, "\n");
    return Input::kEnd;
  }
  line = input_.substr(0, end);
  input_.erase(0, end == std::string::npos ? end : end + 1);
  if (shows_input_) put(kPlain, line + "\n");
  return Input::kLine;
}

void ChatTerminal::put(std::string_view style, std::string_view text) {
  const std::string shown = harmless(text);
  if (has_colours_) std::fwrite(style.data(), 1, style.size(), stdout);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (has_colours_) std::fwrite(kPlain.data(), 1, kPlain.size(), stdout);
}

void ChatTerminal::begin_block(BlockKind kind, std::string_view tool_name) {
  const std::string_view style = kind == BlockKind::kReasoning  ? kDim
                                 : kind == BlockKind::kToolCall ? kCyan
                                                                : kPlain;
  if (kind == BlockKind::kToolCall) put(style, "-> " + std::string(tool_name) + " ");
  if (has_colours_) std::fwrite(style.data(), 1, style.size(), stdout);
}

void ChatTerminal::write(std::string_view bytes) {
  const std::string shown = harmless(bytes);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

void ChatTerminal::end_block() {
  put(kPlain, "\n");
  std::fflush(stdout);
}

void ChatTerminal::show_user(std::string_view text) {
  put(kBold, "> ");
  put(kPlain, std::string(text) + "\n");
}

void ChatTerminal::show_result(std::string_view text) {
  std::size_t n_lines = 0, n_hidden = 0;
  for (std::size_t at = 0; at <= text.size(); ++n_lines) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (n_lines < kMaxResultLines) {
      put(kDim, "   " + std::string(text.substr(at, end - at)) + "\n");
    } else {
      ++n_hidden;
    }
    at = end + 1;
  }
  if (n_hidden > 0) put(kDim, "   ... and " + std::to_string(n_hidden) + " more lines\n");
  std::fflush(stdout);
}

void ChatTerminal::show_change(char sign, std::string_view text) {
  std::string lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines += "   " + std::string(1, sign) + " " + std::string(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  put(sign == '-' ? kRed : kGreen, lines);
}

void ChatTerminal::note(std::string_view text) {
  put(kDim, std::string(text) + "\n");
  std::fflush(stdout);
}

void ChatTerminal::error(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "cairn: %s\n", printable(status.to_string()).c_str());
}

}  // namespace cairn::cli
