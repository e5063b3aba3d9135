// Cuts text into the pieces that byte-pair encoding never merges across (spec/prompt-format.md
// section 1.1, step 2). Immutable; const methods are safe from any thread.
#ifndef CAIRN_ENGINE_PRETOKENIZER_H_
#define CAIRN_ENGINE_PRETOKENIZER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

class Pretokenizer {
 public:
  using Visit = std::function<void(std::string_view piece)>;

  // One pass per pattern, in order: every match becomes a piece, what lies between matches stays
  // one. Patterns are as tokenizer.json has them. kUnsupported names the pattern (by index) and
  // what it uses.
  static Result<Pretokenizer> make(const std::vector<std::string>& patterns);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Calls `visit` with each piece in order; together they are `text`. A byte that is not part of
  // well-formed UTF-8 is a piece of its own and ends the stretch that patterns see.
  void split(std::string_view text, const Visit& visit) const;

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_PRETOKENIZER_H_
