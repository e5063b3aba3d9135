// Symbols are a linked list in an array; candidate merges wait in a heap ordered by rank, then by
// position, which is the reference's "lowest rank, leftmost on ties". A heap entry is stale once
// one of its symbols changed: then the list holds another rank at that position, because a symbol
// only ever grows and a rank belongs to one pair of symbols.
//
// Most pieces of ordinary text are one token. Those are found by their bytes; the table holds the
// entries for which merging gives the same answer, which make() finds out by merging them.
#include "engine/byte_pair_encoder.h"

#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "engine/byte_alphabet.h"

namespace cairn::engine {
namespace {

constexpr std::uint32_t kNone = BytePairEncoder::Scratch::kNone;

struct MergeRule {
  std::uint32_t rank;
  TokenId id;  // of the merged symbol
};

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Lets a table keyed by std::string be searched with a view.
struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const {
    return std::hash<std::string_view>()(bytes);
  }
};

using IdOfSpelling = boost::unordered_flat_map<std::string_view, TokenId>;

}  // namespace

struct BytePairEncoder::Impl {
  using Symbol = Scratch::Symbol;

  std::array<TokenId, 256> symbol_of_byte;
  boost::unordered_flat_map<std::uint64_t, MergeRule> merges;  // by pair_key
  boost::unordered_flat_map<std::string, TokenId, BytesHash, std::equal_to<>> whole_pieces;

  Status add_bytes(const IdOfSpelling& ids);
  Status add_merges(const std::vector<TokenizerFile::Merge>& list, const IdOfSpelling& ids);
  Status refuse_reachable_added_tokens(const TokenizerFile& file) const;
  void add_whole_pieces(const TokenizerFile& file);

  const MergeRule* rule(TokenId left, TokenId right) const;
  void start(std::string_view piece, Scratch& scratch) const;
  void set_rank(std::uint32_t left, Scratch& scratch) const;
  void merge_with_next(std::uint32_t left, Scratch& scratch) const;
  void merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
};

Status BytePairEncoder::Impl::add_bytes(const IdOfSpelling& ids) {
  for (std::size_t byte = 0; byte < symbol_of_byte.size(); ++byte) {
    const auto found = ids.find(byte_spelling(static_cast<std::uint8_t>(byte)));
    if (found == ids.end()) {
      return {StatusCode::kUnsupported,
              "model.vocab: no symbol for byte " + std::to_string(byte) + "; text would be lost"};
    }
    symbol_of_byte[byte] = found->second;
  }
  return {};
}

Status BytePairEncoder::Impl::add_merges(const std::vector<TokenizerFile::Merge>& list,
                                         const IdOfSpelling& ids) {
  merges.reserve(list.size());
  std::string merged;
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    merged.assign(list[rank].left).append(list[rank].right);
    const auto error = [&](std::string_view what) {
      return corrupt("model.merges[" + std::to_string(rank) + "]: " + std::string(what));
    };
    const auto left = ids.find(list[rank].left);
    const auto right = ids.find(list[rank].right);
    const auto result = ids.find(merged);
    if (left == ids.end()) return error("'" + list[rank].left + "' is not in model.vocab");
    if (right == ids.end()) return error("'" + list[rank].right + "' is not in model.vocab");
    if (result == ids.end()) return error("the result '" + merged + "' is not in model.vocab");
    const MergeRule rule{static_cast<std::uint32_t>(rank), result->second};
    if (!merges.try_emplace(pair_key(left->second, right->second), rule).second) {
      return error("'" + list[rank].left + " " + list[rank].right + "' is listed twice");
    }
  }
  return {};
}

// What a user types must never become an added token, so none may be a symbol or a merge's result.
Status BytePairEncoder::Impl::refuse_reachable_added_tokens(const TokenizerFile& file) const {
  boost::unordered_flat_set<TokenId> added;
  for (const auto& entry : file.added) added.insert(entry.id);
  const auto refuse = [](TokenId id) {
    return Status(StatusCode::kUnsupported, "added_tokens: id " + std::to_string(id) +
                                                " is also a symbol or the result of a merge; plain "
                                                "text could become it");
  };
  for (const TokenId id : symbol_of_byte) {
    if (added.contains(id)) return refuse(id);
  }
  for (const auto& [key, rule] : merges) {
    if (added.contains(rule.id)) return refuse(rule.id);
  }
  return {};
}

