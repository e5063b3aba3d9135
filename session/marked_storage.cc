// Every merged batch carries its number, under the meta key "commit", so number and content are
// there together or not at all. The mark is written twice for each: before, with what may come to
// be there, and after, with what is. A process can die anywhere in between and the next open still
// knows which numbers are possible; a database below the acknowledged one has lost something.
//
// After a power cut the newest buffered batches may be gone, rightly: then only the synced number
// counts. Where the numbers agree, the digest of the sessions family must too: the number lives in
// one table, and damage can take another.
#include "session/marked_storage.h"

#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "session/records.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

StateDigest digest_of(std::string_view key, std::string_view head,
                      std::span<const std::byte> body) {
  std::string bytes;
  append_little_endian64(key.size(), bytes);
  bytes.append(key).append(head);
  bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

// The digest of the sessions family, kept up to date batch by batch.
class SessionsDigest {
 public:
  using Pairs = std::map<std::string, StateDigest, std::less<>>;  // of a key; zero = removed

  static Result<SessionsDigest> of(Storage& storage) {
    SessionsDigest digest;
    const auto add = [&](std::string_view key, std::string_view value) {
      const StateDigest pair = digest_of(key, value, {});
      digest.pairs_.emplace(key, pair);
      digest.sum_ += pair;
      return true;
    };
    CAIRN_RETURN_IF_ERROR(storage.scan(Family::kSessions, "", "", add));
    return digest;
  }

  const StateDigest& sum() const { return sum_; }

  // What `batch` makes of the pairs that it names.
  static Pairs changed(const WriteBatch& batch) {
    Pairs pairs;
    for (const WriteBatch::Change& change : batch.changes()) {
      if (change.family != Family::kSessions) continue;
      pairs[change.key] =
          change.remove ? StateDigest{} : digest_of(change.key, change.head, change.body);
    }
    return pairs;
  }
  StateDigest sum_with(const Pairs& changed) const {
    StateDigest sum = sum_;
    for (const auto& [key, pair] : changed) {
      const auto before = pairs_.find(key);
      if (before != pairs_.end()) sum -= before->second;
      sum += pair;
    }
    return sum;
  }
  // Makes room for what apply() will set; a pair of zero adds nothing.
  void prepare(const Pairs& changed) {
    for (const auto& [key, pair] : changed) pairs_.try_emplace(key);
  }
  // Of prepared changes.
  void apply(const Pairs& changed) noexcept {
    sum_ = sum_with(changed);
    for (const auto& [key, pair] : changed) {
      const auto at = pairs_.find(key);
      at->second = pair;
      if (pair == StateDigest{}) pairs_.erase(at);
    }
  }

 private:
  Pairs pairs_;
  StateDigest sum_;
};

// -- comparing --

StoreRecovery rolled_back(std::uint64_t n_lost, const std::string& detail) {
  return {.rolled_back = true, .commits_lost = static_cast<std::int64_t>(n_lost), .detail = detail};
}

// `found` is the state of the database.
StoreRecovery compare(const CommitPoint& found, const MarkContent& mark) {
  const bool same_boot = mark.boot == boot_id() && mark.boot != decltype(mark.boot){};
  const std::uint64_t required = same_boot ? mark.acknowledged.number : mark.synced.number;
  if (found.number < required) {
    const std::uint64_t n_lost = mark.acknowledged.number - found.number;
    return rolled_back(n_lost,
                       "the database has lost its last " + std::to_string(n_lost) +
                           " commits: it is damaged, or an older copy was put in its place");
  }
  for (const CommitPoint& point : {mark.pending, mark.acknowledged, mark.synced}) {
    if (point.number != found.number) continue;
    if (point == found) return {};
    return rolled_back(0,
                       "the database has the right number of commits and other sessions: part of"
                       " it is lost, or it belongs to another store");
  }
  if (found.number > mark.pending.number) {
    // A power cut may take the newest, unsynced writes of the mark and leave those of the database.
    if (!same_boot) return {};
    return {.detail = "the file MARK is older than the database; the mark begins anew"};
  }
  if (found.number < mark.acknowledged.number) {
    const std::uint64_t n_lost = mark.acknowledged.number - found.number;
    return {.commits_lost = static_cast<std::int64_t>(n_lost),
            .detail = std::to_string(n_lost) +
                      " buffered commits were lost when the machine went down; none was synced"};
  }
  return {};
}

StoreRecovery compare(const CommitPoint& found, const OpenedMark& opened) {
  const CommitMark& mark = opened.mark;
  if (mark.found()) {
    StoreRecovery recovery = compare(found, *mark.found());
    if (opened.manifest_whole || recovery.rolled_back) return recovery;
    return rolled_back(0,
                       "the database's MANIFEST is damaged or an older one: tables, and with"
                       " them commits, are missing");
  }
  // Stores of format 1 have neither, nor do new ones.
  if (found.number == 0) return {};
  return {.detail = std::string("the file MARK is ") + (mark.was_empty() ? "missing" : "damaged") +
                    ": whether the database is as new as it should be is not known"};
}

Result<std::uint64_t> stored_number(Storage& storage) {
  const Result<std::string> content = get_record(storage, Family::kMeta, std::string(kCommitKey));
  if (content.status().code() == StatusCode::kNotFound) return std::uint64_t{0};
  if (!content.ok()) return content.status();
  return decode_number(*content);
}

// -- writing --

// The bulk changes of a batch, or the others.
WriteBatch part_of(const WriteBatch& batch, bool bulk) {
  WriteBatch part;
  for (const WriteBatch::Change& change : batch.changes()) {
    if (change.bulk == bulk) part.add(change);
  }
  return part;
}

class Marking final : public Storage {
 public:
  Marking(std::unique_ptr<Storage> inner, OpenedMark mark, const MarkContent& content,
          SessionsDigest digest)
      : inner_(std::move(inner)),
        mark_(std::move(mark.mark)),
        manifest_(std::move(mark.manifest)),
        content_(content),
        digest_(std::move(digest)) {}

  Result<std::string> get(Family family, std::string_view key) override {
    return inner_->get(family, key);
  }
  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    return inner_->multi_get(family, keys);
  }
  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    return inner_->view(family, keys, visit);
  }
  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    return inner_->scan(family, prefix, first, visit);
  }
  Status flush() override { return inner_->flush(); }
  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    return inner_->reclaim(family, first, last);
  }
  Status drop_tables(Family family, std::span<const KeyRange> ranges) override {
    return inner_->drop_tables(family, ranges);
  }
  std::int64_t table_bytes(Family family) const override { return inner_->table_bytes(family); }
  std::int64_t bytes_written() const override { return inner_->bytes_written(); }

  // Large payloads go to tables at once and on the caller's thread: each batch has tables of its
  // own, whose keys are beside each other. What is left waits for its turn.
  Status write(const WriteBatch& batch, Durability durability) override {
    if (batch.bulk_bytes() < kBulkBytesMin) return commit(batch, durability);
    CAIRN_RETURN_IF_ERROR(inner_->write(part_of(batch, true), Durability::kBuffered));
    return commit(part_of(batch, false), durability);
  }

 private:
  // A batch that waits, on the stack of its thread.
  struct Waiting {
    const WriteBatch& batch;
    Durability durability;
    Status status = {};
    bool done = false;
  };

  // The first in the queue writes everything that waits by then; the others sleep meanwhile.
  Status commit(const WriteBatch& batch, Durability durability) {
    Waiting self = {batch, durability};
    std::unique_lock lock(mutex_);
    queue_.push_back(&self);
    changed_.wait(lock, [&] { return self.done || (!writing_ && queue_.front() == &self); });
    if (self.done) return self.status;
    const std::vector<Waiting*> group = std::exchange(queue_, {});
    writing_ = true;
    lock.unlock();
    write_group(group);
    lock.lock();
    writing_ = false;
    for (Waiting* waiting : group) waiting->done = true;
    changed_.notify_all();
    return self.status;
  }

  void write_group(const std::vector<Waiting*>& group) noexcept {
    const Status status = write_merged(group);
    // Together they may need more room than the disk has; one alone may fit.
    const bool alone = status.code() == StatusCode::kOutOfDisk && group.size() > 1;
    for (Waiting* const& waiting : group) {
      waiting->status = alone ? write_merged({&waiting, 1}) : status;
    }
  }

  // The others of the group wait: whatever is thrown ends here.
  Status write_merged(std::span<Waiting* const> group) noexcept {
    try {
      return merge_and_write(group);
    } catch (...) {
      // Where the batch may be written and the mark does not say so, no other may follow.
      if (!handed_over_) return out_of_memory_;
      failure_ = end_unknown_;
      return failure_;
    }
  }

  Status merge_and_write(std::span<Waiting* const> group) {
    CAIRN_RETURN_IF_ERROR(failure_);
    auto durability = Durability::kBuffered;
    WriteBatch merged;
    for (const Waiting* waiting : group) {
      durability = std::max(durability, waiting->durability);
      for (WriteBatch::Change change : waiting->batch.changes()) {
        change.bulk = false;  // small ones: tables of several batches could overlap
        merged.add(std::move(change));
      }
    }
    const SessionsDigest::Pairs changed = SessionsDigest::changed(merged);
    // A number is never used again: a batch that failed may be in the database all the same.
    const CommitPoint point = {content_.pending.number + 1, digest_.sum_with(changed)};
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kMeta, std::string(kCommitKey), encode_number(point.number), merged));
    digest_.prepare(changed);
    CAIRN_RETURN_IF_ERROR(write_numbered(merged, point, durability));
    digest_.apply(changed);
    return {};
  }

  Status write_numbered(const WriteBatch& batch, const CommitPoint& point, Durability durability) {
    content_.pending = point;
    CAIRN_RETURN_IF_ERROR(write_mark(false));
    handed_over_ = true;
    const Status written = inner_->write(batch, durability);
    handed_over_ = written.ok();
    CAIRN_RETURN_IF_ERROR(written);
    content_.acknowledged = point;
    const bool synced = durability == Durability::kSynced;
    if (synced) {
      content_.synced = point;
      content_.manifest = manifest_.look();
    }
    const Status marked = write_mark(synced);
    handed_over_ = false;
    return marked;
  }

  // What is on the disk after a failed write or sync is not known: nothing more is written.
  Status write_mark(bool sync) {
    failure_ = mark_.write(content_, sync);
    return failure_;
  }

  std::unique_ptr<Storage> inner_;

  // Of the thread that writes.
  CommitMark mark_;
  ManifestWatch manifest_;
  MarkContent content_;
  SessionsDigest digest_;
  Status failure_;
  bool handed_over_ = false;  // a batch is with the database, the mark does not say yet how it went
  // Made in time: there may be no memory to say so.
  const Status out_of_memory_ = {StatusCode::kOutOfMemory, "store: out of memory in a commit",
                                 "free memory and try again"};
  const Status end_unknown_ = {StatusCode::kOutOfMemory,
                               "store: out of memory in a commit, which may be written or not",
                               "close the store and open it again"};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Waiting*> queue_;
  bool writing_ = false;
};

}  // namespace

