// Keys of blocks begin with a salt of the store, so every block gets a new one, and so does what
// names blocks: the record, marks and rewinds in the log, tails. Blocks that the store has already
// stay as they are.
#include "session/session_import.h"

#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "session/session_file.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

using Frame = SessionFileReader::Frame;

constexpr std::size_t kNamespaceBytes = 4 + 32;
// What the last commit may hold. More log than that is refused; tails above it are left out.
constexpr std::size_t kLogBytesMax = 128 << 20, kTailBytesMax = 128 << 20;
constexpr std::size_t kBlockBatchBytes = 8 << 20;

// The block's key and place in the store that imports it.
struct Rekeyed {
  BlockKey key{};
  std::uint32_t depth = 0;
};

class Import {
 public:
  Import(SessionStore& store, const std::string& path) : store_(store), path_(path) {}

  // Everything that can be wrong with the file, without changing the store.
  Status check() {
    return for_each([&](Frame& frame) -> Status {
      switch (frame.kind) {
        case FrameKind::kSession:
          return check_session(frame);
        case FrameKind::kNamespace:
          return check_namespace(frame);
        case FrameKind::kEvent:
          return check_event(frame);
        case FrameKind::kBlock:
          return check_block(frame);
        case FrameKind::kTail:
          return check_tail(frame).status();
        case FrameKind::kEnd:
          return check_end();
      }
      return {};
    });
  }

  Result<SessionRecord> write(const std::string& name) {
    KvNamespace kv_namespace = {record_.model_fingerprint, kv_format_version_,
                                store_.kv_salt() + record_.options.salt};
    CAIRN_ASSIGN_OR_RETURN(record_.kv_namespace, store_.open_namespace(kv_namespace));
    root_ = root_key(kv_namespace);
    keys_.clear();
    AdoptedSession session;
    CAIRN_RETURN_IF_ERROR(for_each([&](Frame& frame) { return take(frame, session); }));
    if (!name.empty()) record_.name = name;
    if (record_.stored_blocks > 0) set_chain(record_.chain_key, record_.stored_blocks);
    session.record = record_;
    for (const TakenTail& tail : tails_) {
      NewTail& added = session.tails.emplace_back(tail.tail);
      added.payload = tail.frame.payload();
    }
    return store_.adopt_session(std::move(session));
  }

 private:
  struct TakenTail {
    NewTail tail;
    Frame frame;  // owns the payload
  };

  template <class Visit>
  Status for_each(const Visit& visit) {
    CAIRN_ASSIGN_OR_RETURN(SessionFileReader reader, SessionFileReader::open(path_));
    for (;;) {
      CAIRN_ASSIGN_OR_RETURN(Frame frame, reader.next());
      const bool at_end = frame.kind == FrameKind::kEnd;
      const std::uint64_t offset = frame.offset;
      CAIRN_RETURN_IF_ERROR(reader.error_at(offset, visit(frame)));
      if (at_end) return {};
    }
  }

  // -- what the file says --

  Status check_session(const Frame& frame) {
    CAIRN_ASSIGN_OR_RETURN(record_, decode_session_record(frame.content));
    record_.origin.reset();
    record_.origin_sequence = 0;
    record_.removed = false;
    return {};
  }

  Status check_namespace(const Frame& frame) {
    if (frame.content.size() != kNamespaceBytes) return corrupt("a namespace of another size");
    kv_format_version_ = little_endian32(frame.content);
    std::copy(frame.content.begin() + 4, frame.content.end(), file_root_.begin());
    root_ = file_root_;
    return {};
  }

  Status check_event(const Frame& frame) {
    CAIRN_ASSIGN_OR_RETURN(const LogEvent event, decode_event(frame.content));
    if (event.sequence <= *known_events_.rbegin()) return corrupt("an event that is too late");
    if (!known_events_.contains(event.parent)) return corrupt("an event that follows none");
    known_events_.insert(event.sequence);
    n_log_bytes_ += frame.content.size();
    if (n_log_bytes_ > kLogBytesMax) return corrupt("a log of more than 128 MiB");
    return {};
  }

  Status check_block(const Frame& frame) { return rekey(frame).status(); }

  Result<TailRecord> check_tail(const Frame& frame) {
    CAIRN_ASSIGN_OR_RETURN(const TailRecord tail, decode_tail_record(frame.content));
    if (tail.payload_bytes != frame.payload().size()) return corrupt("a tail of another size");
    if (!known_events_.contains(tail.slot) || !known_events_.contains(tail.sequence)) {
      return corrupt("a tail of an event that is not there");
    }
    if (tail.position < kBlockTokens) return tail;
    const auto end = keys_.find(tail.chain_key);
    if (end == keys_.end() || std::int64_t{end->second.depth} + 1 != tail.position / kBlockTokens) {
      return corrupt("a tail without its blocks");
    }
    return tail;
  }

  Status check_end() const {
    if (record_.head_sequence != *known_events_.rbegin())
      return corrupt("its log ends before its head");
    return {};
  }

