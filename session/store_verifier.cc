// One pass over each family, the small ones first, so that the pass over the payloads can check
// each against what should be known of it. Shares the decoding of single values with the code that
// writes, and nothing else: chains, trees and claims are followed here anew.
#include "session/store_verifier.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/sha256.h"
#include "session/block_graph.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

const char* family_name(Family family) {
  switch (family) {
    case Family::kMeta:
      return "meta";
    case Family::kSessions:
      return "sessions";
    case Family::kEvents:
      return "events";
    case Family::kBlockIndex:
      return "block index";
    case Family::kBlocks:
      return "blocks";
    case Family::kTailIndex:
      return "tail index";
    case Family::kTails:
      return "tails";
  }
  return "?";
}

std::string hex_of(std::string_view key) {
  return engine::hex({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()});
}

std::string block_name(const BlockKey& key) { return "block " + engine::hex(key).substr(0, 16); }

std::string number_name(std::uint64_t number) { return std::to_string(number); }

// A turn as far as a tail can be checked against it.
struct TurnTokens {
  std::int64_t n_prompt_tokens = 0;
  std::array<std::uint8_t, 32> prompt_digest{};
  std::vector<TokenId> generated;   // up to the tail's event
  bool has_messages_after = false;  // before the tail's event
};

class Verifier {
 public:
  Verifier(Storage& storage, const DirectoryView& directory)
      : storage_(storage), directory_(directory) {}

  Result<VerifyReport> run() {
    const std::vector<Status (Verifier::*)()> passes = {
        &Verifier::check_meta,        &Verifier::check_sessions, &Verifier::check_log,
        &Verifier::check_block_index, &Verifier::check_blocks,   &Verifier::check_tail_index,
        &Verifier::check_tails,
    };
    for (const auto pass : passes) CAIRN_RETURN_IF_ERROR((this->*pass)());
    check_names();
    check_origins();
    check_chains();
    check_claims();
    check_reachability();
    report_.n_sessions =
        std::ranges::count_if(sessions_, [](const auto& entry) { return !entry.second.removed; });
    return std::move(report_);
  }

 private:
  void problem(std::string text) { report_.problems.push_back(std::move(text)); }
  void note(std::string text) { report_.notes.push_back(std::move(text)); }
  void problem(const std::string& subject, const Status& status) {
    problem(subject + ": " + std::string(status.message()));
  }

  // A scan of the whole family. Where the database itself finds damage the scan ends there.
  Status scan(Family family, const std::function<void(std::string_view, std::string_view)>& visit) {
    const Status status =
        storage_.scan(family, "", "", [&](std::string_view key, std::string_view value) {
          report_.bytes_checked += static_cast<std::int64_t>(key.size() + value.size());
          visit(key, value);
          return true;
        });
    if (status.code() != StatusCode::kCorrupt) return status;
    problem(std::string(family_name(family)) + ": " + std::string(status.message()) +
            "; what follows of this family is not checked");
    return {};
  }

  // -- meta --

  Status check_meta() {
    return scan(Family::kMeta, [&](std::string_view key, std::string_view value) {
      if (key == kCommitKey) return;  // of a layer below, which compares it with MARK at open
      const Result<std::string> content = unseal_record(Family::kMeta, key, value);
      if (!content.ok()) {
        problem("meta " + std::string(key), content.status());
      } else if (key == kHeaderKey) {
        check_header(*content);
      } else if (key.starts_with(kNamePrefix)) {
        add_name(std::string(key.substr(kNamePrefix.size())), *content);
      } else if (key.starts_with(kNamespacePrefix)) {
        add_namespace(key, *content);
      }
    });
  }

  void check_header(std::string_view content) {
    const Result<StoreHeader> header = decode_store_header(content);
    if (!header.ok()) return problem("header", header.status());
    if (directory_.format_file != FormatFile::kValid) {
      note("FORMAT: missing or damaged; the next opening writes it anew");
    } else if (directory_.format.store_id != header->store_id) {
      problem("FORMAT: it belongs to another store than the database");
    }
  }

  void add_name(std::string name, std::string_view content) {
    const Result<SessionId> id = decode_session_name(content);
    if (!id.ok()) return problem("name " + name, id.status());
    names_.emplace(std::move(name), *id);
  }

