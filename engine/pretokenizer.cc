// Every pass sees one piece of the pass before as its whole subject, so look-ahead ends where the
// piece ends. The passes nest: a piece goes through the later passes before the next piece is
// found, and nothing is collected.
//
// Limits: PCRE2's match limits are set out of reach, because the released patterns need
// backtracking that is linear in the length of a run of blanks. A pattern that exhausts the
// just-in-time code's stack is matched again by the interpreter, which takes memory from the heap;
// if that fails too, the rest of the stretch stays one piece: still the same bytes, just not cut.
#include "engine/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "engine/split_pattern.h"
#include "engine/utf8.h"

namespace cairn::engine {
namespace {

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreePcre2>;
using MatchData = std::unique_ptr<pcre2_match_data, FreePcre2>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreePcre2>;

Status pattern_error(std::size_t index, std::string_view what) {
  return {StatusCode::kUnsupported,
          "split pattern " + std::to_string(index) + ": " + std::string(what)};
}

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

Result<Code> compile(std::string_view pattern, std::size_t index) {
  auto translated = translate_split_pattern(pattern);
  if (!translated.ok()) return pattern_error(index, translated.status().message());
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                          PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (code == nullptr) return pattern_error(index, pcre2_message(error));
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return pattern_error(index, "matches the empty string");
  // Where executable memory is forbidden this fails and matching interprets; slower, same result.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

struct Range {
  std::size_t begin, end;
};

// The first match at or after `from`, or none.
std::optional<Range> find(const pcre2_code* code, std::string_view subject, std::size_t from,
                          pcre2_match_context* context, pcre2_match_data* match) {
  const auto* units = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int rc = pcre2_match(code, units, subject.size(), from, PCRE2_NO_UTF_CHECK, match, context);
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
    rc = pcre2_match(code, units, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match,
                     context);
  }
  if (rc < 0) return std::nullopt;
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
  return Range{offsets[0], offsets[1]};
}

// One call of split.
struct Splitter {
  pcre2_match_context* context;
  pcre2_match_data* match;
  const Pretokenizer::Visit& visit;

  void run(std::string_view stretch, std::span<const Code> passes) {
    if (stretch.empty()) return;
    if (passes.empty()) return visit(stretch);
    const auto later = passes.subspan(1);
    std::size_t done = 0;
    while (done < stretch.size()) {
      const auto found = find(passes.front().get(), stretch, done, context, match);
      if (!found) break;
      run(stretch.substr(done, found->begin - done), later);
      run(stretch.substr(found->begin, found->end - found->begin), later);
      done = found->end;
    }
    run(stretch.substr(done), later);
  }
};

}  // namespace

struct Pretokenizer::Impl {
  std::vector<Code> passes;
  MatchContext context;  // read only while matching, shared by threads
};

Pretokenizer::Pretokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::make(const std::vector<std::string>& patterns) {
  auto impl = std::make_unique<Impl>();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(Code code, compile(patterns[i], i));
    impl->passes.push_back(std::move(code));
  }
  impl->context.reset(pcre2_match_context_create(nullptr));
  if (impl->context == nullptr) {
    return Status(StatusCode::kOutOfMemory, "pre-tokenizer: no memory for a match context");
  }
  constexpr auto kUnlimited = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(impl->context.get(), kUnlimited);
  pcre2_set_heap_limit(impl->context.get(), kUnlimited);
  return Pretokenizer(std::move(impl));
}

void Pretokenizer::split(std::string_view text, const Visit& visit) const {
  // One pair of offsets: capture groups of a pattern do not matter.
  const MatchData match(pcre2_match_data_create(1, nullptr));
  if (match == nullptr) throw std::bad_alloc();  // as the caller's vectors would
  Splitter splitter{impl_->context.get(), match.get(), visit};
  while (!text.empty()) {
    const std::size_t n_valid = valid_utf8_prefix(text);
    splitter.run(text.substr(0, n_valid), impl_->passes);
    text.remove_prefix(n_valid);
    if (text.empty()) break;
    visit(text.substr(0, 1));
    text.remove_prefix(1);
  }
}

}  // namespace cairn::engine
