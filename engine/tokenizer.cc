// Puts the parts together: the file (tokenizer_file), cutting text into pieces (pretokenizer), and
// byte-pair encoding of a piece (byte_pair_encoder). What is left for this file is decoding, which
// is a table, and the search for added tokens, which walks a byte trie from every position whose
// byte begins one.
#include "engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <utility>

#include "engine/byte_alphabet.h"
#include "engine/byte_pair_encoder.h"
#include "engine/pretokenizer.h"
#include "engine/tokenizer_file.h"
#include "engine/utf8.h"

namespace cairn::engine {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;

// Spellings of added tokens, by byte.
class AddedTokenTrie {
 public:
  struct Match {
    TokenId id = -1;  // -1 = none
    std::size_t n_bytes = 0;
  };

  void insert(std::string_view spelling, TokenId id) {
    starts_.at(static_cast<std::uint8_t>(spelling.front())) = true;
    std::uint32_t node = 0;
    for (const char byte : spelling) {
      const auto unused = static_cast<std::uint32_t>(token_of_node_.size());
      const auto [edge, is_new] = edges_.try_emplace(edge_key(node, byte), unused);
      if (is_new) token_of_node_.push_back(-1);
      node = edge->second;
    }
    token_of_node_[node] = id;
  }

  // The longest spelling at the start of `text`.
  Match longest_prefix(std::string_view text) const {
    Match match;
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(edge_key(node, text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (token_of_node_[node] >= 0) match = {token_of_node_[node], i + 1};
    }
    return match;
  }

  bool may_start_with(char byte) const { return starts_[static_cast<std::uint8_t>(byte)]; }

 private:
  static std::uint64_t edge_key(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<std::uint8_t>(byte);
  }

  std::array<bool, 256> starts_{};
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> edges_;  // (node, byte) -> node
  std::vector<TokenId> token_of_node_{-1};                         // node 0 is the root
};

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t n_bytes = std::filesystem::file_size(path, error);
  if (error) return Status(StatusCode::kNotFound, path + ": " + error.message());
  if (n_bytes > kMaxFileBytes) return corrupt(path + ": too large for a tokenizer");
  std::string text(n_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(n_bytes))) {
    return Status(StatusCode::kIoError, path + ": cannot be read");
  }
  return text;
}

Status in_file(const Status& status, std::string_view name) {
  return {status.code(), std::string(name) + ": " + std::string(status.message()),
          std::string(status.hint())};
}

}  // namespace

struct Tokenizer::Impl {
  struct Token {
    std::string spelling;
    std::string bytes;
    bool is_added = false;
  };

  Pretokenizer pretokenizer;
  BytePairEncoder encoder;
  std::vector<Token> tokens = {};  // by id; holes are empty
  AddedTokenTrie added = {};

  void add_token(const TokenizerFile::Entry& entry, bool is_added);
  const Token* token(TokenId id) const;
};

void Tokenizer::Impl::add_token(const TokenizerFile::Entry& entry, bool is_added) {
  const auto index = static_cast<std::size_t>(entry.id);
  if (index >= tokens.size()) tokens.resize(index + 1);
  Token& token = tokens[index];
  token.spelling = entry.spelling;
  token.is_added = is_added;
  // A spelling outside the byte alphabet stands for itself, as all spellings of added tokens do.
  auto bytes = is_added ? std::nullopt : bytes_of_spelling(entry.spelling);
  token.bytes = bytes ? std::move(*bytes) : entry.spelling;
  if (is_added) added.insert(entry.spelling, entry.id);
}

const Tokenizer::Impl::Token* Tokenizer::Impl::token(TokenId id) const {
  const auto index = static_cast<std::size_t>(id);
  return id < 0 || index >= tokens.size() ? nullptr : &tokens[index];
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) try {
  auto file = parse_tokenizer_file(json);
  if (!file.ok()) return in_file(file.status(), name);
  auto pretokenizer = Pretokenizer::make(file->split_patterns);
  if (!pretokenizer.ok()) return in_file(pretokenizer.status(), name);
  auto encoder = BytePairEncoder::make(*file);
  if (!encoder.ok()) return in_file(encoder.status(), name);
  auto impl = std::make_unique<Impl>(Impl{std::move(*pretokenizer), std::move(*encoder)});
  for (const auto& entry : file->vocabulary) impl->add_token(entry, /*is_added=*/false);
  for (const auto& entry : file->added) impl->add_token(entry, /*is_added=*/true);
  return Tokenizer(std::move(impl));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "tokenizer: out of memory");
} catch (const std::exception& e) {
  return internal_error(std::string("tokenizer: ") + e.what());
}

Result<Tokenizer> Tokenizer::load(const std::string& path) try {
  CAIRN_ASSIGN_OR_RETURN(const std::string json, read_file(path));
  return parse(json, path);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "tokenizer: out of memory");
}

void Tokenizer::encode_text(std::string_view text, std::vector<TokenId>& out) const {
  BytePairEncoder::Scratch scratch;
  impl_->pretokenizer.split(
      text, [&](std::string_view piece) { impl_->encoder.encode(piece, scratch, out); });
}

void Tokenizer::encode_with_added_tokens(std::string_view text, std::vector<TokenId>& out) const {
  std::size_t begin = 0;  // of the text not yet encoded
  for (std::size_t i = 0; i < text.size();) {
    AddedTokenTrie::Match match;
    if (impl_->added.may_start_with(text[i])) match = impl_->added.longest_prefix(text.substr(i));
    if (match.id < 0) {
      ++i;
      continue;
    }
    encode_text(text.substr(begin, i - begin), out);
    out.push_back(match.id);
    i += match.n_bytes;
    begin = i;
  }
  encode_text(text.substr(begin), out);
}

int Tokenizer::size() const { return static_cast<int>(impl_->tokens.size()); }

std::optional<TokenId> Tokenizer::added_token(std::string_view spelling) const {
  const AddedTokenTrie::Match match = impl_->added.longest_prefix(spelling);
  if (match.id < 0 || match.n_bytes != spelling.size()) return std::nullopt;
  return match.id;
}

bool Tokenizer::is_added(TokenId id) const {
  const Impl::Token* token = impl_->token(id);
  return token != nullptr && token->is_added;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  const Impl::Token* token = impl_->token(id);
  return token == nullptr ? std::string_view() : token->bytes;
}

std::string_view Tokenizer::spelling(TokenId id) const {
  const Impl::Token* token = impl_->token(id);
  return token == nullptr ? std::string_view() : token->spelling;
}

std::string Utf8Assembler::append(std::string_view bytes) {
  pending_.append(bytes);
  std::size_t n_complete = pending_.size();
  // An unfinished character is at most three bytes long and begins in the last three.
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, pending_.size()); ++n) {
    const std::string_view tail = std::string_view(pending_).substr(pending_.size() - n);
    const Utf8Step step = next_utf8(tail);
    if (step.kind == Utf8Step::Kind::kIncomplete && step.n_bytes == n) n_complete -= n;
    if (n_complete != pending_.size()) break;
  }
  std::string out = replace_invalid_utf8(std::string_view(pending_).substr(0, n_complete));
  pending_.erase(0, n_complete);
  return out;
}

std::string Utf8Assembler::finish() {
  std::string out = pending_.empty() ? std::string() : std::string(kReplacementCharacter);
  pending_.clear();
  return out;
}

}  // namespace cairn::engine
