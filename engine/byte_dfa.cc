// All constructions are one: states are described by small keys and discovered from the start by
// breadth; then what leads to no accepting state is cut off. Automata are not minimised: the chains
// that length bounds make would cost quadratic time, and size is bounded anyway.
#include "engine/byte_dfa.h"

#include <algorithm>
#include <deque>
#include <map>

namespace cairn::engine {
namespace {

Status too_large() {
  return {StatusCode::kUnsupported,
          "needs an automaton of more than " + std::to_string(kMaxDfaStates) + " states",
          "simplify the pattern or lower its repetition and length bounds"};
}

// Classes as fine as both.
std::array<std::uint8_t, 256> common_classes(std::span<const std::uint8_t, 256> a,
                                             std::span<const std::uint8_t, 256> b) {
  std::map<std::pair<int, int>, std::uint8_t> numbers;
  std::array<std::uint8_t, 256> classes{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto [at, is_new] =
        numbers.emplace(std::pair<int, int>(a[byte], b[byte]), std::uint8_t(numbers.size()));
    classes[byte] = at->second;
  }
  return classes;
}

std::array<std::uint8_t, 256> classes_of_texts(std::span<const std::string> texts) {
  std::array<bool, 256> occurs{};
  for (const std::string& text : texts) {
    for (const char c : text) occurs[static_cast<std::uint8_t>(c)] = true;
  }
  std::array<bool, 256> begins{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    begins[byte] = occurs[byte] || (byte > 0 && occurs[byte - 1]);
  }
  return classes_from_borders(begins);
}

// The trie of some texts: node 0 is the root.
struct TextTrie {
  struct Node {
    std::map<std::uint8_t, std::uint32_t> children;
    bool is_end = false;
    std::uint32_t fallback = 0;  // the longest proper suffix that is a node
  };
  std::vector<Node> nodes = {{}};

  explicit TextTrie(std::span<const std::string> texts) {
    for (const std::string& text : texts) {
      std::uint32_t at = 0;
      for (const char c : text) {
        const auto byte = static_cast<std::uint8_t>(c);
        const auto found = nodes[at].children.find(byte);
        if (found != nodes[at].children.end()) {
          at = found->second;
          continue;
        }
        const auto added = static_cast<std::uint32_t>(nodes.size());
        nodes[at].children.emplace(byte, added);
        nodes.emplace_back();
        at = added;
      }
      nodes[at].is_end = true;
    }
  }

  std::optional<std::uint32_t> child(std::uint32_t node, std::uint8_t byte) const {
    const auto found = nodes[node].children.find(byte);
    if (found == nodes[node].children.end()) return std::nullopt;
    return found->second;
  }

  // Aho and Corasick's links, by breadth. An end reached through a link is an end too.
  void add_fallbacks() {
    std::deque<std::uint32_t> queue = {0};
    while (!queue.empty()) {
      const std::uint32_t node = queue.front();
      queue.pop_front();
      for (const auto& [byte, child] : nodes[node].children) {
        if (node != 0) nodes[child].fallback = follow(nodes[node].fallback, byte);
        if (nodes[nodes[child].fallback].is_end) nodes[child].is_end = true;
        queue.push_back(child);
      }
    }
  }

  std::uint32_t follow(std::uint32_t node, std::uint8_t byte) const {
    for (;;) {
      if (const auto next = child(node, byte)) return *next;
      if (node == 0) return 0;
      node = nodes[node].fallback;
    }
  }
};

// Escapes with a letter, by the byte they stand for.
constexpr std::array<std::pair<std::uint8_t, std::uint8_t>, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'b', '\b'}, {'f', '\f'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}}};

std::optional<std::uint8_t> hex_value(std::uint8_t byte) {
  if (byte >= '0' && byte <= '9') return std::uint8_t(byte - '0');
  if (byte >= 'a' && byte <= 'f') return std::uint8_t(byte - 'a' + 10);
  return std::nullopt;
}

