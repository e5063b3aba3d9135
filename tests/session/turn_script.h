// A conversation whose every answer can be compared with that of a session that is never closed.
#ifndef CAIRN_TESTS_SESSION_TURN_SCRIPT_H_
#define CAIRN_TESTS_SESSION_TURN_SCRIPT_H_

#include <vector>

#include "engine/pass_plan.h"
#include "session/block_key.h"
#include "tests/session/live_session.h"

namespace cairn::test {

inline constexpr std::int64_t kBlock = session::kBlockTokens;

// One conversation of several turns, each answered and then compared.
struct Script {
  SessionOptions options = {};
  SamplingParams sampling;
  int n_words = 80;  // of the first message
  std::int32_t max_tokens = 24;
};

inline Reply turn(Session& session, const Script& script, unsigned number) {
  return ask(session, words(number == 0 ? script.n_words : 20, number + 1),
             {.sampling = script.sampling, .max_tokens = script.max_tokens});
}

// Tokens of every answer of a session that is never closed.
inline std::vector<std::vector<TokenId>> unbroken(const Script& script, unsigned n_turns) {
  LiveStore store;
  Session session = store.create("unbroken", script.options);
  std::vector<std::vector<TokenId>> answers;
  for (unsigned number = 0; number < n_turns; ++number) {
    turn(session, script, number);
    answers.push_back(last_tokens(session));
  }
  return answers;
}

// Rows that an exact replay runs through the encoder half below a block boundary at `reused`, with
// `prefilled` new tokens: a window less one for each layer, and what the decoder half looks back.
inline std::int64_t replayed_rows(std::int64_t reused, std::int64_t prefilled) {
  engine::PlanRequest request;
  request.live = {reused, false, false};
  request.end = reused + prefilled;
  return reused - engine::make_plan(live_model().state()->config(), request).begin;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_TURN_SCRIPT_H_
