#include "engine/token_mask.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {
namespace {

// A state that so many bytes lead on from is inside of a text: its part of the mask is worth
// keeping.
constexpr int kManyBytes = 16;
// Masks of scalars that are kept; about 16 KiB each for a vocabulary of 2^17 tokens.
constexpr std::size_t kMaxPlaces = 512;

}  // namespace

void TokenMasker::add_tokens(const TokenTrie::Node& node, TokenMask& mask) const {
  for (const TokenId id : trie_->tokens(node)) {
    mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
  }
}

TokenMask TokenMasker::mask(GrammarRun& run, const Readings& readings) {
  TokenMask mask((static_cast<std::size_t>(trie_->vocab_size()) + 63) / 64);
  const GrammarRun::Mark begin = run.mark();
  Readings others;
  for (const Reading& reading : readings.open) {
    const ScalarNode* scalar = run.scalar(reading);
    if (scalar != nullptr && scalar->dfa->n_next(reading.top.state) > kManyBytes) {
      add_scalar(run, reading, *scalar, mask);
    } else if (const SharedDfa* name = run.free_name(reading)) {
      add_free_name(run, reading, *name, mask);
    } else {
      others.open.push_back(reading);
    }
    run.forget_since(begin);
  }
  if (!others.open.empty()) {
    if (levels_.empty()) levels_.resize(1);
    levels_[0] = std::move(others);
    walk(run, 0, static_cast<std::uint32_t>(trie_->nodes().size()), 0, mask);
    run.forget_since(begin);
  }
  if (readings.ended && trie_->eos() >= 0 && trie_->eos() < trie_->vocab_size()) {
    const auto eos = static_cast<std::size_t>(trie_->eos());
    mask[eos / 64] |= std::uint64_t{1} << (eos % 64);
  }
  return mask;
}

void TokenMasker::walk(GrammarRun& run, std::uint32_t begin, std::uint32_t end, std::uint32_t depth,
                       TokenMask& mask) {
  const auto nodes = trie_->nodes();
  if (levels_.size() < trie_->max_bytes() + 2) levels_.resize(trie_->max_bytes() + 2);
  marks_.resize(levels_.size());
  marks_[0] = run.mark();
  for (std::uint32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    const std::size_t level = node.depth - depth - 1;
    run.forget_since(marks_[level]);
    Readings& after = levels_[level + 1];
    run.step(levels_[level], node.byte, after);
    if (after.none()) {
      i = node.end;
      continue;
    }
    add_tokens(node, mask);
    marks_[level + 1] = run.mark();
    i = after.open.empty() ? node.end : i + 1;
  }
}

void TokenMasker::add_below(GrammarRun& run, std::uint32_t node, Readings& readings,
                            TokenMask& mask) {
  const TokenTrie::Node& at = trie_->nodes()[node];
  if (readings.none()) return;
  add_tokens(at, mask);
  if (readings.open.empty() || at.end == node + 1) return;
  if (levels_.empty()) levels_.resize(1);
  levels_[0] = readings;
  walk(run, node + 1, at.end, at.depth, mask);
}

// Visits the nodes whose byte may be read from a state inside the scalar or at its end:
// visit(index, state before the byte, characters before it). The answer says whether to read the
// byte and go on below.
template <class Visit>
void TokenMasker::visit_inside(const ScalarPlace& place, const Visit& visit) const {
  struct At {
    std::uint32_t state, n_chars;
  };
  const auto nodes = trie_->nodes();
  std::vector<At> path(trie_->max_bytes() + 1);
  path[0] = {place.state, 0};
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const At before = path[node.depth - 1u];
    const bool is_between = place.dfa->accepts(before.state);
    const std::uint32_t state = is_between && before.n_chars == place.n_left
                                    ? ByteDfa::kDead
                                    : place.dfa->step(before.state, node.byte);
    visit(i, is_between, before.n_chars, state);
    if (state == ByteDfa::kDead) {
      i = node.end;
      continue;
    }
    path[node.depth] = {state, before.n_chars + (is_between ? 1 : 0)};
    ++i;
  }
}

TokenMasker::Inside& TokenMasker::inside(const ScalarPlace& place, const SharedDfa& dfa) {
  const auto known = inside_.find(place);
  if (known != inside_.end()) return known->second;
  if (inside_.size() >= kMaxPlaces) inside_.clear();
  Inside& inside = inside_[place];
  inside.dfa = dfa;
  inside.tokens.resize((static_cast<std::size_t>(trie_->vocab_size()) + 63) / 64);
  visit_inside(place, [&](std::uint32_t i, bool, std::uint32_t, std::uint32_t state) {
    if (state != ByteDfa::kDead) add_tokens(trie_->nodes()[i], inside.tokens);
  });
  return inside;
}

const std::vector<TokenMasker::Exit>& TokenMasker::exits(const ScalarPlace& place,
                                                         const SharedDfa& dfa, std::uint8_t byte) {
  const auto [at, is_new] = inside(place, dfa).exits.try_emplace(byte);
  if (is_new) {
    std::vector<Exit>& exits = at->second;
    visit_inside(place,
                 [&](std::uint32_t i, bool is_between, std::uint32_t n_chars, std::uint32_t) {
                   if (is_between && trie_->nodes()[i].byte == byte) exits.push_back({i, n_chars});
                 });
  }
  return at->second;
}

void TokenMasker::add_scalar(GrammarRun& run, const Reading& reading, const ScalarNode& scalar,
                             TokenMask& mask) {
  const std::uint32_t n_left =
      scalar.max_chars == kUnlimited
          ? kUnlimited
          : std::min(scalar.max_chars - reading.top.count, trie_->max_bytes());
  const ScalarPlace place{scalar.dfa.get(), reading.top.state, n_left};
  const TokenMask& tokens = inside(place, scalar.dfa).tokens;
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] |= tokens[i];

  Readings ended;
  run.end_top(reading, ended);
  const auto may_end = [&](const Exit& exit) {
    return reading.top.count + exit.n_chars >= scalar.min_chars;
  };
  if (scalar.is_quoted) {
    for (const Exit& exit : exits(place, scalar.dfa, '"')) {
      if (may_end(exit)) add_below(run, exit.node, ended, mask);
    }
    return;
  }
  const GrammarRun::Mark begin = run.mark();
  for (int byte = 0; byte < 256; ++byte) {
    Readings after;
    run.step(ended, static_cast<std::uint8_t>(byte), after);
    if (!after.none()) {
      for (const Exit& exit : exits(place, scalar.dfa, static_cast<std::uint8_t>(byte))) {
        if (may_end(exit)) add_below(run, exit.node, after, mask);
      }
    }
    run.forget_since(begin);
  }
}

// Where a name ends it must not have been seen, so it is read from the beginning of the token.
void TokenMasker::add_free_name(GrammarRun& run, const Reading& reading, const SharedDfa& dfa,
                                TokenMask& mask) {
  const ScalarPlace place{dfa.get(), reading.top.count, kUnlimited};
  const TokenMask& tokens = inside(place, dfa).tokens;
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] |= tokens[i];
  const GrammarRun::Mark begin = run.mark();
  Readings now, after;
  for (const Exit& exit : exits(place, dfa, '"')) {
    now.clear();
    now.open.push_back(reading);
    for (const char c : trie_->path(trie_->nodes()[exit.node])) {
      run.step(now, static_cast<std::uint8_t>(c), after);
      std::swap(now, after);
    }
    add_below(run, exit.node, now, mask);
    run.forget_since(begin);
  }
}

}  // namespace cairn::engine
