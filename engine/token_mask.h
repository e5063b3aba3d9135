// Which tokens may come next: one bit a token, computed by walking the tree of all tokens along the
// readings of a grammar.
//
// Most tokens lie wholly inside a string or a name; that part of a mask depends on the scalar's
// automaton alone and is kept, and with it the places in the tree where a string can end. What is
// left to do for a place in a grammar is to go on from there.
#ifndef CAIRN_ENGINE_TOKEN_MASK_H_
#define CAIRN_ENGINE_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/grammar_run.h"
#include "engine/token_trie.h"

namespace cairn::engine {

// Bit `id % 64` of word `id / 64`.
using TokenMask = std::vector<std::uint64_t>;

inline bool allows(const TokenMask& mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

// Of one vocabulary. One thread at a time: it keeps what it has computed.
class TokenMasker {
 public:
  explicit TokenMasker(std::shared_ptr<const TokenTrie> trie) : trie_(std::move(trie)) {}

  const TokenTrie& trie() const { return *trie_; }
  // The tokens of which all bytes lead on, and end-of-sentence where the text may end. `run` holds
  // the readings and is left as it was.
  TokenMask mask(GrammarRun& run, const Readings& readings);

 private:
  // What a token can do inside a scalar that is in some state.
  struct ScalarPlace {
    const ByteDfa* dfa = nullptr;
    std::uint32_t state = 0;
    std::uint32_t n_left = 0;  // characters until its limit, as far as a token reaches
    auto operator<=>(const ScalarPlace&) const = default;
  };
  // A node of the tree before whose byte the scalar may end.
  struct Exit {
    std::uint32_t node = 0;
    std::uint32_t n_chars = 0;  // characters of the scalar before it
  };
  struct Inside {
    SharedDfa dfa;  // so that the key's address stays its
    TokenMask tokens;
    std::map<std::uint8_t, std::vector<Exit>> exits;  // by the node's byte, as far as asked for
  };

  Inside& inside(const ScalarPlace& place, const SharedDfa& dfa);
  const std::vector<Exit>& exits(const ScalarPlace& place, const SharedDfa& dfa, std::uint8_t byte);
  template <class Visit>
  void visit_inside(const ScalarPlace& place, const Visit& visit) const;

  void add_scalar(GrammarRun& run, const Reading& reading, const ScalarNode& scalar,
                  TokenMask& mask);
  void add_free_name(GrammarRun& run, const Reading& reading, const SharedDfa& dfa,
                     TokenMask& mask);
  // The readings have read the bytes up to the node: adds its tokens and those below.
  void add_below(GrammarRun& run, std::uint32_t node, Readings& readings, TokenMask& mask);
  // Adds the tokens at nodes [begin, end), whose parents' bytes `levels_[0]` has read.
  void walk(GrammarRun& run, std::uint32_t begin, std::uint32_t end, std::uint32_t depth,
            TokenMask& mask);
  void add_tokens(const TokenTrie::Node& node, TokenMask& mask) const;

  std::shared_ptr<const TokenTrie> trie_;
  std::map<ScalarPlace, Inside> inside_;
  std::vector<Readings> levels_;  // of the walk, by depth
  std::vector<GrammarRun::Mark> marks_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_TOKEN_MASK_H_
