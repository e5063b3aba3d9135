// The published map was made with Unicode 14 data, which utf8proc 2.8 has. The specification
// composes (NFKC) and then decomposes (NFD); both together are the compatibility decomposition
// (NFKD), since canonical decomposition gives one result for canonically equivalent strings. Its
// full lower-case mapping is the simple one here: the only character whose unconditional mapping is
// longer, U+0130, is a letter and a mark after decomposition.
#include "engine/engram_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <unordered_map>

#include "engine/sha256.h"
#include "engine/utf8.h"

namespace cairn::engine {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

constexpr utf8proc_int32_t kLoneSpace = 0xE000;  // private use: survives stripping

CodePoints compatibility_decomposition(std::string_view text) {
  constexpr auto kOptions =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto n_bytes = static_cast<utf8proc_ssize_t>(text.size());
  CodePoints codes(text.size());  // enough for most text; the call says if it is not
  while (true) {
    const auto capacity = static_cast<utf8proc_ssize_t>(codes.size());
    const auto needed = utf8proc_decompose(bytes, n_bytes, codes.data(), capacity, kOptions);
    codes.resize(needed > 0 ? static_cast<std::size_t>(needed) : 0);
    if (needed <= capacity) return codes;
  }
}

bool is_mark(utf8proc_int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_plain_blank(utf8proc_int32_t code) {
  return code == ' ' || code == '\t' || code == '\r' || code == '\n';
}

// The White_Space property.
bool is_white_space(utf8proc_int32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

void collapse_blanks(CodePoints& codes) {
  const auto last = std::unique(codes.begin(), codes.end(), [](auto a, auto b) {
    return is_plain_blank(a) && is_plain_blank(b);
  });
  codes.erase(last, codes.end());
  std::replace_if(codes.begin(), codes.end(), is_plain_blank, ' ');
}

std::span<utf8proc_int32_t> strip(CodePoints& codes) {
  const auto first = std::find_if_not(codes.begin(), codes.end(), is_white_space);
  const auto last =
      std::find_if_not(codes.rbegin(), std::make_reverse_iterator(first), is_white_space);
  return {first, last.base()};
}

// The token's text, or its raw spelling where the text is no valid or no certain string.
std::string engram_key(const Tokenizer& tokenizer, TokenId id) {
  std::string text = replace_invalid_utf8(tokenizer.bytes(id));
  if (text.find(kReplacementCharacter) != text.npos) return std::string(tokenizer.spelling(id));
  std::string normalised = normalise_for_engram(text);
  return normalised.empty() ? text : normalised;
}

}  // namespace

std::string normalise_for_engram(std::string_view text) {
  CodePoints codes = compatibility_decomposition(text);
  std::erase_if(codes, is_mark);
  std::transform(codes.begin(), codes.end(), codes.begin(), utf8proc_tolower);
  collapse_blanks(codes);
  if (codes.size() == 1 && codes.front() == ' ') codes.front() = kLoneSpace;
  std::string out;
  for (const utf8proc_int32_t code : strip(codes)) {
    append_utf8(static_cast<char32_t>(code == kLoneSpace ? ' ' : code), out);
  }
  return out;
}

std::vector<std::int32_t> build_engram_classes(const Tokenizer& tokenizer, int vocab_size) {
  std::vector<std::int32_t> classes;
  classes.reserve(static_cast<std::size_t>(std::max(vocab_size, 0)));
  std::unordered_map<std::string, std::int32_t> class_of_key;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const auto next_class = static_cast<std::int32_t>(class_of_key.size());
    classes.push_back(
        class_of_key.try_emplace(engram_key(tokenizer, id), next_class).first->second);
  }
  return classes;
}

std::string engram_classes_digest(const std::vector<std::int32_t>& classes) {
  Sha256 hash;
  for (const std::int32_t value : classes) {
    const auto bits = static_cast<std::uint32_t>(value);
    const std::array<std::byte, 4> bytes = {
        static_cast<std::byte>(bits), static_cast<std::byte>(bits >> 8),
        static_cast<std::byte>(bits >> 16), static_cast<std::byte>(bits >> 24)};
    hash.update(bytes);
  }
  return hex(hash.finish());
}

}  // namespace cairn::engine