Result<OpenedMark> open_mark(const std::string& mark_path, const std::string& database_path) {
  CAIRN_ASSIGN_OR_RETURN(CommitMark mark, CommitMark::open(mark_path));
  ManifestWatch manifest(database_path);
  const bool whole = !mark.found() || manifest.still_has(mark.found()->manifest);
  return OpenedMark{std::move(mark), std::move(manifest), whole};
}

Result<MarkedStorage> mark_storage(std::unique_ptr<Storage> inner, OpenedMark mark) {
  CAIRN_ASSIGN_OR_RETURN(const std::uint64_t number, stored_number(*inner));
  CAIRN_ASSIGN_OR_RETURN(SessionsDigest digest, SessionsDigest::of(*inner));
  const CommitPoint found = {number, digest.sum()};
  StoreRecovery recovery = compare(found, mark);
  // Opening a database moves its log into tables, so what is there is durable. The file is written
  // with the first batch: who only looks at a store changes nothing.
  const MarkContent content = {.pending = found,
                               .acknowledged = found,
                               .synced = found,
                               .manifest = mark.manifest.look(),
                               .boot = boot_id()};
  return MarkedStorage{
      std::make_unique<Marking>(std::move(inner), std::move(mark), content, std::move(digest)),
      std::move(recovery)};
}

}  // namespace cairn::session
