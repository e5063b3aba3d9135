// Spellings of the added tokens that structure a prompt (spec/prompt-format.md section 1.2). The
// bar is U+FF5C, the blank in some names U+2581.
#ifndef CAIRN_ENGINE_PROMPT_MARKERS_H_
#define CAIRN_ENGINE_PROMPT_MARKERS_H_

#include <string_view>

namespace cairn::engine {

inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kPadMarker = "<｜▁pad▁｜>";
inline constexpr std::string_view kSystemMarker = "<｜System｜>";
inline constexpr std::string_view kUserMarker = "<｜User｜>";
inline constexpr std::string_view kAssistantMarker = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminderMarker = "<｜latest_reminder｜>";
inline constexpr std::string_view kImageMarker = "<｜deepseek_image｜>";
inline constexpr std::string_view kActionMarker = "<｜action｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";  // stands inside a tag: "<｜DSML｜ calls>"

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_PROMPT_MARKERS_H_
