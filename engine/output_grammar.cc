#include "engine/output_grammar.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {

NameTrie::NameTrie(std::span<const std::string> names) {
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    std::uint32_t at = kRoot;
    const auto count = [&] {
      if (nodes_[at].below.end == 0) nodes_[at].below.first = i;
      nodes_[at].below.end = i + 1;
    };
    count();
    for (const char c : names[i]) {
      const auto byte = static_cast<std::uint8_t>(c);
      std::uint32_t next = child(at, byte);
      if (next == kNone) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_[at].children.emplace_back(byte, next);
        nodes_.emplace_back();
      }
      at = next;
      count();
    }
    nodes_[at].name = i;
  }
}

std::uint32_t NameTrie::child(std::uint32_t node, std::uint8_t byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return kNone;
}

NodeId OutputGrammar::add(GrammarNode node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

void OutputGrammar::set(NodeId id, GrammarNode node) { nodes_[id] = std::move(node); }

// A node's depth is known once those of its parts are. Depths only fall, so that stopping early is
// safe: what a depth was made of still fits.
void OutputGrammar::complete() {
  constexpr int kMaxRounds = 1000;
  depths_.assign(nodes_.size(), kNeverEnds);
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::uint32_t depth = depth_of(nodes_[i]);
      if (depth <= kMaxDepth && depth < depths_[i]) {
        depths_[i] = depth;
        changed = true;
      }
    }
  }
}

std::uint32_t OutputGrammar::depth_of(const GrammarNode& node) const {
  struct Visitor {
    const OutputGrammar& grammar;

    static std::uint32_t inside(std::uint32_t depth) {
      return depth == kNeverEnds ? kNeverEnds : depth + 1;
    }
    std::uint32_t operator()(const LiteralNode&) const { return 0; }
    std::uint32_t operator()(const ScalarNode& scalar) const {
      const bool has_texts =
          scalar.dfa->start() != ByteDfa::kDead && scalar.min_chars <= scalar.max_chars;
      return has_texts ? 0 : kNeverEnds;
    }
    std::uint32_t operator()(const ChoiceNode& choice) const {
      std::uint32_t least = kNeverEnds;
      for (const NodeId id : choice.choices) least = std::min(least, grammar.depth(id));
      return least;
    }
    std::uint32_t operator()(const SequenceNode& sequence) const {
      std::uint32_t most = 0;
      for (const NodeId id : sequence.parts) most = std::max(most, grammar.depth(id));
      return most;
    }
    std::uint32_t operator()(const ArrayNode& array) const {
      if (array.min > array.max) return kNeverEnds;
      std::uint32_t most = 0;
      for (std::uint32_t i = 0; i < std::min<std::size_t>(array.min, array.prefix.size()); ++i) {
        most = std::max(most, grammar.depth(array.prefix[i]));
      }
      if (array.min > array.prefix.size()) most = std::max(most, grammar.depth(array.rest));
      return inside(most);
    }
    std::uint32_t operator()(const ObjectNode& object) const {
      const auto depth_of = [&](const ObjectNode::Value& value) {
        return std::min(grammar.depth(value.json), grammar.depth(value.text));
      };
      std::uint32_t most = 0;
      std::vector<std::uint32_t> others;
      for (std::size_t i = 0; i < object.values.size(); ++i) {
        const std::uint32_t depth = depth_of(object.values[i]);
        object.required[i] ? void(most = std::max(most, depth)) : others.push_back(depth);
      }
      const std::size_t n_required = object.required.count();
      if (object.min > object.max || n_required > object.max) return kNeverEnds;
      if (object.min <= n_required) return inside(most);
      // So many more, the least deep: of the others each once, of unlisted names as many as need
      // be.
      const std::size_t n_more = object.min - n_required;
      std::uint32_t unlisted = kNeverEnds;
      for (const auto& each : object.unlisted) unlisted = std::min(unlisted, depth_of(each.value));
      std::ranges::sort(others);
      const std::uint32_t last = n_more <= others.size() ? others[n_more - 1] : kNeverEnds;
      return inside(std::max(most, std::min(last, unlisted)));
    }
  };
  return std::visit(Visitor{*this}, node);
}

}  // namespace cairn::engine
