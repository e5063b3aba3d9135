#include "session/session_export.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "session/block_graph.h"
#include "session/sealed_value.h"
#include "session/session_file.h"
#include "session/session_log.h"
#include "session/storage_key.h"
#include "session/stored_records.h"
#include "session/turn_tails.h"

namespace cairn::session {
namespace {

class Export {
 public:
  Export(Storage& storage, SessionRecord record, SessionFileWriter& file)
      : storage_(storage), record_(std::move(record)), file_(file) {}

  Status run() {
    CAIRN_RETURN_IF_ERROR(with_subject(subject_of(record_.id),
                                       file_.add_record(FrameKind::kSession, encode(record_))));
    CAIRN_RETURN_IF_ERROR(add_namespace());
    CAIRN_RETURN_IF_ERROR(add_log());
    CAIRN_RETURN_IF_ERROR(find_tails());
    CAIRN_RETURN_IF_ERROR(add_blocks());
    return add_tails();
  }

 private:
  // The root that the keys of the file's blocks begin with. Not what it is made of: an encrypted
  // store's salt is a secret.
  Status add_namespace() {
    KvNamespace kv_namespace;
    CAIRN_RETURN_IF_ERROR(storage_.scan(
        Family::kMeta, kNamespacePrefix, kNamespacePrefix,
        [&](std::string_view key, std::string_view value) {
          const Result<std::string> content = unseal_record(Family::kMeta, key, value);
          if (!content.ok()) return true;  // without a namespace there are no blocks to export
          const Result<NamespaceRecord> found = decode_namespace_record(*content);
          if (found.ok() && found->number == record_.kv_namespace) {
            kv_namespace = found->kv_namespace;
          }
          return true;
        }));
    root_ = root_key(kv_namespace);
    std::string content;
    append_little_endian32(kv_namespace.kv_format_version, content);
    content.append(root_.begin(), root_.end());
    return file_.add_record(FrameKind::kNamespace, content);
  }

  Status add_log() {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<LogPart> parts, log_parts(storage_, record_));
    CAIRN_ASSIGN_OR_RETURN(const std::set<std::uint64_t> inherited, inherited_events());
    for (const LogPart& part : parts) {
      if (part.first > part.last) continue;
      Status status;
      CAIRN_RETURN_IF_ERROR(storage_.scan(
          Family::kEvents, session_key(part.session), event_key(part.session, part.first),
          [&](std::string_view key, std::string_view value) {
            const std::optional<std::uint64_t> sequence = parse_event_sequence(key);
            if (!sequence || *sequence > part.last) return false;
            const bool wanted = part.session == record_.id || inherited.contains(*sequence);
            if (wanted) status = add_event(key, value);
            return status.ok();
          }));
      CAIRN_RETURN_IF_ERROR(with_subject(subject_of(part.session), status));
    }
    if (*events_.rbegin() != record_.head_sequence) {
      return corrupt(subject_of(record_.id) + ": its log ends before its head");
    }
    return {};
  }

  // Those that lead to where the session forked: what is beside them is not its own.
  Result<std::set<std::uint64_t>> inherited_events() const {
    std::set<std::uint64_t> events;
    if (!record_.origin) return events;
    CAIRN_ASSIGN_OR_RETURN(const SessionLog log, SessionLog::open(storage_, record_));
    CAIRN_RETURN_IF_ERROR(log.visit_path(record_.origin_sequence,
                                         [&](LogEvent&& event) { events.insert(event.sequence); }));
    return events;
  }

  // The event as it is stored: one of a kind that this build does not know goes along.
  Status add_event(std::string_view key, std::string_view value) {
    CAIRN_ASSIGN_OR_RETURN(LogEvent event, decode_log_entry(key, value));
    if (!events_.contains(event.parent)) {
      return corrupt("event " + std::to_string(event.parent) + " is missing");
    }
    events_.insert(event.sequence);
    visit_chains(event,
                 [&](const BlockKey& end, std::uint32_t n_blocks) { add_end(end, n_blocks); });
    CAIRN_ASSIGN_OR_RETURN(const std::string content, unseal_record(Family::kEvents, key, value));
    return file_.add_record(FrameKind::kEvent, content);
  }

  void add_end(const BlockKey& key, std::uint32_t n_blocks) {
    if (n_blocks > 0 && seen_ends_.insert(key).second) ends_.push_back(key);
  }

