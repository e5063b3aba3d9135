// Where the prompt of a turn parts from what its session has computed, and why: the part of a reuse
// report that needs no store.
#ifndef CAIRN_SESSION_PROMPT_COMPARISON_H_
#define CAIRN_SESSION_PROMPT_COMPARISON_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/session.h"
#include "engine/rendered_prompt.h"

namespace cairn::session {

// A conversation as one turn's prompt shows it.
struct ShownConversation {
  std::span<const Message> messages;
  bool thinking = false;
  int effort = 0;
  engine::RenderedPrompt prompt;
};

// The two differ because a client changed its history, or because the host went back.
enum class HeadMove { kNone, kByHost, kBySync };

struct PromptComparison {
  std::int64_t known_tokens = 0;       // of what was computed, the last sampled token included
  std::int64_t common_tokens = 0;      // before the first that differs
  std::int64_t first_difference = -1;  // -1: one of the two ends there
  // Why the prompt goes on differently; kNone: it goes on with what is new, or ends. kHeadMoved
  // counts only where something before the difference has to be computed again.
  MissCause cause = MissCause::kNone;
  std::string detail;  // one sentence for a person
  PromptDifference difference;
  bool moved = false;  // since the known turn
  // Ranges of the prompt's tokens, ascending: of messages that were computed before.
  std::vector<std::pair<std::int64_t, std::int64_t>> repeated;
};

// `known`: the prompt of an earlier turn and, as its last message, the answer that the turn gave.
PromptComparison compare_prompts(const ShownConversation& known, const ShownConversation& given,
                                 HeadMove move, const engine::Tokenizer& tokenizer);

// Of the repeated tokens those from `n_reused` on.
std::int64_t repeated_after(const PromptComparison& comparison, std::int64_t n_reused);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_PROMPT_COMPARISON_H_