  void add_namespace(std::string_view key, std::string_view content) {
    const Result<NamespaceRecord> record = decode_namespace_record(content);
    if (!record.ok()) return problem("namespace " + hex_of(key.substr(10)), record.status());
    const std::string subject = "namespace " + std::to_string(record->number);
    const BlockKey root = root_key(record->kv_namespace);
    if (key != namespace_key(root)) problem(subject + ": its key is not that of its content");
    if (!namespaces_.emplace(record->number, *record).second) {
      problem(subject + ": two namespaces have this number");
    }
    roots_.emplace(root, record->number);
  }

  // -- sessions and names --

  Status check_sessions() {
    return scan(Family::kSessions, [&](std::string_view key, std::string_view value) {
      const std::optional<SessionId> id = parse_session_key(key);
      const Result<SessionRecord> record = decode_session_entry(key, value);
      const std::string subject = "session " + hex_of(key);
      if (!record.ok()) return problem(subject, record.status());
      if (record->id != id) return problem(subject + ": the record is of another session");
      sessions_.emplace(*id, *record);
    });
  }

  std::string name_of(const SessionId& id) const {
    const auto found = sessions_.find(id);
    return "session " + (found == sessions_.end() ? id.to_hex() : found->second.name);
  }

  void check_names() {
    for (const auto& [name, id] : names_) {
      const auto found = sessions_.find(id);
      if (found == sessions_.end()) {
        problem("name " + name + ": its session " + id.to_hex() + " is missing");
      } else if (found->second.name != name || found->second.removed) {
        problem("name " + name + ": its session " + id.to_hex() + " has another name");
      }
    }
    for (const auto& [id, record] : sessions_) {
      const auto found = names_.find(record.name);
      const bool named = found != names_.end() && found->second == id;
      if (!named && !record.removed) problem(name_of(id) + ": nothing has its name");
    }
  }

  // -- log --

  Status check_log() {
    std::optional<SessionId> at;
    std::set<std::string> strays;
    CAIRN_RETURN_IF_ERROR(scan(Family::kEvents, [&](std::string_view key, std::string_view value) {
      ++report_.n_events;
      const std::optional<SessionId> id = parse_session_key(key.substr(0, kSessionKeyBytes));
      const std::optional<std::uint64_t> sequence = parse_event_sequence(key);
      if (!id || !sequence) return problem("event " + hex_of(key) + ": not a key of an event");
      if (!sessions_.contains(*id)) {
        strays.insert(id->to_hex());
        return;
      }
      const std::string subject = name_of(*id) + ": event " + number_name(*sequence);
      std::uint64_t& parent = events_[*id][*sequence];  // of a damaged one not asked
      Result<LogEvent> event = decode_log_entry(key, value);
      if (!event.ok()) return problem(subject, event.status());
      if (event->parent >= event->sequence) {
        return problem(subject + ": its parent is not before it");
      }
      parent = event->parent;
      add_claims(*id, subject, *event);
    }));
    for (const std::string& id : strays) note("session " + id + ": events without a session");
    for (const auto& [id, record] : sessions_) check_log_end(id, record);
    return {};
  }

  void add_claims(const SessionId& id, const std::string& subject, LogEvent& event) {
    Claim claim = {subject, {}, 0};
    if (const auto* mark = std::get_if<MarkSet>(&event.body)) {
      claim.needed = mark->stored_blocks > 0;
    } else if (const auto* left = std::get_if<HeadMoved>(&event.body)) {
      // A branch that was removed since needs nothing. Its end is before the rewind: seen already.
      const SessionRecord& record = sessions_.at(id);
      const bool is_there = (record.origin && left->from <= record.origin_sequence) ||
                            events_[id].contains(left->from);
      claim.needed = left->stored_blocks > 0 && is_there;
    }
    claim.needed = claim.needed && !sessions_.at(id).removed;
    visit_chains(event, [&](const BlockKey& key, std::uint32_t n_blocks) {
      if (n_blocks == 0) return;
      claim.key = key;
      claim.n_blocks = n_blocks;
      claims_.push_back(claim);
    });
  }