  Status find_tails() {
    add_end(record_.chain_key, record_.stored_blocks);
    const std::string prefix = session_key(record_.id);
    return storage_.scan(Family::kTailIndex, prefix, prefix,
                         [&](std::string_view key, std::string_view value) {
                           const Result<TailRecord> tail = decode_tail_entry(key, value);
                           if (!tail.ok() || !events_.contains(tail->sequence)) return true;
                           if (is_turn_tail(*tail)) return true;
                           tails_.push_back(*tail);
                           if (tail->position >= kBlockTokens) add_end(tail->chain_key, 1);
                           return true;
                         });
  }

  Status add_blocks() {
    CAIRN_ASSIGN_OR_RETURN(const BlockGraph graph, BlockGraph::read(storage_));
    std::vector<BlockKey> wanted;
    BlockKeySet seen;
    for (const BlockKey& end : ends_) {
      const std::optional<std::vector<BlockKey>> chain = graph.chain(end);
      if (!chain || graph.find(chain->front())->parent != root_) continue;
      for (const BlockKey& key : *chain) {
        if (seen.insert(key).second) wanted.push_back(key);
      }
    }
    // Parents before children, and in the order of the disk within a depth.
    std::ranges::sort(wanted, {}, [&](const BlockKey& key) {
      const BlockRecord& record = *graph.find(key);
      return std::pair(record.depth, record.number);
    });
    for (const BlockKey& key : wanted) {
      const BlockRecord& record = *graph.find(key);
      if (record.depth > 0 && !exported_.contains(record.parent)) continue;
      CAIRN_RETURN_IF_ERROR(add_block(key, record));
    }
    return {};
  }

  // A block that does not check is left out, and with it those after it.
  Status add_block(const BlockKey& key, const BlockRecord& record) {
    const std::string value_key = block_number_key(record.kv_namespace, record.number);
    const Result<std::string> value = storage_.get(Family::kBlocks, value_key);
    if (!value.ok()) return unless_lost(value.status());
    const Result<PayloadView> view = unseal_payload(Family::kBlocks, value_key, *value);
    if (!view.ok()) return unless_lost(view.status());
    const Result<BlockDescriptor> block = decode_block_descriptor(view->descriptor);
    if (!block.ok()) return unless_lost(block.status());
    if (block->key != key || block->parent != record.parent || block->depth != record.depth ||
        block->payload_bytes != view->payload.size()) {
      return {};
    }
    exported_.insert(key);
    return file_.add_payload(FrameKind::kBlock, view->descriptor,
                             std::as_bytes(std::span(view->payload.data(), view->payload.size())));
  }

  Status add_tails() {
    for (const TailRecord& tail : tails_) {
      if (tail.position >= kBlockTokens && !exported_.contains(tail.chain_key)) continue;
      CAIRN_RETURN_IF_ERROR(add_tail(tail));
    }
    return {};
  }

  Status add_tail(const TailRecord& tail) {
    const std::string value_key =
        tail.number == 0 ? tail_key(tail.session, tail.slot) : tail_number_key(tail.number);
    const Result<std::string> value = storage_.get(Family::kTails, value_key);
    if (!value.ok()) return unless_lost(value.status());
    const Result<PayloadView> view = unseal_payload(Family::kTails, value_key, *value);
    if (!view.ok()) return unless_lost(view.status());
    if (tail.payload_bytes != view->payload.size()) return {};
    return file_.add_payload(FrameKind::kTail, encode(tail),
                             std::as_bytes(std::span(view->payload.data(), view->payload.size())));
  }

  // Blocks and tails are a cache: what is missing or damaged does not stop the export.
  static Status unless_lost(const Status& status) {
    const bool lost =
        status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorrupt;
    return lost ? Status() : status;
  }

  Storage& storage_;
  const SessionRecord record_;
  SessionFileWriter& file_;
  BlockKey root_{};
  std::set<std::uint64_t> events_ = {0};  // exported, and what the first ones follow
  std::vector<BlockKey> ends_;            // of chains to export
  BlockKeySet seen_ends_;
  std::vector<TailRecord> tails_;
  BlockKeySet exported_;
};

}  // namespace

Status export_session(Storage& storage, const std::string& name, const std::string& file) {
  CAIRN_ASSIGN_OR_RETURN(SessionRecord record, find_session(storage, name));
  CAIRN_ASSIGN_OR_RETURN(SessionFileWriter writer, SessionFileWriter::create(file));
  CAIRN_RETURN_IF_ERROR(Export(storage, std::move(record), writer).run());
  return writer.finish();
}

}  // namespace cairn::session
