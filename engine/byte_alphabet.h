// The GPT-2 byte alphabet: one printable character per byte, so that a vocabulary of byte strings
// can be written as text (spec/prompt-format.md section 1.1, step 3).
#ifndef CAIRN_ENGINE_BYTE_ALPHABET_H_
#define CAIRN_ENGINE_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::engine {

// UTF-8 of the character that stands for `byte`; 1 or 2 bytes, static storage.
std::string_view byte_spelling(std::uint8_t byte);

// The bytes that `spelling` stands for; nothing if it has a character outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_BYTE_ALPHABET_H_
