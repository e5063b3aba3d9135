// The commits that the crash writer makes and the crash test expects: number i writes two events,
// a block, the tail and the session's record, all of which follow from i.
#ifndef CAIRN_TESTS_SESSION_CRASH_SCRIPT_H_
#define CAIRN_TESTS_SESSION_CRASH_SCRIPT_H_

#include <string>
#include <vector>

#include "session/session_store.h"
#include "tests/session/store_samples.h"

namespace cairn::test {

inline constexpr const char* kCrashSession = "crashing";

struct CrashCommit {
  std::vector<session::LogEvent> events;
  SampleBlock block;
  Bytes tail;
};

inline std::string crash_text(std::uint32_t i) { return "message " + std::to_string(i); }

// i = 1, 2, ...; `parent` is the key of the block before.
inline CrashCommit crash_commit(std::uint32_t i, const session::BlockKey& parent) {
  return {.events = {user_event(2 * i - 1, crash_text(i)),
                     token_event(2 * i, random_tokens(i, 1 + i % 20))},
          .block = sample_block(parent, i - 1, 7, 4000 + i % 7000),
          .tail = random_bytes(i, 20'000 + i % 30'000)};
}

// Two of three commits are synced; the death of the process alone loses none of either kind.
inline session::Durability crash_durability(std::uint32_t i) {
  return i % 3 == 0 ? session::Durability::kBuffered : session::Durability::kSynced;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_CRASH_SCRIPT_H_
