#include "session/session_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/utf8.h"
#include "session/block_graph.h"
#include "session/session_log.h"
#include "session/storage_key.h"
#include "session/store_directory.h"
#include "session/store_state.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

constexpr std::size_t kSummaryBytes = 160;

// -- events --

// The text on one line: white space and control characters become single blanks.
std::string on_one_line(std::string_view text) {
  const std::string valid = engine::replace_invalid_utf8(text.substr(0, 4 * kSummaryBytes));
  std::string line;
  for (const char c : valid) {
    const bool blank = static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.size() > kSummaryBytes) {
    line.resize(engine::valid_utf8_prefix(std::string_view(line).substr(0, kSummaryBytes)));
  }
  return line;
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kLatestReminder:
      return "reminder";
  }
  return "?";
}

const char* reason_name(EndReason reason) {
  switch (reason) {
    case EndReason::kStop:
      return "stop";
    case EndReason::kToolCalls:
      return "tool calls";
    case EndReason::kLength:
      return "length";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kError:
      return "error";
    case EndReason::kContextLimit:
      return "context limit";
    case EndReason::kTimeLimit:
      return "time limit";
    case EndReason::kCallLimit:
      return "limit of calls";
    case EndReason::kStopString:
      return "stop string";
  }
  return "?";
}

std::string words_of(const Message& message) {
  std::string text;
  for (const ContentBlock& block : message.content) {
    if (!text.empty()) text += ' ';
    text += block.kind == ContentBlock::Kind::kImage ? "[image]" : block.text;
    if (text.size() > 4 * kSummaryBytes) break;
  }
  for (const ToolCall& call : message.tool_calls) {
    text += (text.empty() ? "" : " ") + call.name + "(" + call.arguments_json + ")";
    if (text.size() > 4 * kSummaryBytes) break;
  }
  return text;
}

std::string short_hex(std::string_view fingerprint) {
  return std::string(fingerprint.substr(0, 16));
}

// Fills in kind, summary and tokens by the kind of the event.
struct Describe {
  SessionEvent& event;

  void operator()(const UnknownEvent&) { event.kind = "unknown"; }
  void operator()(const MessageAppended& body) {
    event.kind = "message";
    event.summary = std::string(role_name(body.message.role)) + ": " + words_of(body.message);
  }
  void operator()(const TurnStarted& body) {
    event.kind = "turn started";
    event.summary = "turn " + std::to_string(body.turn) + ", " +
                    std::to_string(body.n_prompt_tokens) + " prompt tokens";
    event.n_tokens = body.n_prompt_tokens;
  }
  void operator()(const TokensGenerated& body) {
    event.kind = "tokens";
    event.n_tokens = static_cast<std::int64_t>(body.tokens.size());
  }
  void operator()(const TurnEnded& body) {
    event.kind = "turn ended";
    event.summary = std::string(reason_name(body.end_reason)) + ": ";
    event.summary +=
        body.end_reason == EndReason::kError ? body.status_message : words_of(body.message);
    event.n_tokens = body.n_tokens;
  }
  void operator()(const MarkSet& body) {
    event.kind = "mark";
    event.summary = body.name;
    event.n_tokens = body.n_tokens;
  }
  void operator()(const HeadMoved& body) {
    event.kind = "rewind";
    event.summary = "from event " + std::to_string(body.from);
    event.n_tokens = body.n_tokens;
  }
  void operator()(const ModelChanged& body) {
    event.kind = "other model";
    event.summary = short_hex(body.model_fingerprint);
  }
};

SessionEvent describe(const LogEvent& logged) {
  SessionEvent event;
  event.id = logged.sequence;
  event.parent = logged.parent;
  event.time_ms = logged.time_ms;
  std::visit(Describe{event}, logged.body);
  event.summary = on_one_line(event.summary);
  return event;
}

// What leads to where the session forked, and all of its own.
Status read_tree(Storage& storage, const SessionRecord& record, SessionTree& tree) {
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, SessionLog::open(storage, record));
  CAIRN_RETURN_IF_ERROR(log.visit_path(
      tree.forked_at, [&](LogEvent&& event) { tree.events.push_back(describe(event)); }));
  return visit_events(storage, record.id, 1, [&](LogEvent&& event) {
    tree.events.push_back(describe(event));
    return true;
  });
}

// Events ascend, so parents are before their children.
void mark_path(SessionTree& tree) {
  std::uint64_t on_path = tree.head;
  for (auto event = tree.events.rbegin(); event != tree.events.rend(); ++event) {
    if (event->id != on_path) continue;
    event->on_path = true;
    on_path = event->parent;
  }
}

