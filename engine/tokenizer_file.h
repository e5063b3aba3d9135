// What a tokenizer.json says, checked and reduced to what encoding needs (spec/prompt-format.md
// section 1).
#ifndef CAIRN_ENGINE_TOKENIZER_FILE_H_
#define CAIRN_ENGINE_TOKENIZER_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn::engine {

// A vocabulary an order of magnitude above any in use; ids index arrays, so they must stay small.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;

struct TokenizerFile {
  struct Entry {
    std::string spelling;
    TokenId id;
  };
  struct Merge {
    std::string left, right;  // spellings
  };
  std::vector<Entry> vocabulary;  // ids and spellings unique; byte alphabet except special entries
  std::vector<Entry> added;       // ids and spellings unique; an id shared with the vocabulary has
                                  // the same spelling there
  std::vector<Merge> merges;      // rank = index
  std::vector<std::string> split_patterns;  // one per pre-tokenizer pass
  bool ignore_merges = false;  // a piece that is an entry is that token, whatever merges say
};

// kCorrupt: not JSON, a missing or ill-typed key, ids that clash. kUnsupported: a kind of tokenizer
// that would encode differently from what is here. Messages name the key, not the file.
Result<TokenizerFile> parse_tokenizer_file(std::string_view json);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_TOKENIZER_FILE_H_
