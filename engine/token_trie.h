// The tokens of a vocabulary as a tree of their bytes: what a mask is computed over.
#ifndef CAIRN_ENGINE_TOKEN_TRIE_H_
#define CAIRN_ENGINE_TOKEN_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "engine/output_markup.h"
#include "engine/tokenizer.h"

namespace cairn::engine {

// Immutable. Markers that are tokens (thinking, DSML) are one byte that UTF-8 never has, as in
// output_markup.h; other added tokens are their spelling.
class TokenTrie {
 public:
  // A node stands for the bytes on the path to it. Nodes are in depth-first order: the children of
  // a node follow it, up to `end`.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t first_token = 0;  // of those whose bytes end here, in tokens()
    std::uint16_t n_tokens = 0;
    std::uint16_t depth = 0;  // bytes on the path, this one's included
    std::uint8_t byte = 0;
  };

  // `never`: ids that are not to be chosen; nor are hidden markers, `eos` (it ends a message and
  // has no bytes), tokens without bytes, and tokens with bytes that no UTF-8 text has.
  // `vocab_size`: ids up to it exist, be they known to the tokenizer or not.
  TokenTrie(const Tokenizer& tokenizer, std::span<const TokenId> never, TokenId eos,
            int vocab_size);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens(const Node& node) const {
    return std::span(tokens_).subspan(node.first_token, node.n_tokens);
  }
  // Empty for tokens that are never chosen.
  std::string_view bytes(TokenId token) const;
  // The bytes on the path to a node.
  std::string_view path(const Node& node) const;

  TokenId eos() const { return eos_; }
  int vocab_size() const { return static_cast<int>(bytes_.size()); }
  std::uint32_t max_bytes() const { return max_bytes_; }  // of one token
  MarkupSpelling spelling() const { return spelling_; }

 private:
  std::vector<std::string> bytes_;  // by token
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // ascending bytes
  TokenId eos_;
  std::uint32_t max_bytes_ = 0;
  MarkupSpelling spelling_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_TOKEN_TRIE_H_
