// Storage on an open RocksDB database. What is large and marked so goes in as whole tables
// (rocksdb_ingestion.cc), the rest of a batch through the log.
#include "session/rocksdb_storage.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "session/rocksdb_error.h"
#include "session/rocksdb_ingestion.h"
#include "session/rocksdb_options.h"

namespace cairn::session {
namespace {

// Above this a batch counts as payload and must leave more room.
constexpr std::int64_t kSmallBatchBytes = 64 << 10;

// Counts the tables that flushes and compactions write.
class TablesWritten : public rocksdb::EventListener {
 public:
  void OnTableFileCreated(const rocksdb::TableFileCreationInfo& table) override {
    sum_ += static_cast<std::int64_t>(table.file_size);
  }
  std::int64_t sum() const { return sum_.load(); }

 private:
  std::atomic<std::int64_t> sum_ = 0;
};

// The smallest string above every string that begins with `prefix`; empty = there is none.
std::string end_of_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

rocksdb::Slice slice_of(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

rocksdb::Slice slice_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view view_of(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// An open database and its column families.
struct Database {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;  // ours first, in the order of Family

  rocksdb::ColumnFamilyHandle* handle(Family family) const {
    return handles[static_cast<std::size_t>(family)];
  }
};

Status open_error(const rocksdb::Status& status, const std::string& directory) {
  const std::string text = status.ToString(), message = "store: open " + directory + ": " + text;
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (status.IsIOError() && (says("While lock file") || says("lock hold by"))) {
    return {StatusCode::kBusy, message};
  }
  if (status.IsInvalidArgument() && says("create_if_missing")) {
    return {StatusCode::kNotFound, "store: no database in " + directory};
  }
  // RocksDB's guesses where CURRENT could not be opened.
  if (status.IsInvalidArgument() && (says("Direct I/O") || says("IO error"))) {
    return {StatusCode::kIoError, message};
  }
  if (status.IsInvalidArgument()) return corrupt(message);
  return to_status(status, "open " + directory,
                   status.IsCorruption() ? "restore the store's directory from a copy" : "");
}

class RocksdbStorage final : public Storage {
 public:
  RocksdbStorage(std::string directory, std::int64_t free_bytes_kept)
      : directory_(std::move(directory)), free_bytes_kept_(free_bytes_kept) {}
  ~RocksdbStorage() override {
    if (database_.db) close();
  }

  Status open(bool create_if_missing) {
    // RocksDB would make the directory after its messages are opened in it. Errors show at its
    // open.
    if (create_if_missing) (void)mkdir(directory_.c_str(), 0700);
    rocksdb::DBOptions options = database_options(directory_);
    options.create_if_missing = create_if_missing;
    options.listeners = {latch_, tables_};
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(
        options, directory_, family_descriptors(directory_, options), &database_.handles, &db);
    if (!status.ok()) return open_error(status, directory_);
    database_.db.reset(db);
    CAIRN_ASSIGN_OR_RETURN(
        ingestion_, BulkIngestion::open(directory_ + "/ingest", *db, database_.handles, *latch_));
    return {};
  }

  // Every table is opened now: the directory may go away.
  Status open_read_only() {
    rocksdb::DBOptions options = database_options(directory_);
    options.max_open_files = -1;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(
        options, directory_, family_descriptors(directory_, options), &database_.handles, &db);
    if (!status.ok()) return open_error(status, directory_);
    database_.db.reset(db);
    return {};
  }

  Result<std::string> get(Family family, std::string_view key) override {
    return guarded("read", [&]() -> Result<std::string> {
      std::string value;
      const rocksdb::Status status =
          database_.db->Get(read_options(family), database_.handle(family), slice_of(key), &value);
      if (!status.ok()) return read_error(status);
      return value;
    });
  }

  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    using Values = std::vector<std::optional<std::string>>;
    return guarded("read", [&]() -> Result<Values> {
      std::vector<rocksdb::Slice> slices;
      slices.reserve(keys.size());
      for (const std::string& key : keys) slices.push_back(slice_of(key));
      std::vector<rocksdb::PinnableSlice> found(keys.size());
      std::vector<rocksdb::Status> statuses(keys.size());
      database_.db->MultiGet(read_options(family), database_.handle(family), keys.size(),
                             slices.data(), found.data(), statuses.data());
      Values values(keys.size());
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (statuses[i].IsNotFound()) continue;
        if (!statuses[i].ok()) return read_error(statuses[i]);
        values[i] = found[i].ToString();
      }
      return values;
    });
  }

  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    return guarded("read", [&]() -> Status {
      rocksdb::PinnableSlice value;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        value.Reset();
        const rocksdb::Status status = database_.db->Get(
            read_options(family), database_.handle(family), slice_of(keys[i]), &value);
        if (!status.ok() && !status.IsNotFound()) return read_error(status);
        const bool go_on = visit(i, status.ok() ? std::optional(view_of(value)) : std::nullopt);
        if (!go_on) return {};
      }
      return {};
    });
  }

  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    return guarded("scan", [&]() -> Status {
      const std::string end = end_of_prefix(prefix);
      const rocksdb::Slice end_slice(end);
      rocksdb::ReadOptions options = read_options(family);
      if (!end.empty()) options.iterate_upper_bound = &end_slice;
      const std::unique_ptr<rocksdb::Iterator> at(
          database_.db->NewIterator(options, database_.handle(family)));
      for (at->Seek(slice_of(std::max(prefix, first))); at->Valid(); at->Next()) {
        if (!visit(view_of(at->key()), view_of(at->value()))) return {};
      }
      return to_status(at->status(), "scan");
    });
  }

  Status write(const WriteBatch& batch, Durability durability) override {
    return guarded("write", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(check_writable());
      CAIRN_RETURN_IF_ERROR(check_space(batch.n_bytes()));
      const bool ingested = batch.bulk_bytes() >= kBulkBytesMin;
      if (ingested) CAIRN_RETURN_IF_ERROR(ingestion_->ingest(batch));
      return write_to_log(batch, ingested, durability);
    });
  }

  Status flush() override {
    return guarded("flush", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(check_writable());
      return latch_->latch(database_.db->Flush(rocksdb::FlushOptions(), database_.handles),
                           "flush");
    });
  }

  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    return guarded("reclaim", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(check_writable());
      const rocksdb::Slice begin = slice_of(first), end = slice_of(last);
      rocksdb::CompactRangeOptions options;
      // A table that is only moved down keeps its removed keys.
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
      return latch_->latch(
          database_.db->CompactRange(options, database_.handle(family), &begin, &end), "reclaim");
    });
  }

  Status drop_tables(Family family, std::span<const KeyRange> ranges) override {
    if (ranges.empty()) return {};
    return guarded("drop tables", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(latch_->first());
      std::vector<rocksdb::Slice> keys;
      keys.reserve(2 * ranges.size());
      for (const KeyRange& range : ranges) {
        keys.push_back(slice_of(range.first));
        keys.push_back(slice_of(range.last));
      }
      std::vector<rocksdb::RangePtr> pointers;
      pointers.reserve(ranges.size());
      for (std::size_t i = 0; i < keys.size(); i += 2)
        pointers.emplace_back(&keys[i], &keys[i + 1]);
      return latch_->latch(
          rocksdb::DeleteFilesInRanges(database_.db.get(), database_.handle(family),
                                       pointers.data(), pointers.size(), /*include_end=*/true),
          "drop tables");
    });
  }

  std::int64_t table_bytes(Family family) const override {
    std::uint64_t n_bytes = 0;
    (void)database_.db->GetIntProperty(database_.handle(family),
                                       rocksdb::DB::Properties::kTotalSstFilesSize, &n_bytes);
    return static_cast<std::int64_t>(n_bytes);
  }

  std::int64_t bytes_written() const override {
    return log_bytes_.load() + tables_->sum() + ingestion_->bytes_written();
  }

 private:
  // Payloads are larger than the cache has use for and are checked by their own sums.
  static rocksdb::ReadOptions read_options(Family family) {
    rocksdb::ReadOptions options;
    options.fill_cache = !holds_payloads(family);
    return options;
  }

  static Status read_error(const rocksdb::Status& status) {
    if (status.IsNotFound()) return {StatusCode::kNotFound, "store: no such key"};
    return to_status(status, "read");
  }

  // RocksDB 7.8 refuses writes to a database opened for reading itself, but waits for ever for a
  // flush that nobody does.
  Status check_writable() const {
    if (!ingestion_) return {StatusCode::kUnsupported, "store: it is open for reading only"};
    return latch_->first();
  }

  // Refusing early keeps the database healthy: after an error of its own it must be reopened.
  Status check_space(std::int64_t n_bytes) const {
    struct statvfs disk = {};
    if (free_bytes_kept_ == 0 || statvfs(directory_.c_str(), &disk) != 0) return {};
    const auto n_free = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    const std::int64_t n_kept =
        n_bytes > kSmallBatchBytes ? free_bytes_kept_ : free_bytes_kept_ / 2;
    if (n_free >= n_kept + n_bytes) return {};
    return {StatusCode::kOutOfDisk,
            "store " + directory_ + ": a write of " + std::to_string(n_bytes) + " bytes; " +
                std::to_string(n_free) + " bytes are free and " + std::to_string(n_kept) +
                " are kept free",
            "free space on this disk"};
  }

  // The changes of `batch`, without the bulk ones if those are ingested.
  Status write_to_log(const WriteBatch& batch, bool ingested, Durability durability) {
    rocksdb::WriteBatch package_batch(
        static_cast<std::size_t>(batch.n_bytes()) -
        (ingested ? static_cast<std::size_t>(batch.bulk_bytes()) : 0) +
        32 * batch.changes().size() + 16);
    for (const WriteBatch::Change& change : batch.changes()) {
      if (ingested && change.bulk) continue;
      const rocksdb::Status added = add(change, package_batch);
      if (!added.ok()) return to_status(added, "write");
    }
    // An empty batch is written for its sync alone.
    if (package_batch.Count() == 0 && durability == Durability::kBuffered) return {};
    rocksdb::WriteOptions options;
    options.sync = durability == Durability::kSynced;
    log_bytes_ += static_cast<std::int64_t>(package_batch.GetDataSize());
    return latch_->latch(database_.db->Write(options, &package_batch), "write");
  }

  rocksdb::Status add(const WriteBatch::Change& change, rocksdb::WriteBatch& batch) const {
    rocksdb::ColumnFamilyHandle* const handle = database_.handle(change.family);
    const rocksdb::Slice key = slice_of(change.key);
    if (change.remove) return batch.Delete(handle, key);
    const std::array<rocksdb::Slice, 2> value = {slice_of(change.head), slice_of(change.body)};
    return batch.Put(handle, rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(value.data(), 2));
  }

  // Flushing leaves the next open nothing to replay. Errors are of no use to anyone here: what was
  // acknowledged is in the log.
  // There may be no memory to say what goes wrong, and nobody hears it here.
  void close() noexcept {
    try {
      (void)flush();
    } catch (...) {
    }
    try {
      for (rocksdb::ColumnFamilyHandle* handle : database_.handles) {
        database_.db->DestroyColumnFamilyHandle(handle);
      }
      (void)database_.db->Close();
    } catch (...) {
    }
  }

  std::string directory_;
  std::int64_t free_bytes_kept_;
  std::shared_ptr<ErrorLatch> latch_ = std::make_shared<ErrorLatch>();
  std::shared_ptr<TablesWritten> tables_ = std::make_shared<TablesWritten>();
  std::atomic<std::int64_t> log_bytes_ = 0;
  Database database_;
  std::unique_ptr<BulkIngestion> ingestion_;  // nullptr where the database is only read
};

}  // namespace

Result<std::unique_ptr<Storage>> open_rocksdb_storage(const std::string& directory,
                                                      const RocksdbOptions& options) {
  return guarded("open", [&]() -> Result<std::unique_ptr<Storage>> {
    auto storage = std::make_unique<RocksdbStorage>(directory, options.free_bytes_kept);
    CAIRN_RETURN_IF_ERROR(storage->open(options.create_if_missing));
    return std::unique_ptr<Storage>(std::move(storage));
  });
}

Result<std::unique_ptr<Storage>> open_rocksdb_read_only(const std::string& directory) {
  return guarded("open", [&]() -> Result<std::unique_ptr<Storage>> {
    auto storage = std::make_unique<RocksdbStorage>(directory, /*free_bytes_kept=*/0);
    CAIRN_RETURN_IF_ERROR(storage->open_read_only());
    return std::unique_ptr<Storage>(std::move(storage));
  });
}

}  // namespace cairn::session