bool has_short_escape(std::uint8_t byte) {
  return std::ranges::any_of(kShortEscapes, [&](const auto& e) { return e.second == byte; });
}

// How far an escape is read: in the keys of as_json_content beside the state of the text.
enum Escape : std::uint32_t { kNoEscape, kBackslash, kU, kU0, kU00, kU000, kU001 };

std::optional<std::uint8_t> escaped_byte(std::uint32_t escape, std::uint8_t byte) {
  if (escape == kBackslash) {
    const auto found =
        std::ranges::find(kShortEscapes, byte, [](const auto& e) { return e.first; });
    if (found == kShortEscapes.end()) return std::nullopt;
    return found->second;
  }
  const auto digit = hex_value(byte);
  if (!digit) return std::nullopt;
  const auto code = std::uint8_t((escape == kU001 ? 16 : 0) + *digit);
  return has_short_escape(code) ? std::nullopt : std::optional(code);
}

// Where an escape goes on without standing for a byte yet.
std::optional<std::uint32_t> longer_escape(std::uint32_t escape, std::uint8_t byte) {
  if (escape == kBackslash && byte == 'u') return kU;
  if (escape == kU && byte == '0') return kU0;
  if (escape == kU0 && byte == '0') return kU00;
  if (escape == kU00 && byte == '0') return kU000;
  if (escape == kU00 && byte == '1') return kU001;
  return std::nullopt;
}

}  // namespace

bool ByteDfa::accepts_text(std::string_view text) const {
  std::uint32_t state = start_;
  for (const char c : text) state = step(state, static_cast<std::uint8_t>(c));
  return accepts(state);
}

std::array<std::uint8_t, 256> classes_from_borders(const std::array<bool, 256>& begins) {
  std::array<std::uint8_t, 256> classes{};
  for (std::size_t byte = 1; byte < 256; ++byte) {
    classes[byte] = std::uint8_t(classes[byte - 1] + (begins[byte] ? 1 : 0));
  }
  return classes;
}

DfaBuilder::DfaBuilder(const std::array<std::uint8_t, 256>& class_of) : class_of_(class_of) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (class_of_[byte] == representatives_.size()) {
      representatives_.push_back(static_cast<std::uint8_t>(byte));
    }
  }
}

Result<SharedDfa> DfaBuilder::build(const Key& start, const Next& next,
                                    const Accepts& accepts) const {
  // Discover; transitions are numbers of discovered states plus one, 0 = none.
  std::map<Key, std::uint32_t> numbers = {{start, 0}};
  std::vector<const Key*> keys = {&numbers.begin()->first};
  const std::size_t n_classes = representatives_.size();
  std::vector<std::uint32_t> transitions;
  std::vector<std::vector<std::uint32_t>> sources = {{}};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (const std::uint8_t byte : representatives_) {
      std::optional<Key> to = next(*keys[i], byte);
      if (!to) {
        transitions.push_back(0);
        continue;
      }
      const auto [at, is_new] =
          numbers.emplace(std::move(*to), static_cast<std::uint32_t>(keys.size()));
      if (is_new) {
        if (keys.size() >= kMaxDfaStates) return too_large();
        keys.push_back(&at->first);
        sources.emplace_back();
      }
      transitions.push_back(at->second + 1);
      sources[at->second].push_back(static_cast<std::uint32_t>(i));
    }
  }

  // Keep what leads to an accepting state.
  std::vector<bool> accepting(keys.size()), is_live(keys.size());
  std::vector<std::uint32_t> queue;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    accepting[i] = accepts(*keys[i]);
    if (accepting[i]) queue.push_back(static_cast<std::uint32_t>(i));
    is_live[i] = accepting[i];
  }
  while (!queue.empty()) {
    const std::uint32_t state = queue.back();
    queue.pop_back();
    for (const std::uint32_t source : sources[state]) {
      if (is_live[source]) continue;
      is_live[source] = true;
      queue.push_back(source);
    }
  }

  auto dfa = std::make_shared<ByteDfa>();
  std::vector<std::uint32_t> renumbered(keys.size(), ByteDfa::kDead);
  std::uint32_t n_states = 1;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (is_live[i]) renumbered[i] = n_states++;
  }
  dfa->class_of_ = class_of_;
  dfa->n_classes_ = n_classes;
  dfa->start_ = renumbered[0];
  dfa->next_.assign(n_states * n_classes, ByteDfa::kDead);
  dfa->accepting_.assign(n_states, false);
  dfa->n_next_.assign(n_states, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_live[i]) continue;
    const std::uint32_t state = renumbered[i];
    dfa->accepting_[state] = accepting[i];
    for (std::size_t c = 0; c < n_classes; ++c) {
      const std::uint32_t to = transitions[i * n_classes + c];
      dfa->next_[state * n_classes + c] = to == 0 ? ByteDfa::kDead : renumbered[to - 1];
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (dfa->step(state, static_cast<std::uint8_t>(byte)) != ByteDfa::kDead) {
        ++dfa->n_next_[state];
      }
    }
  }
  return SharedDfa(std::move(dfa));
}

