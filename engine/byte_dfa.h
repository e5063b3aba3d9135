// Deterministic automata over bytes: what every scalar of a constrained output is checked with
// (patterns, formats, numbers, enumerations). Immutable and shared.
#ifndef CAIRN_ENGINE_BYTE_DFA_H_
#define CAIRN_ENGINE_BYTE_DFA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

// Every state but kDead leads to an accepting one, so a text that is followed this way can always
// be finished.
class ByteDfa {
 public:
  static constexpr std::uint32_t kDead = 0;

  std::uint32_t start() const { return start_; }  // kDead: accepts nothing
  std::uint32_t step(std::uint32_t state, std::uint8_t byte) const {
    return next_[state * n_classes_ + class_of_[byte]];
  }
  bool accepts(std::uint32_t state) const { return accepting_[state]; }
  bool accepts_text(std::string_view text) const;
  // How many bytes may come next.
  int n_next(std::uint32_t state) const { return n_next_[state]; }
  std::size_t n_states() const { return accepting_.size(); }
  // Bytes that every state treats alike have one class.
  std::span<const std::uint8_t, 256> classes() const { return class_of_; }

 private:
  friend class DfaBuilder;
  std::array<std::uint8_t, 256> class_of_{};
  std::size_t n_classes_ = 1;
  std::uint32_t start_ = kDead;
  std::vector<std::uint32_t> next_;  // [n_states, n_classes]
  std::vector<bool> accepting_;
  std::vector<std::int16_t> n_next_;
};

using SharedDfa = std::shared_ptr<const ByteDfa>;

// A larger automaton is refused with kUnsupported.
inline constexpr std::size_t kMaxDfaStates = 20'000;

// Makes an automaton of a rule that is given step by step. `Key` describes a state.
class DfaBuilder {
 public:
  // `class_of`: bytes of one class are treated alike by the rule.
  explicit DfaBuilder(const std::array<std::uint8_t, 256>& class_of);

  using Key = std::vector<std::uint32_t>;
  using Next = std::function<std::optional<Key>(const Key&, std::uint8_t byte)>;
  using Accepts = std::function<bool(const Key&)>;
  Result<SharedDfa> build(const Key& start, const Next& next, const Accepts& accepts) const;

 private:
  std::array<std::uint8_t, 256> class_of_;
  std::vector<std::uint8_t> representatives_;  // a byte of each class
};

// The coarsest classes that are as fine as each given border: bytes at which a class begins.
std::array<std::uint8_t, 256> classes_from_borders(const std::array<bool, 256>& begins);

Result<SharedDfa> intersection(const SharedDfa& a, const SharedDfa& b);
// The texts of `a` that are not texts of `b`.
Result<SharedDfa> difference(const SharedDfa& a, const SharedDfa& b);
// By state: whether infinitely many texts lead on from there.
std::vector<bool> endless_states(const ByteDfa& dfa);
// All texts, if there are at most `n_max`.
std::optional<std::vector<std::string>> texts_of(const ByteDfa& dfa, std::size_t n_max);
// Exactly these texts.
Result<SharedDfa> any_of_texts(std::span<const std::string> texts);
// All byte strings in which none of `texts` occurs. No text may be empty.
Result<SharedDfa> without_texts(std::span<const std::string> texts);
// The texts of `dfa`, which are whole UTF-8 characters, with a number of characters in a range.
Result<SharedDfa> with_length(const SharedDfa& dfa, std::uint32_t min,
                              std::optional<std::uint32_t> max);
// The texts of `dfa` (UTF-8) as the inside of a JSON string, in the one spelling that escapes what
// must be escaped: the short forms, \u00xx in lower case for other control characters.
Result<SharedDfa> as_json_content(const SharedDfa& dfa);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_BYTE_DFA_H_
