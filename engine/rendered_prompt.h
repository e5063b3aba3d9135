// A prompt with what says where its tokens come from.
#ifndef CAIRN_ENGINE_RENDERED_PROMPT_H_
#define CAIRN_ENGINE_RENDERED_PROMPT_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "engine/chat_template.h"
#include "engine/tokenizer.h"

namespace cairn::engine {

// The bytes of `tokens`, one after another, are `text`.
struct RenderedPrompt {
  // A stretch of the text that belongs to one message.
  struct Stretch {
    std::size_t begin = 0, end = 0;  // of the text, not empty
    int message = -1;                // -1 = none
    std::size_t offset = 0;          // of `begin` in what the prompt shows of the message
  };

  std::vector<TokenId> tokens;
  std::string text;
  std::vector<Stretch> stretches;  // ascending, without gaps
};

RenderedPrompt rendered_prompt(std::span<const PromptSegment> segments, const Tokenizer& tokenizer);

// The stretch that byte `at` of the text is in; the last one at the end. The prompt is not empty.
const RenderedPrompt::Stretch& stretch_at(const RenderedPrompt& prompt, std::size_t at);

// The public form; `n_messages` were rendered.
Prompt public_prompt(RenderedPrompt prompt, std::size_t n_messages, const Tokenizer& tokenizer);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_RENDERED_PROMPT_H_
