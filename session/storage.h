// The seam under the durable store: an ordered key-value store with atomic, syncable batches over a
// few named families. RocksDB is behind it (rocksdb_storage.h); tests put failing and counting
// storages in front of it.
#ifndef CAIRN_SESSION_STORAGE_H_
#define CAIRN_SESSION_STORAGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::session {

// The families of keys. Numbers are on disk (they seed checksums): append only. FORMAT.md
// section 2 says what each holds.
enum class Family : std::uint8_t {
  kMeta = 0,
  kSessions = 1,
  kEvents = 2,
  kBlockIndex = 3,
  kBlocks = 4,
  kTailIndex = 5,
  kTails = 6,
};
inline constexpr int kFamilyCount = 7;

// What a batch does when `Storage::write` returns.
enum class Durability : std::int32_t {
  kBuffered = 0,  // survives the death of the process, not of the machine
  kSynced = 1,    // survives both, and so does everything written before it
};

// Bulk changes of a batch that are smaller in all go through the log: a table of their own would
// cost more syncs than they have bytes.
inline constexpr std::int64_t kBulkBytesMin = 256 << 10;

// Changes that happen together or not at all. Confined to one thread.
class WriteBatch {
 public:
  struct Change {
    Family family;
    bool remove;
    bool bulk;
    std::string key;
    std::string head;                 // the value is head followed by body
    std::span<const std::byte> body;  // borrowed until the batch is written
  };

  void put(Family family, std::string key, std::string head, std::span<const std::byte> body = {}) {
    add({family, false, false, std::move(key), std::move(head), body});
  }
  // Like put, for large values under keys that are above every key their family ever had. The
  // storage may write them past its log: they are then there, durable, before the rest of the batch
  // is, and may stay without it after a failure. So nothing may depend on them but what the rest
  // of the batch says.
  void put_bulk(Family family, std::string key, std::string head, std::span<const std::byte> body) {
    add({family, false, true, std::move(key), std::move(head), body});
  }
  void remove(Family family, std::string key) {
    add({family, true, false, std::move(key), {}, {}});
  }
  // Adds a change of another batch. Its body stays borrowed.
  void add(Change change) {
    n_bytes_ += bytes_of(change);
    if (change.bulk) bulk_bytes_ += bytes_of(change);
    changes_.push_back(std::move(change));
  }

  bool empty() const { return changes_.empty(); }
  std::int64_t n_bytes() const { return n_bytes_; }        // of keys and values
  std::int64_t bulk_bytes() const { return bulk_bytes_; }  // of those, by put_bulk
  const std::vector<Change>& changes() const { return changes_; }

 private:
  static std::int64_t bytes_of(const Change& change) {
    return static_cast<std::int64_t>(change.key.size() + change.head.size() + change.body.size());
  }

  std::vector<Change> changes_;
  std::int64_t n_bytes_ = 0, bulk_bytes_ = 0;
};

struct KeyRange {
  std::string first, last;  // both inclusive
};

// Safe from any thread. Every call may block on the disk. All fail with kIoError, kCorrupt (the
// package's own checks failed) or kOutOfMemory, besides what they name.
class Storage {
 public:
  // Looks at one pair of a scan; both views die when it returns. False ends the scan.
  using Visitor = std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~Storage() = default;

  // kNotFound where there is none.
  virtual Result<std::string> get(Family family, std::string_view key) = 0;

  // One entry for each key, in their order; empty where there is none.
  virtual Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) = 0;

  // Looks at the pair of each key in the order of `keys`, without copying values; `visit` gets the
  // position in `keys`, and nothing where there is no such key. False ends the reading.
  using KeyVisitor = std::function<bool(std::size_t i, std::optional<std::string_view> value)>;
  virtual Status view(Family family, std::span<const std::string> keys,
                      const KeyVisitor& visit) = 0;

  // Visits the keys that begin with `prefix` and are not below `first`, ascending, as of one
  // instant.
  virtual Status scan(Family family, std::string_view prefix, std::string_view first,
                      const Visitor& visit) = 0;

  // Atomic. kOutOfDisk with nothing changed where the disk is nearly full; later writes may
  // succeed. After any other error the batch is in the store whole or not at all, which of the two
  // is known after the next open, and every further write fails in the same way: what the package
  // does after a failed write is not relied on.
  virtual Status write(const WriteBatch& batch, Durability durability) = 0;

  // Moves everything written into tables, all families at one instant. Fails like write.
  virtual Status flush() = 0;

  // Gives the disk space of removed keys between `first` and `last` (inclusive) back by rewriting
  // what lives between them; keys outside are not touched. May take seconds; other calls go on.
  virtual Status reclaim(Family family, std::string_view first, std::string_view last) = 0;

  // Forgets whole tables: everything between two keys (inclusive) is of no use any more, by the
  // word of the caller, whether it was removed or not. Tables that lie within one range are gone
  // when this returns, at no cost; keys of a table that also holds others stay as they are.
  virtual Status drop_tables(Family family, std::span<const KeyRange> ranges) = 0;

  // Allocated by the tables of a family, removed keys included that nothing reclaimed yet.
  virtual std::int64_t table_bytes(Family family) const = 0;

  // Written by this storage since it was opened: log, tables and what rewriting them took.
  virtual std::int64_t bytes_written() const = 0;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORAGE_H_
