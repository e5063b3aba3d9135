// Byte-level BPE of the released tokenizer.json (spec/prompt-format.md section 1).
// Immutable after load; const methods are safe from any thread.
#ifndef CAIRN_ENGINE_TOKENIZER_H_
#define CAIRN_ENGINE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn::engine {

class Tokenizer {
 public:
  // `name` is used in messages. kCorrupt: malformed; kUnsupported: another kind of tokenizer.
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);
  static Result<Tokenizer> load(const std::string& path);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Text to tokens with added-token matching off: what a user typed stays text. Invalid UTF-8 is
  // encoded byte by byte. Appends to `out`. `text` is under 4 GiB; time n log n at worst.
  void encode_text(std::string_view text, std::vector<TokenId>& out) const;
  // The reference's encoding of a whole prompt string: leftmost longest added tokens first.
  void encode_with_added_tokens(std::string_view text, std::vector<TokenId>& out) const;

  int size() const;  // ids 0 .. size-1
  std::optional<TokenId> added_token(std::string_view spelling) const;
  bool is_added(TokenId id) const;
  // Decoded bytes of a token; an added token's are its literal spelling. Empty for ids out of range
  // and holes.
  std::string_view bytes(TokenId id) const;
  // The spelling in the file (byte alphabet for base tokens).
  std::string_view spelling(TokenId id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Joins the bytes of successive tokens into whole UTF-8 characters: returns what is complete and
// holds back the rest. Invalid sequences become U+FFFD, one per maximal invalid run as in the
// Unicode standard's recommended practice.
class Utf8Assembler {
 public:
  std::string append(std::string_view bytes);
  std::string finish();  // what is left, as U+FFFD if incomplete

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_TOKENIZER_H_