void BytePairEncoder::Impl::add_whole_pieces(const TokenizerFile& file) {
  boost::unordered_flat_set<TokenId> added;
  for (const auto& entry : file.added) added.insert(entry.id);
  whole_pieces.reserve(file.vocabulary.size());
  Scratch scratch;
  std::vector<TokenId> tokens;
  for (const auto& entry : file.vocabulary) {
    if (added.contains(entry.id)) continue;
    std::optional<std::string> bytes = bytes_of_spelling(entry.spelling);
    if (!bytes) continue;
    tokens.clear();
    merge(*bytes, scratch, tokens);
    const bool merges_to_itself = tokens.size() == 1 && tokens.front() == entry.id;
    if (merges_to_itself || file.ignore_merges) whole_pieces.emplace(std::move(*bytes), entry.id);
  }
}

const MergeRule* BytePairEncoder::Impl::rule(TokenId left, TokenId right) const {
  const auto found = merges.find(pair_key(left, right));
  return found == merges.end() ? nullptr : &found->second;
}

void BytePairEncoder::Impl::start(std::string_view piece, Scratch& scratch) const {
  const auto n = static_cast<std::uint32_t>(piece.size());
  scratch.queue.clear();
  scratch.symbols.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    scratch.symbols[i] = {.id = symbol_of_byte[static_cast<std::uint8_t>(piece[i])],
                          .previous = i == 0 ? kNone : i - 1,
                          .next = i + 1 == n ? kNone : i + 1,
                          .rank = kNone};
  }
  for (std::uint32_t i = 0; i < n; ++i) set_rank(i, scratch);
}

// Looks up the merge of `left` with its neighbour and queues it.
void BytePairEncoder::Impl::set_rank(std::uint32_t left, Scratch& scratch) const {
  Symbol& symbol = scratch.symbols[left];
  symbol.rank = kNone;
  if (symbol.next == kNone) return;
  const MergeRule* found = rule(symbol.id, scratch.symbols[symbol.next].id);
  if (found == nullptr) return;
  symbol.rank = found->rank;
  scratch.queue.push_back(std::uint64_t{found->rank} << 32 | left);
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void BytePairEncoder::Impl::merge_with_next(std::uint32_t left, Scratch& scratch) const {
  Symbol& symbol = scratch.symbols[left];
  Symbol& right = scratch.symbols[symbol.next];
  symbol.id = rule(symbol.id, right.id)->id;
  symbol.next = right.next;
  if (right.next != kNone) scratch.symbols[right.next].previous = left;
  right.id = -1;
  right.rank = kNone;
  set_rank(left, scratch);
  if (symbol.previous != kNone) set_rank(symbol.previous, scratch);
}

void BytePairEncoder::Impl::merge(std::string_view piece, Scratch& scratch,
                                  std::vector<TokenId>& out) const {
  start(piece, scratch);
  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
    const std::uint64_t candidate = scratch.queue.back();
    scratch.queue.pop_back();
    const auto left = static_cast<std::uint32_t>(candidate);
    const auto rank = static_cast<std::uint32_t>(candidate >> 32);
    if (scratch.symbols[left].rank == rank) merge_with_next(left, scratch);
  }
  for (std::uint32_t i = 0; i != kNone && i < scratch.symbols.size(); i = scratch.symbols[i].next) {
    out.push_back(scratch.symbols[i].id);
  }
}

BytePairEncoder::BytePairEncoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BytePairEncoder::BytePairEncoder(BytePairEncoder&&) noexcept = default;
BytePairEncoder& BytePairEncoder::operator=(BytePairEncoder&&) noexcept = default;
BytePairEncoder::~BytePairEncoder() = default;

Result<BytePairEncoder> BytePairEncoder::make(const TokenizerFile& file) {
  IdOfSpelling ids;
  ids.reserve(file.vocabulary.size());
  for (const auto& entry : file.vocabulary) ids.emplace(entry.spelling, entry.id);
  auto impl = std::make_unique<Impl>();
  CAIRN_RETURN_IF_ERROR(impl->add_bytes(ids));
  CAIRN_RETURN_IF_ERROR(impl->add_merges(file.merges, ids));
  CAIRN_RETURN_IF_ERROR(impl->refuse_reachable_added_tokens(file));
  impl->add_whole_pieces(file);
  return BytePairEncoder(std::move(impl));
}

void BytePairEncoder::encode(std::string_view piece, Scratch& scratch,
                             std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  const auto whole = impl_->whole_pieces.find(piece);
  if (whole != impl_->whole_pieces.end()) {
    out.push_back(whole->second);
  } else {
    impl_->merge(piece, scratch, out);
  }
}

}  // namespace cairn::engine
