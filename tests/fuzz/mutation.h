// Inputs for the parsers of stored formats: valid bytes, changed. A run is repeated by its seed.
#ifndef CAIRN_TESTS_FUZZ_MUTATION_H_
#define CAIRN_TESTS_FUZZ_MUTATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace cairn::test {

// Inputs of one property in this run: `n_normal`, and twenty times as many where ctest runs the
// program with the label slow.
inline int n_inputs(int n_normal) {
  return std::getenv("CAIRN_FUZZ_LONG") != nullptr ? 20 * n_normal : n_normal;
}

class Mutation {
 public:
  explicit Mutation(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  std::string random_bytes(std::size_t n_bytes) {
    std::string bytes(n_bytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  // One of the corpus with one change or a few; sometimes nothing but noise.
  std::string of(const std::vector<std::string>& corpus) {
    if (below(50) == 0) return random_bytes(below(200));
    std::string bytes = corpus[below(corpus.size())];
    do {
      change(bytes, corpus);
    } while (below(3) == 0);
    return bytes;
  }

 private:
  void change(std::string& bytes, const std::vector<std::string>& corpus) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t n_rest = bytes.size() - at;
    switch (below(9)) {
      case 0:
        if (n_rest > 0) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        return;
      case 1:
        if (n_rest > 0) bytes[at] = static_cast<char>(random_());
        return;
      case 2:
        bytes.resize(at);
        return;
      case 3:
        bytes.erase(at, below(n_rest + 1));
        return;
      case 4:
        bytes.insert(at, random_bytes(below(12)));
        return;
      case 5:  // a part again
        bytes.insert(at, bytes.substr(at, below(40)));
        return;
      case 6: {  // the end of another
        const std::string& other = corpus[below(corpus.size())];
        bytes = bytes.substr(0, at) + other.substr(below(other.size() + 1));
        return;
      }
      case 7:  // numbers at their ends, as fixed and as variable lengths
        bytes.replace(at, std::min<std::size_t>(n_rest, 4), kExtremes[below(kExtremes.size())]);
        return;
      default:
        bytes.insert(at, kExtremes[below(kExtremes.size())]);
    }
  }

  static inline const std::vector<std::string> kExtremes = {
      std::string(1, '\0'),
      "\x7f",
      "\x80\x01",
      "\xff\xff\xff\xff",
      "\xff\xff\xff\x7f",
      std::string("\0\0\0\x80", 4),
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
      "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
      "-1",
      "18446744073709551616",
      "\xfe\xff\xff\xff\x0f"};

  std::mt19937 random_;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FUZZ_MUTATION_H_
