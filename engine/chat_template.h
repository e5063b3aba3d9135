// Messages -> the prompt, byte for byte and token for token (spec/prompt-format.md sections 2, 3).
#ifndef CAIRN_ENGINE_CHAT_TEMPLATE_H_
#define CAIRN_ENGINE_CHAT_TEMPLATE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"
#include "engine/tokenizer.h"

namespace cairn::engine {

struct PromptOptions {
  bool thinking = false;
  int effort = 75;            // 1..100; thinking mode only
  bool drop_thinking = true;  // forced to false when any message carries tools
  bool add_bos = true;
  bool open_answer = true;  // emit the header of the next assistant message (the usual case)
};

// A stretch of the prompt: the spelling of a marker (an added token), ordinary text (which never
// matches added tokens), or the exact tokens the model sampled.
struct PromptSegment {
  enum class Kind { kMarker, kText, kSampled };
  Kind kind = Kind::kText;
  std::string text;             // marker or text; for kSampled empty
  std::vector<TokenId> tokens;  // kSampled only
  // Index of the message it belongs to, -1 = none. An assistant header belongs to the message
  // before it; a system message that is inserted to carry tools is none.
  int message = -1;
};

// Whether the format can represent this message in some conversation. kInvalidArgument: a field in
// a role that has none, an unknown task, malformed tools or response format, a tool name or
// argument key with `"` or `>`. A message that passes never makes render_prompt fail.
Status check_message(const Message& message);

// Fails with kInvalidArgument on what the format cannot represent (message index and reason named)
// and on an effort out of range.
//
// Tools on a message that is no system message go to the first system message before it; an empty
// one is inserted at the start if there is none, so that appending never moves them. A task on a
// user message that continues a turn counts for the turn (the reference drops it).
//
// Where an assistant message has sampled_tokens they are used as they are, with `eos` appended if
// they were cut off and the turn is not to be left open. Where the format drops its reasoning, the
// part after `think_end` is (think_end < 0: the tokenizer has no such token). Only where the tokens
// do not show which part is reasoning, the message's fields are rendered in their place.
Result<std::vector<PromptSegment>> render_prompt(std::span<const Message> messages,
                                                 const PromptOptions& options, TokenId think_end,
                                                 TokenId eos);

// The prompt as one string; sampled segments are decoded.
std::string prompt_text(std::span<const PromptSegment> segments, const Tokenizer& tokenizer);

// The prompt as tokens. Adjacent text segments are joined before encoding. A marker that the
// tokenizer lacks (toy vocabularies) is encoded as ordinary text.
std::vector<TokenId> encode_prompt(std::span<const PromptSegment> segments,
                                   const Tokenizer& tokenizer);

// Effort by name ("low" 50, "high" 75, "max" 100) or number 1..100 in decimal.
Result<int> parse_effort(std::string_view text);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_CHAT_TEMPLATE_H_
