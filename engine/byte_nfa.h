// Nondeterministic automata over UTF-8, as a regular expression is turned into one piece by piece.
#ifndef CAIRN_ENGINE_BYTE_NFA_H_
#define CAIRN_ENGINE_BYTE_NFA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/byte_dfa.h"

namespace cairn::engine {

struct CodeRange {
  char32_t first = 0, last = 0;  // both included
};

class ByteNfa {
 public:
  using State = std::uint32_t;
  enum class When : std::uint8_t { kAlways, kAtStart, kAtEnd };  // of the whole text

  static constexpr std::size_t kMaxStates = 50'000;
  // Looks at an edge while determinising; about a second.
  static constexpr std::uint64_t kMaxWork = 200'000'000;

  State add_state();
  // Without reading anything.
  void add_jump(State from, State to, When when = When::kAlways);
  // Reading one character of a range; surrogates in it are left out.
  void add_characters(State from, State to, CodeRange range);
  bool is_full() const { return states_.size() > kMaxStates; }  // stop adding

  // The texts that lead from `start` to `end`.
  Result<SharedDfa> determinised(State start, State end) const;

 private:
  struct Bytes {
    std::uint8_t first, last;
    State to;
  };
  struct Jump {
    When when;
    State to;
  };
  struct Node {
    std::vector<Bytes> bytes;
    std::vector<Jump> jumps;
  };

  // What a walk has seen, and how much it did.
  struct Walk {
    std::vector<std::uint32_t> seen_in;  // by state: number of the newest walk that saw it
    std::uint32_t number = 0;
    std::uint64_t work = 0;
  };

  // Adds what jumps reach. `states` stays sorted and unique.
  void close(std::vector<State>& states, bool at_start, bool at_end, Walk& walk) const;
  void add_byte_sequence(State from, State to, std::uint32_t n_bytes, char32_t first,
                         char32_t last);

  std::vector<Node> states_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_BYTE_NFA_H_
