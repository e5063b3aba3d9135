// The conversation that the session writer holds and the crash test expects.
#ifndef CAIRN_TESTS_SESSION_SESSION_SCRIPT_H_
#define CAIRN_TESTS_SESSION_SESSION_SCRIPT_H_

#include <cstdint>
#include <string>

#include "tests/session/live_session.h"

namespace cairn::test {

inline constexpr const char* kScriptSession = "killed again and again";
inline constexpr std::uint32_t kScriptTurns = 4;

// Some turns cross the end of a block in their prompt, some in their answer.
inline std::string script_message(std::uint32_t turn) {
  return words(turn % 2 == 0 ? 55 : 5, turn + 1);
}
inline TurnOptions script_options(std::uint32_t turn) {
  return {.sampling = turn % 2 == 0 ? sampled(turn) : penalised(turn), .max_tokens = 40};
}

// What the writer says about its turns, in the machine's byte order: bytes that were delivered, or
// that the turn has ended.
struct WriterNote {
  static constexpr std::uint32_t kEnded = 0xffffffff;
  std::uint32_t turn = 0;
  std::uint32_t n_bytes = 0;  // which follow, or kEnded
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_SESSION_SCRIPT_H_
