// Builds safetensors files byte by byte, right or deliberately wrong.
#ifndef CAIRN_TESTS_SUPPORT_SAFETENSORS_TEXT_H_
#define CAIRN_TESTS_SUPPORT_SAFETENSORS_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::test {

// Length prefix, header padded to a multiple of 8, data.
inline std::string safetensors_file(std::string header, std::string_view data) {
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  }
  return file.append(header).append(data);
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SUPPORT_SAFETENSORS_TEXT_H_