// -- blocks and tails --

Result<std::vector<TailRecord>> read_tails(Storage& storage) {
  std::vector<TailRecord> tails;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(Family::kTailIndex, "", "", [&](std::string_view key, std::string_view value) {
        Result<TailRecord> tail = decode_tail_entry(key, value);
        if (tail.ok()) tails.push_back(std::move(*tail));
        return true;
      }));
  return tails;
}

// Bytes of the session's tails, each once however many slots name it.
void add_tails(const SessionRecord& record, const std::vector<TailRecord>& tails,
               SessionTree& tree) {
  std::set<std::uint64_t> counted;
  for (const TailRecord& tail : tails) {
    if (tail.session != record.id) continue;
    if (tail.slot == 0) tree.tail_position = tail.position;
    if (tail.number != 0 && !counted.insert(tail.number).second) continue;
    tree.bytes_tails += static_cast<std::int64_t>(tail.payload_bytes);
  }
}

// The end of the session's chain of blocks; nullptr where none is stored. A record of format 1 does
// not tell: the tail of its head does.
const BlockKey* chain_end(const SessionRecord& record, const std::vector<TailRecord>& tails) {
  if (record.stored_blocks > 0) return &record.chain_key;
  for (const TailRecord& tail : tails) {
    const bool has_blocks = tail.position >= kBlockTokens;
    if (tail.session == record.id && tail.slot == 0 && has_blocks) return &tail.chain_key;
  }
  return nullptr;
}

Status add_blocks(Storage& storage, const SessionRecord& record,
                  const std::vector<TailRecord>& tails, SessionTree& tree) {
  CAIRN_ASSIGN_OR_RETURN(const BlockGraph graph, BlockGraph::read(storage));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> sessions, list_sessions(storage));
  BlockKeySet of_others, own;
  for (const SessionRecord& other : sessions) {
    if (other.id == record.id || other.removed) continue;
    if (const BlockKey* const end = chain_end(other, tails)) graph.mark(*end, of_others);
  }
  if (const BlockKey* const end = chain_end(record, tails)) graph.mark(*end, own);
  for (const BlockKey& key : own) {
    ++tree.n_blocks;
    tree.bytes_blocks += static_cast<std::int64_t>(graph.find(key)->payload_bytes);
    if (of_others.contains(key)) ++tree.n_blocks_shared;
  }
  return {};
}

Result<std::int64_t> bytes_under(Storage& storage, Family family, const std::string& prefix) {
  std::size_t n_bytes = 0;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(family, prefix, prefix, [&](std::string_view key, std::string_view value) {
        n_bytes += key.size() + value.size();
        return true;
      }));
  return static_cast<std::int64_t>(n_bytes);
}

Result<std::int64_t> count_keys(Storage& storage, Family family) {
  std::int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(storage.scan(family, "", "", [&](std::string_view, std::string_view) {
    ++count;
    return true;
  }));
  return count;
}

}  // namespace

Result<SessionTree> show_session(Storage& storage, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const SessionRecord record, find_session(storage, name));
  SessionTree tree;
  tree.info = session_info(record);
  tree.head = record.head_sequence;
  if (record.origin) tree.forked_at = record.origin_sequence;
  CAIRN_RETURN_IF_ERROR(read_tree(storage, record, tree));
  mark_path(tree);
  CAIRN_ASSIGN_OR_RETURN(tree.bytes_log,
                         bytes_under(storage, Family::kEvents, session_key(record.id)));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TailRecord> tails, read_tails(storage));
  add_tails(record, tails, tree);
  CAIRN_RETURN_IF_ERROR(add_blocks(storage, record, tails, tree));
  return tree;
}

Result<StoreStats> read_stats(Storage& storage, const std::string& path) {
  StoreStats stats;
  CAIRN_ASSIGN_OR_RETURN(stats.bytes_on_disk, bytes_on_disk(path));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> sessions, list_sessions(storage));
  stats.n_sessions = std::ranges::count(sessions, false, &SessionRecord::removed);
  CAIRN_ASSIGN_OR_RETURN(stats.n_blocks, count_keys(storage, Family::kBlockIndex));
  CAIRN_ASSIGN_OR_RETURN(stats.n_tails, count_keys(storage, Family::kTailIndex));
  const Result<std::string> counters =
      get_record(storage, Family::kMeta, std::string(kCountersKey));
  if (counters.status().code() == StatusCode::kNotFound) return stats;
  if (!counters.ok()) return with_subject("counters", counters.status());
  CAIRN_ASSIGN_OR_RETURN(stats.counters, decode_store_counters(*counters));
  return stats;
}

}  // namespace cairn::session
