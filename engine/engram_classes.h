// Which token ids Engram takes for the same token (spec/engram.md section 3).
#ifndef CAIRN_ENGINE_ENGRAM_CLASSES_H_
#define CAIRN_ENGINE_ENGRAM_CLASSES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace cairn::engine {

// SHA-256 of the released vocabulary's class map, and that map's size.
inline constexpr std::string_view kReleasedEngramClassesDigest =
    "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481";
inline constexpr int kReleasedVocabularySize = 129280;
inline constexpr std::int64_t kReleasedEngramClassCount = 99092;

// The class map: ids in increasing order, key = normalised text, class on first sight. Has
// `vocab_size` entries; ids without a token share the class of the empty text.
std::vector<std::int32_t> build_engram_classes(const Tokenizer& tokenizer, int vocab_size);

// The normalised form of a token's text: compatibility decomposition, marks removed, lower case,
// white space collapsed and stripped. `text` must be well-formed UTF-8. May be empty.
std::string normalise_for_engram(std::string_view text);

// Lower-case hex SHA-256 of the map as little-endian int32.
std::string engram_classes_digest(const std::vector<std::int32_t>& classes);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ENGRAM_CLASSES_H_
