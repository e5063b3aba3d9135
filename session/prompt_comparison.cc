// Tokens say where two prompts part, messages say why: the first message that differs is looked at,
// and only where all messages before the difference are the same it was the format's doing.
#include "session/prompt_comparison.h"

#include <algorithm>
#include <map>

#include "engine/sizes.h"
#include "engine/utf8.h"
#include "session/message_match.h"

namespace cairn::session {
namespace {

using engine::RenderedPrompt;
using engine::usize;

constexpr std::size_t kShownBytes = 40;

std::size_t bytes_before(const RenderedPrompt& prompt, std::size_t n_tokens,
                         const engine::Tokenizer& tokenizer) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < n_tokens; ++i) bytes += tokenizer.bytes(prompt.tokens[i]).size();
  return bytes;
}

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Whole characters only; what is no UTF-8 is shown as U+FFFD.
std::string shown_from(std::string_view text, std::size_t at) {
  std::string shown =
      engine::replace_invalid_utf8(text.substr(std::min(at, text.size())).substr(0, kShownBytes));
  std::size_t end = std::min(shown.size(), kShownBytes);
  while (is_inside_character(shown, end)) --end;
  shown.resize(end);
  return shown;
}

// The first byte at which the texts differ, from the first token on that does. Where the tokens of
// equal text differ it is the token's.
std::size_t different_byte(const RenderedPrompt& known, const RenderedPrompt& given,
                           std::size_t at) {
  const std::string_view a = std::string_view(known.text).substr(at);
  const std::string_view b = std::string_view(given.text).substr(at);
  const auto differs = std::ranges::mismatch(a, b);
  if (differs.in1 == a.end() && differs.in2 == b.end()) return at;
  std::size_t byte = at + usize(differs.in1 - a.begin());
  while (byte > at && is_inside_character(given.text, byte)) --byte;
  return byte;
}

bool same_message(const Message& given, const Message& known) {
  if (given.role != known.role) return false;
  if (given.role == Role::kAssistant) return match_answer(given, known) != SyncMatch::kNone;
  return says_the_same(given, known) && given.content.size() == known.content.size();
}

std::string ordinal(std::size_t message) { return "message " + std::to_string(message); }

struct Verdict {
  MissCause cause = MissCause::kNone;
  std::string detail;
  std::string tool;
};

Verdict system_verdict(const Message& given, const Message& known, std::size_t at) {
  if (shown_text(given) != shown_text(known)) {
    return {MissCause::kSystemChanged, "the system text (" + ordinal(at) + ") is another", {}};
  }
  const ToolDifference tools = compare_tools(known.tools_json, given.tools_json);
  if (!tools.tool.empty()) {
    return {MissCause::kToolsChanged, "tool '" + tools.tool + "' was " + tools.what, tools.tool};
  }
  if (given.tools_json != known.tools_json) {
    return {MissCause::kToolsChanged, "the tools are written or ordered differently", {}};
  }
  return {MissCause::kSystemChanged, "the response format (" + ordinal(at) + ") is another", {}};
}

// Of the message at which both conversations go on differently.
Verdict message_verdict(const ShownConversation& known, const ShownConversation& given,
                        std::size_t at, HeadMove move) {
  const Message& now = given.messages[at];
  const Message& before = known.messages[at];
  const bool answered = before.role == Role::kAssistant && now.role != Role::kAssistant;
  if (move == HeadMove::kByHost || (answered && at + 1 >= given.messages.size())) {
    return {MissCause::kHeadMoved, "the session went back before " + ordinal(at), {}};
  }
  if (now.role != before.role) {
    return {MissCause::kMessageEdited, "before " + ordinal(at) + " one was added or left out", {}};
  }
  if (now.role == Role::kSystem) return system_verdict(now, before, at);
  if (now.role == Role::kAssistant && is_rewritten(now, before)) {
    return {
        MissCause::kAnswerRewritten, "the answer (" + ordinal(at) + ") came back rewritten", {}};
  }
  return {MissCause::kMessageEdited, ordinal(at) + " says something else than before", {}};
}

// Messages before the first that differs are the same, but their tokens are not.
Verdict format_verdict(const ShownConversation& known, const ShownConversation& given,
                       std::size_t message, std::size_t first_changed) {
  if (known.thinking != given.thinking || known.effort != given.effort) {
    return {
        MissCause::kModeChanged, "thinking or effort, which the prompt begins with, changed", {}};
  }
  for (std::size_t i = first_changed; i < given.messages.size(); ++i) {
    if (given.messages[i].role != Role::kSystem && !given.messages[i].tools_json.empty()) {
      return {
          MissCause::kToolsChanged, ordinal(i) + " brought tools, which stand at the start", {}};
    }
  }
  if (message < given.messages.size() && given.messages[message].role == Role::kAssistant &&
      known.messages[message].reasoning.empty()) {
    return {MissCause::kAnswerRewritten,
            "the answer (" + ordinal(message) + ") has other tokens than before",
            {}};
  }
  return {MissCause::kReasoningDropped,
          "the format no longer shows the reasoning after " + ordinal(message),
          {}};
}

