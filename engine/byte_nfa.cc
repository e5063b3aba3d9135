#include "engine/byte_nfa.h"

#include <algorithm>
#include <array>
#include <utility>

namespace cairn::engine {
namespace {

// A character takes n bytes up to the n-th of these.
constexpr std::array<char32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

// Marks the key of the first state: jumps at the start of the text lead on from there only.
constexpr std::uint32_t kAtStartMark = 0xFFFFFFFF;

std::uint8_t utf8_byte(char32_t code, std::uint32_t n_bytes, std::uint32_t index) {
  constexpr std::array<std::uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  const std::uint32_t shift = 6 * (n_bytes - 1 - index);
  if (index == 0) return std::uint8_t(kLead[n_bytes] | (code >> shift));
  return std::uint8_t(0x80 | ((code >> shift) & 0x3F));
}

}  // namespace

ByteNfa::State ByteNfa::add_state() {
  states_.emplace_back();
  return static_cast<State>(states_.size() - 1);
}

void ByteNfa::add_jump(State from, State to, When when) {
  states_[from].jumps.push_back({when, to});
}

void ByteNfa::add_characters(State from, State to, CodeRange range) {
  if (range.first <= 0xDFFF && range.last >= 0xD800) {
    if (range.first < 0xD800) add_characters(from, to, {range.first, 0xD7FF});
    if (range.last > 0xDFFF) add_characters(from, to, {0xE000, range.last});
    return;
  }
  char32_t first = range.first;
  for (std::uint32_t n = 1; n <= 4 && first <= range.last; ++n) {
    const char32_t last = std::min(range.last, kLastOfLength[n - 1]);
    if (first > last) continue;
    add_byte_sequence(from, to, n, first, last);
    first = last + 1;
  }
}

// Characters of one length. Where the bytes after the lead do not cover all continuations, the
// range is split into parts where they do.
void ByteNfa::add_byte_sequence(State from, State to, std::uint32_t n_bytes, char32_t first,
                                char32_t last) {
  for (std::uint32_t i = 1; i < n_bytes; ++i) {
    const char32_t low_bits = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~low_bits) == (last & ~low_bits)) continue;
    if ((first & low_bits) != 0) {
      add_byte_sequence(from, to, n_bytes, first, first | low_bits);
      add_byte_sequence(from, to, n_bytes, (first | low_bits) + 1, last);
      return;
    }
    if ((last & low_bits) != low_bits) {
      add_byte_sequence(from, to, n_bytes, first, (last & ~low_bits) - 1);
      add_byte_sequence(from, to, n_bytes, last & ~low_bits, last);
      return;
    }
  }
  State at = from;
  for (std::uint32_t i = 0; i < n_bytes; ++i) {
    const State next = i + 1 == n_bytes ? to : add_state();
    states_[at].bytes.push_back({utf8_byte(first, n_bytes, i), utf8_byte(last, n_bytes, i), next});
    at = next;
  }
}

void ByteNfa::close(std::vector<State>& states, bool at_start, bool at_end, Walk& walk) const {
  ++walk.number;
  for (const State state : states) walk.seen_in[state] = walk.number;
  for (std::size_t i = 0; i < states.size(); ++i) {  // grows
    walk.work += states_[states[i]].jumps.size() + 1;
    for (const Jump& jump : states_[states[i]].jumps) {
      if ((jump.when == When::kAtStart && !at_start) || (jump.when == When::kAtEnd && !at_end) ||
          walk.seen_in[jump.to] == walk.number) {
        continue;
      }
      walk.seen_in[jump.to] = walk.number;
      states.push_back(jump.to);
    }
  }
  std::ranges::sort(states);
}

Result<SharedDfa> ByteNfa::determinised(State start, State end) const {
  std::array<bool, 257> begins{};
  for (const Node& node : states_) {
    for (const Bytes& bytes : node.bytes) {
      begins[bytes.first] = begins[bytes.last + 1u] = true;
    }
  }
  std::array<bool, 256> borders{};
  std::copy_n(begins.begin(), borders.size(), borders.begin());

  DfaBuilder::Key first = {start};
  Walk walk{std::vector<std::uint32_t>(states_.size())};
  close(first, /*at_start=*/true, /*at_end=*/false, walk);
  first.push_back(kAtStartMark);
  const auto next = [&](const DfaBuilder::Key& key,
                        std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
    if (walk.work > kMaxWork) return std::nullopt;
    DfaBuilder::Key to;
    for (const State state : key) {
      if (state == kAtStartMark) continue;
      walk.work += states_[state].bytes.size() + 1;
      for (const Bytes& bytes : states_[state].bytes) {
        if (byte >= bytes.first && byte <= bytes.last) to.push_back(bytes.to);
      }
    }
    if (to.empty()) return std::nullopt;
    std::ranges::sort(to);
    to.erase(std::unique(to.begin(), to.end()), to.end());
    close(to, /*at_start=*/false, /*at_end=*/false, walk);
    return to;
  };
  const auto accepts = [&](const DfaBuilder::Key& key) {
    std::vector<State> states = key;
    const bool at_start = states.back() == kAtStartMark;
    if (at_start) states.pop_back();
    close(states, at_start, /*at_end=*/true, walk);
    return std::ranges::binary_search(states, end);
  };
  auto dfa = DfaBuilder(classes_from_borders(borders)).build(first, next, accepts);
  if (walk.work <= kMaxWork) return dfa;
  return Status(StatusCode::kUnsupported, "takes too much work to make an automaton of",
                "simplify it or lower its repetition bounds");
}

}  // namespace cairn::engine