  // Removed branches leave gaps in a log, so what tells of lost events is their number, and the
  // parents of those that are left (check_origins).
  void check_log_end(const SessionId& id, const SessionRecord& record) {
    if (record.removed) return;  // as much as its forks need is left of it
    std::uint64_t last = record.origin ? record.origin_sequence : 0;
    const auto& log = events_[id];
    for (const auto& [sequence, parent] : log) last = std::max(last, sequence);
    if (record.head_sequence != last) {
      problem(name_of(id) + ": its record stands at event " + number_name(record.head_sequence) +
              ", its log ends with " + number_name(last));
    } else if (record.n_events != log.size()) {
      problem(name_of(id) + ": its record counts " + number_name(record.n_events) +
              " events, its log has " + number_name(log.size()));
    }
    if (record.stored_blocks > 0) {
      claims_.push_back({name_of(id) + ": head", record.chain_key, record.stored_blocks, true});
    }
  }

  void check_origins() {
    for (const auto& [id, record] : sessions_) {
      const Result<std::vector<LogPart>> parts = log_parts(storage_, record);
      const std::string subject = name_of(id);
      if (!parts.ok()) {
        problem(subject, parts.status());
        continue;
      }
      if (record.origin_sequence > 0 && !is_stored(*parts, record.origin_sequence)) {
        problem(subject + ": event " + number_name(record.origin_sequence) + " of " +
                name_of(*record.origin) + ", at which it forked, is missing");
      }
      for (const auto& [sequence, parent] : events_[id]) {
        if (parent == 0 || is_stored(*parts, parent)) continue;
        problem(subject + ": event " + number_name(sequence) + ": its parent " +
                number_name(parent) + " is missing");
      }
    }
  }

  bool is_stored(const std::vector<LogPart>& parts, std::uint64_t sequence) const {
    return std::ranges::any_of(parts, [&](const LogPart& part) {
      const auto log = events_.find(part.session);
      return part.first <= sequence && sequence <= part.last && log != events_.end() &&
             log->second.contains(sequence);
    });
  }

  // -- blocks --

  Status check_block_index() {
    return scan(Family::kBlockIndex, [&](std::string_view key, std::string_view value) {
      const std::optional<BlockKey> block = parse_block_index_key(key);
      if (!block) return problem("block index: " + hex_of(key) + " is not a key of a block");
      const Result<BlockRecord> record = decode_block_entry(key, value);
      if (!record.ok()) return problem(block_name(*block) + " (index)", record.status());
      graph_.add(*block, *record);
      const auto place = std::pair(record->kv_namespace, record->number);
      if (!places_.emplace(place, *block).second) {
        problem(block_name(*block) + ": another block has its number");
      }
      const auto owner = namespaces_.find(record->kv_namespace);
      if (owner == namespaces_.end()) {
        problem(block_name(*block) + ": its namespace " + std::to_string(record->kv_namespace) +
                " is missing");
      } else if (record->number >= owner->second.reserved_blocks) {
        problem(block_name(*block) + ": its number " + number_name(record->number) +
                " was never reserved");
      }
    });
  }

  Status check_blocks() {
    std::int64_t n_unnamed = 0, bytes_unnamed = 0;
    CAIRN_RETURN_IF_ERROR(scan(Family::kBlocks, [&](std::string_view key, std::string_view value) {
      ++report_.n_blocks;
      const auto place = parse_block_number_key(key);
      if (!place) return problem("block " + hex_of(key) + ": not a key of a block's payload");
      const auto named = places_.find(*place);
      if (named == places_.end()) {
        ++n_unnamed;
        bytes_unnamed += static_cast<std::int64_t>(value.size());
        return;
      }
      stored_.insert(named->second);
      check_block(named->second, key, value);
    }));
    if (n_unnamed > 0) {
      note(std::to_string(n_unnamed) + " blocks of " + std::to_string(bytes_unnamed) +
           " bytes that no index names");
    }
    for (const auto& [key, record] : graph_.blocks()) {
      if (!stored_.contains(key)) problem(block_name(key) + ": indexed but not stored");
    }
    return {};
  }

  void check_block(const BlockKey& key, std::string_view value_key, std::string_view value) {
    const Result<PayloadView> view = unseal_payload(Family::kBlocks, value_key, value);
    if (!view.ok()) return problem(block_name(key), view.status());
    Result<BlockDescriptor> block = decode_block_descriptor(view->descriptor);
    if (!block.ok()) return problem(block_name(key), block.status());
    const BlockRecord& record = *graph_.find(key);
    if (block->key != key || block->parent != record.parent || block->depth != record.depth ||
        block->provenance != record.provenance || block->tokens.size() != record.n_tokens) {
      return problem(block_name(key) + ": index and block disagree");
    }
    if (block->payload_bytes != view->payload.size() ||
        record.payload_bytes != view->payload.size()) {
      return problem(block_name(key) + ": " + std::to_string(view->payload.size()) +
                     " bytes of payload, " + std::to_string(record.payload_bytes) + " expected");
    }
    if (block_key(block->parent, block->provenance, block->tokens) != key) {
      return problem(block_name(key) + ": its key is not that of its tokens");
    }
    tokens_.emplace(key, std::move(block->tokens));
  }

