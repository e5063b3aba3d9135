// Byte-pair encoding of one piece of text (spec/prompt-format.md section 1.1, steps 3 and 4).
// Immutable after make; const methods are safe from any thread, a Scratch belongs to one.
#ifndef CAIRN_ENGINE_BYTE_PAIR_ENCODER_H_
#define CAIRN_ENGINE_BYTE_PAIR_ENCODER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "engine/tokenizer_file.h"

namespace cairn::engine {

class BytePairEncoder {
 public:
  // Working memory of encode, kept by the caller so that pieces do not allocate.
  struct Scratch {
    struct Symbol {
      TokenId id;                    // -1 = merged into a symbol to the left
      std::uint32_t previous, next;  // neighbours; kNone at the ends
      std::uint32_t rank;            // of the merge with `next`; kNone = no such merge
    };
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> queue;  // heap of rank << 32 | index of the left symbol
  };

  // Base vocabulary and merges of the file. kCorrupt: a merge of unknown spellings or listed twice.
  // kUnsupported: a byte without a symbol (text would be lost), or an added token that text can
  // become by merging.
  static Result<BytePairEncoder> make(const TokenizerFile& file);
  BytePairEncoder(BytePairEncoder&&) noexcept;
  BytePairEncoder& operator=(BytePairEncoder&&) noexcept;
  ~BytePairEncoder();

  // Appends the tokens of `piece` (any bytes, under 4 GiB) to `out`. Time n log n.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Impl;
  explicit BytePairEncoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_BYTE_PAIR_ENCODER_H_
