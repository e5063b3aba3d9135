#include "engine/rendered_prompt.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/sizes.h"

namespace cairn::engine {

RenderedPrompt rendered_prompt(std::span<const PromptSegment> segments,
                               const Tokenizer& tokenizer) {
  RenderedPrompt prompt;
  prompt.tokens = encode_prompt(segments, tokenizer);
  std::map<int, std::size_t> shown;  // bytes of each message so far
  for (const PromptSegment& segment : segments) {
    const std::size_t begin = prompt.text.size();
    prompt.text += segment.text;
    for (const TokenId token : segment.tokens) prompt.text += tokenizer.bytes(token);
    if (prompt.text.size() == begin) continue;
    std::size_t& offset = shown[segment.message];
    prompt.stretches.push_back({begin, prompt.text.size(), segment.message, offset});
    offset += prompt.text.size() - begin;
  }
  return prompt;
}

const RenderedPrompt::Stretch& stretch_at(const RenderedPrompt& prompt, std::size_t at) {
  const auto after =
      std::ranges::upper_bound(prompt.stretches, at, {}, &RenderedPrompt::Stretch::begin);
  return *std::prev(after);
}

Prompt public_prompt(RenderedPrompt prompt, std::size_t n_messages, const Tokenizer& tokenizer) {
  Prompt out;
  out.message_tokens.resize(n_messages);
  std::size_t at = 0;
  for (const TokenId token : prompt.tokens) {
    const int message = stretch_at(prompt, at).message;
    if (message >= 0) ++out.message_tokens[usize(message)];
    at += tokenizer.bytes(token).size();
  }
  out.text = std::move(prompt.text);
  out.tokens = std::move(prompt.tokens);
  return out;
}

}  // namespace cairn::engine