Result<SharedDfa> intersection(const SharedDfa& a, const SharedDfa& b) {
  const DfaBuilder builder(common_classes(a->classes(), b->classes()));
  return builder.build(
      {a->start(), b->start()},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        const std::uint32_t in_a = a->step(key[0], byte), in_b = b->step(key[1], byte);
        if (in_a == ByteDfa::kDead || in_b == ByteDfa::kDead) return std::nullopt;
        return DfaBuilder::Key{in_a, in_b};
      },
      [&](const DfaBuilder::Key& key) { return a->accepts(key[0]) && b->accepts(key[1]); });
}

Result<SharedDfa> difference(const SharedDfa& a, const SharedDfa& b) {
  const DfaBuilder builder(common_classes(a->classes(), b->classes()));
  return builder.build(
      {a->start(), b->start()},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        const std::uint32_t in_a = a->step(key[0], byte);
        if (in_a == ByteDfa::kDead) return std::nullopt;
        return DfaBuilder::Key{in_a, b->step(key[1], byte)};  // may be dead for good
      },
      [&](const DfaBuilder::Key& key) { return a->accepts(key[0]) && !b->accepts(key[1]); });
}

// A state is not endless once none of its successors is.
std::vector<bool> endless_states(const ByteDfa& dfa) {
  std::vector<std::vector<std::uint32_t>> sources(dfa.n_states());
  std::vector<int> n_next(dfa.n_states());
  std::vector<std::uint32_t> queue;
  for (std::uint32_t state = 0; state < dfa.n_states(); ++state) {
    n_next[state] = dfa.n_next(state);
    if (n_next[state] == 0) queue.push_back(state);
    for (int byte = 0; byte < 256; ++byte) {
      const std::uint32_t next = dfa.step(state, static_cast<std::uint8_t>(byte));
      if (next != ByteDfa::kDead) sources[next].push_back(state);
    }
  }
  std::vector<bool> endless(dfa.n_states(), true);
  while (!queue.empty()) {
    const std::uint32_t state = queue.back();
    queue.pop_back();
    endless[state] = false;
    for (const std::uint32_t source : sources[state]) {
      if (--n_next[source] == 0) queue.push_back(source);
    }
  }
  return endless;
}

std::optional<std::vector<std::string>> texts_of(const ByteDfa& dfa, std::size_t n_max) {
  if (endless_states(dfa)[dfa.start()]) return std::nullopt;
  std::vector<std::string> texts;
  std::vector<std::pair<std::uint32_t, std::string>> open = {{dfa.start(), ""}};
  while (!open.empty()) {
    auto [state, text] = std::move(open.back());
    open.pop_back();
    if (dfa.accepts(state)) texts.push_back(text);
    if (texts.size() + open.size() > n_max) return std::nullopt;  // each leads to one at least
    for (int byte = 0; byte < 256; ++byte) {
      const std::uint32_t next = dfa.step(state, static_cast<std::uint8_t>(byte));
      if (next != ByteDfa::kDead) open.emplace_back(next, text + static_cast<char>(byte));
    }
  }
  return texts;
}

