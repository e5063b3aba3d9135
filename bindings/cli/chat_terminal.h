// A conversation on a terminal: lines in, streamed answers out, Ctrl-C as a flag.
#ifndef CAIRN_BINDINGS_CLI_CHAT_TERMINAL_H_
#define CAIRN_BINDINGS_CLI_CHAT_TERMINAL_H_

#include <string>
#include <string_view>

#include "cairn/session.h"

namespace cairn::cli {

// Works as well where stdin or stdout are files or pipes: without colours, and lines that are read
// from something else than a terminal are shown as if they had been typed. One at a time in a
// process, confined to one thread; while it lives, SIGINT does not end the process.
class ChatTerminal {
 public:
  ChatTerminal();
  ~ChatTerminal();
  ChatTerminal(const ChatTerminal&) = delete;
  ChatTerminal& operator=(const ChatTerminal&) = delete;

  enum class Input { kLine, kInterrupted, kEnd };
  // Shows `prompt` and waits for a line, given without its newline. Blocks.
  Input read_line(std::string_view prompt, std::string& line);

  // Whether Ctrl-C came since the last call of forget_interrupt or read_line.
  bool interrupted() const;
  void forget_interrupt();

  // A block of an answer, in pieces: begin, any number of write, end. `tool_name` of a call only.
  void begin_block(BlockKind kind, std::string_view tool_name = {});
  void write(std::string_view bytes);
  void end_block();

  void show_user(std::string_view text);
  // The first lines of a tool's result, indented.
  void show_result(std::string_view text);
  // One line of a change that is asked about; `sign` is '-' or '+'.
  void show_change(char sign, std::string_view text);
  // A remark of the program itself.
  void note(std::string_view text);
  void error(const Status& status);

 private:
  void put(std::string_view style, std::string_view text);
  bool read_more();

  std::string input_;  // read, but not yet given as a line
  bool input_ended_ = false, shows_input_ = false, has_colours_ = false;
};

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_CHAT_TERMINAL_H_