  // Chains up to the root of the namespace.
  void check_chains() {
    std::int64_t n_orphans = 0;
    for (const auto& [key, record] : graph_.blocks()) {
      if (record.depth == 0) {
        const auto root = roots_.find(record.parent);
        if (root == roots_.end() || root->second != record.kv_namespace) {
          problem(block_name(key) + ": it does not begin at the root of its namespace");
        }
        continue;
      }
      const BlockRecord* const parent = graph_.find(record.parent);
      if (parent == nullptr) {
        ++n_orphans;
      } else if (parent->depth + 1 != record.depth || parent->kv_namespace != record.kv_namespace) {
        problem(block_name(key) + ": it does not follow " + block_name(record.parent) +
                ", its parent");
      } else if (parent->provenance > record.provenance) {
        problem(block_name(key) + ": exact, after a parent that is not");
      }
    }
    if (n_orphans > 0) {
      note(std::to_string(n_orphans) + " blocks whose parent is gone: of no use");
    }
  }

  // -- tails --

  Status check_tail_index() {
    return scan(Family::kTailIndex, [&](std::string_view key, std::string_view value) {
      ++report_.n_tails;
      const Result<TailRecord> record = decode_tail_entry(key, value);
      if (!record.ok()) return problem("tail " + hex_of(key) + " (index)", record.status());
      const std::string subject = tail_name(*record);
      if (key != tail_key(record->session, record->slot)) {
        return problem(subject + ": it is under the key of another");
      }
      if (!sessions_.contains(record->session)) return note(subject + ": its session is gone");
      if (record->slot > 0 && !knows_event(record->session, record->slot)) {
        note(subject + ": its event is gone");
      }
      const std::string payload_key =
          record->number == 0 ? std::string(key) : tail_number_key(record->number);
      tails_[payload_key].push_back(*record);
    });
  }

  std::string tail_name(const TailRecord& record) const {
    const std::string slot = record.slot == 0 ? "head" : "event " + number_name(record.slot);
    return name_of(record.session) + ": tail of its " + slot;
  }

  bool knows_event(const SessionId& id, std::uint64_t sequence) const {
    const auto record = sessions_.find(id);
    if (record == sessions_.end()) return false;
    if (record->second.origin && sequence <= record->second.origin_sequence) return true;
    const auto log = events_.find(id);
    return log != events_.end() && log->second.contains(sequence);
  }

  Status check_tails() {
    std::int64_t n_unnamed = 0;
    std::set<std::string, std::less<>> stored;
    CAIRN_RETURN_IF_ERROR(scan(Family::kTails, [&](std::string_view key, std::string_view value) {
      const auto named = tails_.find(std::string(key));
      if (named == tails_.end()) {
        ++n_unnamed;
        return;
      }
      stored.insert(named->first);
      check_tail(named->second, key, value);
    }));
    if (n_unnamed > 0) note(std::to_string(n_unnamed) + " tails that no index names");
    for (const auto& [key, records] : tails_) {
      if (!stored.contains(key)) problem(tail_name(records.front()) + ": indexed but not stored");
    }
    return {};
  }

  void check_tail(const std::vector<TailRecord>& records, std::string_view key,
                  std::string_view value) {
    const std::string subject = tail_name(records.front());
    const Result<PayloadView> view = unseal_payload(Family::kTails, key, value);
    if (!view.ok()) return problem(subject, view.status());
    const Result<TailRecord> described = decode_tail_record(view->descriptor);
    if (!described.ok()) return problem(subject, described.status());
    for (const TailRecord& record : records) {
      if (record.position != described->position || record.chain_key != described->chain_key ||
          record.payload_bytes != described->payload_bytes || record.number != described->number) {
        problem(tail_name(record) + ": index and tail disagree");
      }
    }
    if (described->payload_bytes != view->payload.size()) {
      return problem(subject + ": " + std::to_string(view->payload.size()) + " bytes of payload, " +
                     std::to_string(described->payload_bytes) + " expected");
    }
    check_tail_payload(subject, *described, view->payload);
  }

