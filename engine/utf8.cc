#include "engine/utf8.h"

#include <cstdint>
#include <cstring>

namespace cairn::engine {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

// What a lead byte announces: length of the character and the range of its second byte, which is
// where overlong forms, surrogates and values above U+10FFFF are excluded. Length 0 = not a lead.
struct Lead {
  std::size_t n_bytes;
  std::uint8_t second_min, second_max;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t n = 0;
  for (; n + 8 <= text.size(); n += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + n, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (n < text.size() && byte_at(text, n) < 0x80) ++n;
  return n;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.n_bytes == 0) return {Utf8Step::Kind::kInvalid, 1};
  for (std::size_t i = 1; i < lead.n_bytes; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i};
    const std::uint8_t low = i == 1 ? lead.second_min : 0x80;
    const std::uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte_at(text, i) < low || byte_at(text, i) > high) return {Utf8Step::Kind::kInvalid, i};
  }
  return {Utf8Step::Kind::kCharacter, lead.n_bytes};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    n += ascii_prefix(text.substr(n));
    if (n == text.size()) break;
    const Utf8Step step = next_utf8(text.substr(n));
    if (step.kind != Utf8Step::Kind::kCharacter) break;
    n += step.n_bytes;
  }
  return n;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n_valid = valid_utf8_prefix(text);
    out.append(text.substr(0, n_valid));
    text.remove_prefix(n_valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(next_utf8(text).n_bytes);
  }
  return out;
}

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace cairn::engine
