#include "engine/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "engine/utf8.h"

namespace cairn::engine {
namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr int kFirstSubstitute = 256;  // U+0100, for the bytes that are not printable
constexpr int kNumSubstitutes = 68;

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int, kFirstSubstitute + kNumSubstitutes> byte_of;  // code point -> byte or -1

  Alphabet() {
    byte_of.fill(-1);
    int substitute = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      const int code = stands_for_itself(byte) ? byte : substitute++;
      append_utf8(static_cast<char32_t>(code), spelling[static_cast<std::size_t>(byte)]);
      byte_of[static_cast<std::size_t>(code)] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_spelling(std::uint8_t byte) { return alphabet().spelling[byte]; }

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  const auto& byte_of = alphabet().byte_of;
  std::string bytes;
  for (std::size_t i = 0; i < spelling.size();) {
    const auto first = static_cast<std::uint8_t>(spelling[i]);
    std::size_t code = first;
    if (first >= 0x80) {  // the alphabet ends below U+0800: two bytes
      const Utf8Step step = next_utf8(spelling.substr(i));
      if (step.kind != Utf8Step::Kind::kCharacter || step.n_bytes != 2) return {};
      code = (first & 0x1Fu) << 6 | (static_cast<std::uint8_t>(spelling[i + 1]) & 0x3Fu);
      ++i;
    }
    ++i;
    if (code >= byte_of.size() || byte_of[code] < 0) return {};
    bytes.push_back(static_cast<char>(byte_of[code]));
  }
  return bytes;
}

}  // namespace cairn::engine