Result<SharedDfa> any_of_texts(std::span<const std::string> texts) {
  const TextTrie trie(texts);
  const DfaBuilder builder(classes_of_texts(texts));
  return builder.build(
      {0},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        const auto child = trie.child(key[0], byte);
        if (!child) return std::nullopt;
        return DfaBuilder::Key{*child};
      },
      [&](const DfaBuilder::Key& key) { return trie.nodes[key[0]].is_end; });
}

Result<SharedDfa> without_texts(std::span<const std::string> texts) {
  TextTrie trie(texts);
  trie.add_fallbacks();
  const DfaBuilder builder(classes_of_texts(texts));
  return builder.build(
      {0},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        const std::uint32_t node = trie.follow(key[0], byte);
        if (trie.nodes[node].is_end) return std::nullopt;
        return DfaBuilder::Key{node};
      },
      [](const DfaBuilder::Key&) { return true; });
}

Result<SharedDfa> with_length(const SharedDfa& dfa, std::uint32_t min,
                              std::optional<std::uint32_t> max) {
  const std::uint32_t most = max.value_or(min);  // counts beyond it are alike
  std::array<bool, 256> begins{};
  begins[0x80] = begins[0xC0] = true;
  const std::array<std::uint8_t, 256> by_place = classes_from_borders(begins);
  const DfaBuilder builder(common_classes(dfa->classes(), by_place));
  return builder.build(
      {dfa->start(), 0},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        const std::uint32_t state = dfa->step(key[0], byte);
        if (state == ByteDfa::kDead) return std::nullopt;
        const bool begins_character = byte < 0x80 || byte >= 0xC0;
        if (!begins_character) return DfaBuilder::Key{state, key[1]};
        if (max && key[1] >= *max) return std::nullopt;
        return DfaBuilder::Key{state, std::min(key[1] + 1, most)};
      },
      [&](const DfaBuilder::Key& key) { return dfa->accepts(key[0]) && key[1] >= min; });
}

Result<SharedDfa> as_json_content(const SharedDfa& dfa) {
  std::array<bool, 256> begins{};
  for (const std::string_view each : {"\"", "\\", "0", "1", "u", "b", "f", "n", "r", "t"}) {
    begins[static_cast<std::uint8_t>(each[0])] = begins[static_cast<std::uint8_t>(each[0]) + 1u] =
        true;
  }
  for (std::size_t digit = 0; digit < 6; ++digit) begins['a' + digit] = begins['b' + digit] = true;
  for (std::size_t digit = 0; digit < 10; ++digit) begins['0' + digit] = begins['1' + digit] = true;
  begins[0x20] = true;
  const DfaBuilder builder(common_classes(dfa->classes(), classes_from_borders(begins)));
  return builder.build(
      {dfa->start(), kNoEscape},
      [&](const DfaBuilder::Key& key, std::uint8_t byte) -> std::optional<DfaBuilder::Key> {
        std::optional<std::uint8_t> meant;
        if (key[1] == kNoEscape) {
          if (byte == '\\') return DfaBuilder::Key{key[0], kBackslash};
          if (byte >= 0x20 && byte != '"') meant = byte;
        } else if (const auto longer = longer_escape(key[1], byte)) {
          return DfaBuilder::Key{key[0], *longer};
        } else if (key[1] == kBackslash || key[1] >= kU000) {
          meant = escaped_byte(key[1], byte);
        }
        if (!meant) return std::nullopt;
        const std::uint32_t state = dfa->step(key[0], *meant);
        if (state == ByteDfa::kDead) return std::nullopt;
        return DfaBuilder::Key{state, kNoEscape};
      },
      [&](const DfaBuilder::Key& key) { return key[1] == kNoEscape && dfa->accepts(key[0]); });
}

}  // namespace cairn::engine