  // Checks the block's place in its chain and gives it its key in this store.
  Result<BlockDescriptor> rekey(const Frame& frame) {
    CAIRN_ASSIGN_OR_RETURN(BlockDescriptor block, decode_block_descriptor(frame.content));
    if (block.tokens.size() != kBlockTokens || block.payload_bytes != frame.payload().size()) {
      return corrupt("a block of another size");
    }
    if (block_key(block.parent, block.provenance, block.tokens) != block.key) {
      return corrupt("the block's key is not that of its tokens");
    }
    const auto parent = keys_.find(block.parent);
    const bool first = block.depth == 0 && block.parent == file_root_;
    const bool next = parent != keys_.end() && parent->second.depth + 1 == block.depth;
    if (!first && !next) return corrupt("a block that follows none before it");
    const BlockKey old_key = block.key;
    block.parent = first ? root_ : parent->second.key;
    block.key = block_key(block.parent, block.provenance, block.tokens);
    if (!keys_.emplace(old_key, Rekeyed{block.key, block.depth}).second) {
      return corrupt("a block that was there before");
    }
    return block;
  }

  // -- into the store --

  Status take(Frame& frame, AdoptedSession& session) {
    if (frame.kind == FrameKind::kBlock) return take_block(std::move(frame));
    if (frame.kind == FrameKind::kEvent) events_.push_back(std::move(frame.content));
    if (frame.kind == FrameKind::kTail) return take_tail(std::move(frame));
    if (frame.kind != FrameKind::kEnd) return {};
    CAIRN_RETURN_IF_ERROR(write_blocks());
    for (const std::string& content : events_) {
      CAIRN_ASSIGN_OR_RETURN(EncodedEvent rekeyed, rekey_event(content));
      session.events.push_back(std::move(rekeyed));
    }
    return {};
  }

  Status take_block(Frame frame) {
    CAIRN_ASSIGN_OR_RETURN(BlockDescriptor block, rekey(frame));
    n_waiting_bytes_ += frame.value.size();
    waiting_.push_back({std::move(block), std::move(frame)});
    return n_waiting_bytes_ >= kBlockBatchBytes ? write_blocks() : Status();
  }

  Status write_blocks() {
    std::vector<NewBlock> blocks;
    for (const auto& [block, frame] : waiting_) {
      // Until the session names them, only this keeps the collector from them.
      held_.emplace_back(store_.blocks()).set(block.key);
      blocks.push_back({.key = block.key,
                        .parent = block.parent,
                        .provenance = block.provenance,
                        .depth = block.depth,
                        .tokens = block.tokens,
                        .payload = frame.payload()});
    }
    CAIRN_RETURN_IF_ERROR(store_.add_blocks(record_.kv_namespace, blocks));
    waiting_.clear();
    n_waiting_bytes_ = 0;
    return {};
  }

  Status take_tail(Frame frame) {
    CAIRN_ASSIGN_OR_RETURN(const TailRecord record, check_tail(frame));
    n_tail_bytes_ += frame.value.size();
    if (n_tail_bytes_ > kTailBytesMax) return {};
    NewTail tail = {.slot = record.slot, .position = record.position, .sequence = record.sequence};
    tail.chain_key = record.position < kBlockTokens ? root_ : keys_.at(record.chain_key).key;
    tails_.push_back({tail, std::move(frame)});
    return {};
  }

  // An event of a kind that is not known here stays as it is.
  Result<EncodedEvent> rekey_event(const std::string& content) {
    CAIRN_ASSIGN_OR_RETURN(LogEvent event, decode_event(content));
    if (std::holds_alternative<UnknownEvent>(event.body)) {
      return EncodedEvent{event.sequence, content};
    }
    visit_chains(event, [&](BlockKey& key, std::uint32_t& n_blocks) { set_chain(key, n_blocks); });
    CAIRN_ASSIGN_OR_RETURN(std::string rekeyed, encode(event));
    return EncodedEvent{event.sequence, std::move(rekeyed)};
  }

  // The chain's end in this store; no chain where the file lacks it.
  void set_chain(BlockKey& key, std::uint32_t& n_blocks) const {
    if (n_blocks == 0) return;
    const auto found = keys_.find(key);
    const bool whole = found != keys_.end() && found->second.depth + 1 == n_blocks;
    key = whole ? found->second.key : BlockKey{};
    if (!whole) n_blocks = 0;
  }

  SessionStore& store_;
  const std::string path_;
  SessionRecord record_;
  std::uint32_t kv_format_version_ = 0;
  BlockKey file_root_{}, root_{};  // of the chains in the file, and in the store
  std::unordered_map<BlockKey, Rekeyed, BlockKeyHash> keys_;  // by the key in the file
  std::set<std::uint64_t> known_events_ = {0};                // and what the first ones follow
  std::size_t n_log_bytes_ = 0, n_waiting_bytes_ = 0, n_tail_bytes_ = 0;

  std::vector<std::string> events_;
  std::vector<std::pair<BlockDescriptor, Frame>> waiting_;  // blocks to write
  std::deque<BlockStore::Hold> held_;
  std::vector<TakenTail> tails_;
};

}  // namespace

Result<SessionRecord> import_session(SessionStore& store, const std::string& file,
                                     const std::string& name) {
  Import import(store, file);
  CAIRN_RETURN_IF_ERROR(import.check());
  return import.write(name);
}

}  // namespace cairn::session
