// The regular expressions of a tokenizer.json in PCRE2's syntax. The file has them for Oniguruma
// with the character classes of a Unicode version later than PCRE2's (spec/prompt-format.md
// section 1.1).
#ifndef CAIRN_ENGINE_SPLIT_PATTERN_H_
#define CAIRN_ENGINE_SPLIT_PATTERN_H_

#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::engine {

// Rewrites what PCRE2 (PCRE2_UTF without PCRE2_UCP) reads differently: \p{L|M|N|P|S} become the
// classes of Unicode 16, \s exactly the White_Space property. Fails with kUnsupported for syntax
// outside the subset that both libraries read alike; the message names what was found.
Result<std::string> translate_split_pattern(std::string_view pattern);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SPLIT_PATTERN_H_