  // FORMAT.md section 7, as far as it can be read without the model.
  void check_tail_payload(const std::string& subject, const TailRecord& record,
                          std::string_view payload) {
    constexpr std::size_t kHeaderBytes = 16;
    const auto n_blocks = static_cast<std::size_t>(record.position / kBlockTokens);
    const auto n_open = static_cast<std::size_t>(record.position % kBlockTokens);
    if (payload.size() < kHeaderBytes + 4 * n_open) return problem(subject + ": cut short");
    if (little_endian32(payload) != 1) return;  // another layout
    if (little_endian32(payload.substr(4)) != n_open) {
      return problem(subject + ": " + std::to_string(little_endian32(payload.substr(4))) +
                     " open tokens at position " + std::to_string(record.position));
    }
    std::vector<TokenId> tokens;
    if (n_blocks > 0) {
      const std::optional<std::vector<BlockKey>> chain = graph_.chain(record.chain_key);
      if (!chain || chain->size() != n_blocks) {
        return note(subject + ": its chain of " + std::to_string(n_blocks) +
                    " blocks is not complete: of no use");
      }
      const auto first_bounded = static_cast<std::int64_t>(little_endian64(payload.substr(8)));
      for (std::size_t i = 0; i < chain->size(); ++i) {
        const bool bounded = first_bounded >= 0 && static_cast<std::int64_t>(i) >= first_bounded;
        const bool is_bounded = graph_.find((*chain)[i])->provenance == Provenance::kBounded;
        if (bounded != is_bounded) {
          return problem(subject + ": says that block " + std::to_string(i) + " of its chain is " +
                         (bounded ? "bounded" : "exact") + ", the block does not");
        }
        const auto found = tokens_.find((*chain)[i]);
        if (found == tokens_.end()) return;  // damaged: said already
        tokens.insert(tokens.end(), found->second.begin(), found->second.end());
      }
    }
    for (std::size_t i = 0; i < n_open; ++i) {
      tokens.push_back(static_cast<TokenId>(little_endian32(payload.substr(kHeaderBytes + 4 * i))));
    }
    check_tail_tokens(subject, record, tokens);
  }

  // The tokens before a tail are the prompt of the newest turn and what it generated, or the prompt
  // of the turn that its event is followed by.
  void check_tail_tokens(const std::string& subject, const TailRecord& record,
                         const std::vector<TokenId>& tokens) {
    const Result<std::optional<TurnTokens>> turn = turn_before(record.session, record.sequence);
    if (!turn.ok() || !*turn) return;  // a damaged log: said already
    const TurnTokens& expected = **turn;
    const auto n_prompt = static_cast<std::size_t>(expected.n_prompt_tokens);
    if (tokens.size() < n_prompt) return;
    const std::vector<TokenId> prompt(tokens.begin(),
                                      tokens.begin() + static_cast<std::ptrdiff_t>(n_prompt));
    if (token_digest(prompt) != expected.prompt_digest) {
      if (expected.has_messages_after && may_be_next_prompt(record, tokens)) return;
      return problem(subject + ": its tokens are not those of the turn's prompt");
    }
    const std::size_t n = std::min(tokens.size() - n_prompt, expected.generated.size());
    if (!std::equal(expected.generated.begin(),
                    expected.generated.begin() + static_cast<std::ptrdiff_t>(n),
                    tokens.begin() + static_cast<std::ptrdiff_t>(n_prompt))) {
      problem(subject + ": its tokens are not those that the turn generated");
    }
  }

  bool may_be_next_prompt(const TailRecord& record, const std::vector<TokenId>& tokens) {
    const Result<LogEvent> next = read_event(record.session, record.sequence + 1);
    if (!next.ok() || next->parent != record.sequence) return true;
    const auto* turn = std::get_if<TurnStarted>(&next->body);
    if (turn == nullptr || turn->n_prompt_tokens != static_cast<std::int64_t>(tokens.size())) {
      return true;
    }
    return token_digest(tokens) == turn->prompt_digest;
  }

