#include "engine/token_trie.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/prompt_markers.h"

namespace cairn::engine {
namespace {

constexpr std::array<std::string_view, 6> kHidden = {kBeginOfSentence, kPadMarker,
                                                     kSystemMarker,    kUserMarker,
                                                     kAssistantMarker, kLatestReminderMarker};

bool is_in_no_utf8(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  return byte == 0xC0 || byte == 0xC1 || byte > 0xF4;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::span<const TokenId> never, TokenId eos,
                     int vocab_size)
    : bytes_(static_cast<std::size_t>(vocab_size)), eos_(eos) {
  for (TokenId id = 0; id < vocab_size; ++id) {
    std::string& bytes = bytes_[static_cast<std::size_t>(id)];
    bytes = tokenizer.bytes(id);
    if (std::ranges::any_of(bytes, is_in_no_utf8)) bytes.clear();
  }
  const auto set = [&](TokenId id, std::string bytes) {
    if (id >= 0 && id < vocab_size) bytes_[static_cast<std::size_t>(id)] = std::move(bytes);
  };
  const auto set_marker = [&](std::string_view marker, char code) {
    const auto id = tokenizer.added_token(marker);
    if (id) set(*id, std::string(1, code));
    return id.has_value();
  };
  set_marker(kThinkBegin, kThinkBeginCode);
  spelling_.think_as_text = !set_marker(kThinkEnd, kThinkEndCode);
  spelling_.dsml_as_text = !set_marker(kDsml, kDsmlCode);
  for (const std::string_view marker : kHidden) set(tokenizer.added_token(marker).value_or(-1), "");
  for (const TokenId id : never) set(id, "");
  set(eos, "");

  tokens_.resize(bytes_.size());
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_, [&](TokenId id) { return bytes(id).empty(); });
  std::ranges::sort(tokens_, [&](TokenId a, TokenId b) {
    return bytes(a) != bytes(b) ? bytes(a) < bytes(b) : a < b;
  });

  std::vector<std::size_t> open;  // nodes on the path of the token before
  const auto close = [&](std::size_t n_kept) {
    for (; open.size() > n_kept; open.pop_back()) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
    }
  };
  std::string_view before;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = bytes(tokens_[i]);
    max_bytes_ = std::max(max_bytes_, static_cast<std::uint32_t>(now.size()));
    const auto differs = std::ranges::mismatch(before, now);
    close(static_cast<std::size_t>(differs.in2 - now.begin()));
    while (open.size() < now.size()) {
      Node node;
      node.byte = static_cast<std::uint8_t>(now[open.size()]);
      node.first_token = static_cast<std::uint32_t>(i);
      open.push_back(nodes_.size());
      node.depth = static_cast<std::uint16_t>(open.size());
      nodes_.push_back(node);
    }
    ++nodes_[open.back()].n_tokens;
    before = now;
  }
  close(0);
}

std::string_view TokenTrie::bytes(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return {};
  return bytes_[static_cast<std::size_t>(token)];
}

std::string_view TokenTrie::path(const Node& node) const {
  return bytes(tokens_[node.first_token]).substr(0, node.depth);
}

}  // namespace cairn::engine