Verdict verdict(const ShownConversation& known, const ShownConversation& given, int message,
                HeadMove move) {
  const std::size_t n_both = std::min(known.messages.size(), given.messages.size());
  std::size_t at = 0;
  while (at < n_both && same_message(given.messages[at], known.messages[at])) ++at;
  const auto where = static_cast<std::size_t>(std::max(message, 0));
  if (where < at) return format_verdict(known, given, where, at);
  if (at < n_both) return message_verdict(known, given, at, move);
  if (at < known.messages.size()) {
    return {MissCause::kHeadMoved, "the session went back before " + ordinal(at), {}};
  }
  return {MissCause::kPromptChanged, "the prompt differs from the last turn's", {}};
}

// In order, each message of the one taken for the next of the other that is like it.
std::vector<bool> repeated_messages(std::span<const Message> known,
                                    std::span<const Message> given) {
  std::multimap<std::string, std::size_t> places;
  for (std::size_t i = 0; i < known.size(); ++i) places.emplace(message_key(known[i]), i);
  std::vector<bool> repeated;
  std::size_t next = 0;
  for (const Message& message : given) {
    const auto [begin, end] = places.equal_range(message_key(message));
    const auto found = std::find_if(begin, end, [&](const auto& at) { return at.second >= next; });
    repeated.push_back(found != end);
    if (found != end) next = found->second + 1;
  }
  return repeated;
}

// The known prompt's last token was sampled and never computed.
void add_repeated(const ShownConversation& known, const ShownConversation& given,
                  const engine::Tokenizer& tokenizer, PromptComparison& comparison) {
  const std::vector<bool> repeated = repeated_messages(known.messages, given.messages);
  const std::int64_t n_computed = comparison.known_tokens - 1;
  std::size_t byte = 0;
  for (std::size_t i = 0; i < given.prompt.tokens.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i);
    const int message = engine::stretch_at(given.prompt, byte).message;
    byte += tokenizer.bytes(given.prompt.tokens[i]).size();
    // What two different messages begin with is no loss: nobody expects it to be kept.
    const bool is_repeated = message < 0 || repeated[static_cast<std::size_t>(message)];
    const bool was_there =
        is_repeated &&
        (token < comparison.common_tokens ? token < n_computed : comparison.first_difference >= 0);
    if (!was_there) continue;
    if (!comparison.repeated.empty() && comparison.repeated.back().second == token) {
      ++comparison.repeated.back().second;
    } else {
      comparison.repeated.emplace_back(token, token + 1);
    }
  }
}

}  // namespace

PromptComparison compare_prompts(const ShownConversation& known, const ShownConversation& given,
                                 HeadMove move, const engine::Tokenizer& tokenizer) {
  PromptComparison comparison;
  const auto differs = std::ranges::mismatch(known.prompt.tokens, given.prompt.tokens);
  const auto n_common = static_cast<std::size_t>(differs.in1 - known.prompt.tokens.begin());
  comparison.known_tokens = static_cast<std::int64_t>(known.prompt.tokens.size());
  comparison.common_tokens = static_cast<std::int64_t>(n_common);
  comparison.moved = move != HeadMove::kNone;
  if (differs.in1 != known.prompt.tokens.end() && differs.in2 != given.prompt.tokens.end()) {
    comparison.first_difference = comparison.common_tokens;
    const std::size_t byte =
        different_byte(known.prompt, given.prompt, bytes_before(given.prompt, n_common, tokenizer));
    const RenderedPrompt::Stretch& stretch = engine::stretch_at(given.prompt, byte);
    PromptDifference& difference = comparison.difference;
    difference.message = stretch.message;
    difference.byte = static_cast<std::int64_t>(stretch.offset + (byte - stretch.begin));
    difference.stored = shown_from(known.prompt.text, byte);
    difference.given = shown_from(given.prompt.text, byte);
    Verdict why = verdict(known, given, stretch.message, move);
    comparison.cause = why.cause;
    comparison.detail = std::move(why.detail);
    difference.tool = std::move(why.tool);
  }
  add_repeated(known, given, tokenizer, comparison);
  return comparison;
}

std::int64_t repeated_after(const PromptComparison& comparison, std::int64_t n_reused) {
  std::int64_t n = 0;
  for (const auto& [begin, end] : comparison.repeated) {
    n += std::max<std::int64_t>(end - std::max(begin, n_reused), 0);
  }
  return n;
}

}  // namespace cairn::session
