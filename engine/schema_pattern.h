// The regular expressions of JSON Schema's `pattern` as automata over UTF-8.
//
// The subset of ECMA-262 (with the u flag) that describes regular languages:
//   characters; `.`; classes [a-z], [^a-z]; \d \D \w \W \s \S; \t \n \v \f \r \0; \xhh, \uhhhh,
//   \u{h...}; escaped punctuation; groups (...), (?:...), (?<name>...); alternation;
//   * + ? {n} {n,} {n,m} and their lazy forms (which describe the same texts); ^ and $ anywhere.
// Not in it: back references, look-around, \b and \B, \p{...}, \c, flags, lone surrogates. Like
// `pattern` itself, an expression matches anywhere in the text unless it is anchored.
#ifndef CAIRN_ENGINE_SCHEMA_PATTERN_H_
#define CAIRN_ENGINE_SCHEMA_PATTERN_H_

#include <string_view>

#include "engine/byte_dfa.h"

namespace cairn::engine {

// The well-formed UTF-8 texts that `pattern` (UTF-8) matches. kInvalidArgument: malformed, with the
// byte; kUnsupported: outside of the subset, or too large. Time and memory are bounded.
Result<SharedDfa> compile_pattern(std::string_view pattern);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SCHEMA_PATTERN_H_