  // Of the session or its origins.
  Result<LogEvent> read_event(const SessionId& id, std::uint64_t event) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<LogPart> parts, log_parts(storage_, sessions_.at(id)));
    const auto part = std::ranges::find_if(parts, [&](const LogPart& candidate) {
      return candidate.first <= event && event <= candidate.last;
    });
    if (part == parts.end()) return corrupt("event without an owner");
    const std::string key = event_key(part->session, event);
    CAIRN_ASSIGN_OR_RETURN(const std::string value, storage_.get(Family::kEvents, key));
    return decode_log_entry(key, value);
  }

  // The turn that `event` of the session belongs to or follows; empty where there is none.
  Result<std::optional<TurnTokens>> turn_before(const SessionId& id, std::uint64_t event) {
    std::vector<std::vector<TokenId>> groups;  // newest first
    bool has_messages_after = false;
    while (event > 0) {
      CAIRN_ASSIGN_OR_RETURN(LogEvent logged, read_event(id, event));
      if (auto* tokens = std::get_if<TokensGenerated>(&logged.body)) {
        groups.push_back(std::move(tokens->tokens));
      } else if (const auto* started = std::get_if<TurnStarted>(&logged.body)) {
        TurnTokens turn;
        turn.has_messages_after = has_messages_after;
        turn.n_prompt_tokens = started->n_prompt_tokens;
        turn.prompt_digest = started->prompt_digest;
        for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
          turn.generated.insert(turn.generated.end(), group->begin(), group->end());
        }
        return std::optional(std::move(turn));
      }
      has_messages_after =
          has_messages_after || std::holds_alternative<MessageAppended>(logged.body);
      if (logged.parent >= event) return corrupt("a parent that is not before its child");
      event = logged.parent;
    }
    return std::optional<TurnTokens>();
  }

  // -- across families --

  struct Claim {
    std::string subject;
    BlockKey key;
    std::uint32_t n_blocks;
    bool needed = false;  // keeps its blocks from collection
  };

  // What records say is stored. Less than that is no damage: blocks are a cache.
  void check_claims() {
    for (const Claim& claim : claims_) {
      const BlockRecord* const end = graph_.find(claim.key);
      const bool reached = end != nullptr && graph_.chain(claim.key).has_value();
      if (end != nullptr && end->depth + 1 != claim.n_blocks) {
        problem(claim.subject + ": " + std::to_string(claim.n_blocks) +
                " blocks are said to be stored, its chain has " + std::to_string(end->depth + 1));
      } else if (claim.needed && !reached) {
        note(claim.subject + ": not all of its " + std::to_string(claim.n_blocks) +
             " blocks are stored: the rest will be computed again");
      }
    }
  }

  void check_reachability() {
    BlockKeySet reached;
    for (const Claim& claim : claims_) {
      if (claim.needed) graph_.mark(claim.key, reached);
    }
    for (const auto& [key, records] : tails_) {
      for (const TailRecord& record : records) graph_.mark(record.chain_key, reached);
    }
    std::int64_t n_garbage = 0, n_bytes = 0;
    for (const auto& [key, record] : graph_.blocks()) {
      if (reached.contains(key)) continue;
      ++n_garbage;
      n_bytes += static_cast<std::int64_t>(record.payload_bytes);
    }
    if (n_garbage == 0) return;
    note(std::to_string(n_garbage) + " blocks of " + std::to_string(n_bytes) +
         " bytes that no session reaches");
  }

  Storage& storage_;
  const DirectoryView& directory_;
  VerifyReport report_;

  std::map<std::string, SessionId> names_;
  std::map<std::uint32_t, NamespaceRecord> namespaces_;  // by number
  std::map<BlockKey, std::uint32_t> roots_;              // numbers of namespaces
  std::map<SessionId, SessionRecord> sessions_;
  // Parents by sequence, of the events in each session's own log.
  std::map<SessionId, std::unordered_map<std::uint64_t, std::uint64_t>> events_;
  std::vector<Claim> claims_;
  BlockGraph graph_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, BlockKey> places_;  // of payloads
  BlockKeySet stored_;
  std::unordered_map<BlockKey, std::vector<TokenId>, BlockKeyHash> tokens_;
  std::map<std::string, std::vector<TailRecord>> tails_;  // by the key of the payload
};

}  // namespace

Result<VerifyReport> verify_store(Storage& storage, const DirectoryView& directory) {
  return Verifier(storage, directory).run();
}

}  // namespace cairn::session
