// The only file that includes RocksDB.
//
// The options follow one idea: use the smallest and most travelled part of RocksDB 7.8.3, because
// several corners of it lose or mix data and were repaired later. So: no BlobDB, no compressed or
// recycled write-ahead log, no manual log flush, no write without the log, no memory-mapped reads,
// no automatic resume after an error, all column families flushed at one instant (a log file lives
// until every family with data in it has flushed), options fixed at open.
//
// Values carry their own checksums and, where it pays, their own compression, so RocksDB does
// neither beyond its table checksums.
#include "session/rocksdb_storage.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "session/file_descriptor.h"

namespace cairn::session {
namespace {

constexpr std::array<const char*, kFamilyCount> kFamilyNames = {
    "default", "sessions", "events", "block_index", "blocks", "tail_index", "tails"};

constexpr std::size_t kMiB = 1 << 20;
// A block is 114 KB: about 140 blocks fill a memtable, and a crash replays at most 32 MiB of log.
constexpr std::size_t kPayloadBufferBytes = 16 * kMiB;
constexpr std::size_t kRecordBufferBytes = 4 * kMiB;
constexpr std::size_t kWalBytesMax = 32 * kMiB;
constexpr std::size_t kCacheBytes = 16 * kMiB;
constexpr std::int64_t kMessageBytes = 1 * kMiB;

// Above this a batch counts as payload and must leave more room.
constexpr std::int64_t kSmallBatchBytes = 64 << 10;

constexpr const char* kReopenHint = "close the store and open it again";

bool holds_payloads(Family family) { return family == Family::kBlocks || family == Family::kTails; }

// Runs a call into RocksDB; what it throws becomes a Status.
template <class Call>
auto guarded(const char* what, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, std::string("store: ") + what + ": out of memory");
  } catch (const std::exception& e) {
    return internal_error(std::string("store: ") + what + ": " + e.what());
  }
}

StatusCode code_of(const rocksdb::Status& status) {
  if (status.IsNotFound()) return StatusCode::kNotFound;
  if (status.IsCorruption()) return StatusCode::kCorrupt;
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kNoSpace ||
      status.subcode() == rocksdb::Status::kSpaceLimit) {
    return StatusCode::kOutOfDisk;
  }
  if (status.IsMemoryLimit()) return StatusCode::kOutOfMemory;
  if (status.IsNotSupported()) return StatusCode::kUnsupported;
  if (status.IsBusy() || status.IsTryAgain()) return StatusCode::kBusy;
  if (status.IsIOError() || status.IsShutdownInProgress() || status.IsAborted()) {
    return StatusCode::kIoError;
  }
  return StatusCode::kInternal;
}

Status to_status(const rocksdb::Status& status, const std::string& what, const char* hint = "") {
  if (status.ok()) return {};
  return {code_of(status), "store: " + what + ": " + status.ToString(), hint};
}

// Keeps the first error of RocksDB's background work and forbids its attempts to resume.
class ErrorLatch : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override {
    latch(to_status(*error, "background work", kReopenHint));
  }
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  void latch(const Status& error) {
    const std::lock_guard lock(mutex_);
    if (first_.ok()) first_ = error;
  }
  Status first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  Status first_;
};

// RocksDB's messages, in two files of bounded size beside the tables. RocksDB's own logger must not
// be used: the distribution builds it with assertions, and one of them ends the process at the
// first message after a failed one, which is what a full disk brings. Here a message that cannot be
// written is lost.
class MessageLog : public rocksdb::Logger {
 public:
  explicit MessageLog(const std::string& directory)
      : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {
    const std::string path = directory + "/MESSAGES";
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0 && info.st_size > kMessageBytes / 2) {
      (void)rename(path.c_str(), (path + ".old").c_str());
    }
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (fstat(file_.get(), &info) == 0) n_bytes_ = info.st_size;
  }

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::array<char, 1024> line;
    const std::time_t now = std::time(nullptr);
    std::tm utc = {};
    gmtime_r(&now, &utc);
    std::size_t n = std::strftime(line.data(), line.size(), "%FT%TZ ", &utc);
    std::vsnprintf(line.data() + n, line.size() - n, format, arguments);
    n = std::char_traits<char>::length(line.data());
    line[std::min(n, line.size() - 1)] = '\n';
    write_line({line.data(), std::min(n + 1, line.size())});
  }

 private:
  void write_line(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (!file_.ok() || n_bytes_ >= kMessageBytes) return;
    const ssize_t n = ::write(file_.get(), line.data(), line.size());
    if (n > 0) n_bytes_ += n;
  }

  std::mutex mutex_;
  FileDescriptor file_;
  std::int64_t n_bytes_ = 0;
};

rocksdb::DBOptions database_options(const RocksdbOptions& options, const std::string& directory,
                                    std::shared_ptr<ErrorLatch> latch) {
  rocksdb::DBOptions db;
  db.create_if_missing = options.create_if_missing;
  db.create_missing_column_families = true;
  db.paranoid_checks = true;
  db.verify_sst_unique_id_in_manifest = true;
  db.listeners.push_back(std::move(latch));

  // The log. Growing a file is faster than fallocate here, and an empty store stays small.
  db.max_total_wal_size = kWalBytesMax;
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.wal_compression = rocksdb::kNoCompression;
  db.recycle_log_file_num = 0;
  db.manual_wal_flush = false;
  db.track_and_verify_wals_in_manifest = false;
  db.allow_fallocate = false;

  // Background work: one flush and one compaction at a time, no resume.
  db.atomic_flush = true;
  db.max_background_jobs = 2;
  db.max_bgerror_resume_count = 0;
  db.bytes_per_sync = 1 * kMiB;
  db.allow_mmap_reads = false;
  db.allow_mmap_writes = false;
  db.max_open_files = -1;
  // A session's blocks lie beside each other: with the kernel's read-ahead they come from a cold
  // disk at about 700 MB/s instead of 310 (784 blocks one by one, medians).
  db.advise_random_on_open = false;

  // Nothing is printed.
  db.info_log = std::make_shared<MessageLog>(directory);
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  return db;
}

rocksdb::ColumnFamilyOptions family_options(bool payloads,
                                            const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  table.block_size = 16 << 10;
  table.block_cache = cache;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));

  rocksdb::ColumnFamilyOptions family;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  family.compression = rocksdb::kNoCompression;
  family.bottommost_compression = rocksdb::kDisableCompressionOption;
  family.write_buffer_size = payloads ? kPayloadBufferBytes : kRecordBufferBytes;
  family.max_write_buffer_number = 2;
  family.force_consistency_checks = true;
  return family;
}

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

class RocksdbStorage final : public Storage {
 public:
  RocksdbStorage(std::string directory, std::int64_t free_bytes_kept, Database database,
                 std::shared_ptr<ErrorLatch> latch)
      : directory_(std::move(directory)),
        free_bytes_kept_(free_bytes_kept),
        database_(std::move(database)),
        latch_(std::move(latch)) {}
  ~RocksdbStorage() override { close(); }

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
      CAIRN_RETURN_IF_ERROR(latch_->first());
      CAIRN_RETURN_IF_ERROR(check_space(batch.n_bytes()));
      rocksdb::WriteBatch package_batch(static_cast<std::size_t>(batch.n_bytes()) +
                                        32 * batch.changes().size() + 16);
      for (const WriteBatch::Change& change : batch.changes()) {
        const rocksdb::Status added = add(change, package_batch);
        if (!added.ok()) return to_status(added, "write");
      }
      rocksdb::WriteOptions options;
      options.sync = durability == Durability::kSynced;
      return latched(database_.db->Write(options, &package_batch), "write");
    });
  }

  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    return guarded("reclaim", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(latch_->first());
      const rocksdb::Slice begin = slice_of(first), end = slice_of(last);
      return latched(database_.db->CompactRange(rocksdb::CompactRangeOptions(),
                                                database_.handle(family), &begin, &end),
                     "reclaim");
    });
  }

  std::int64_t table_bytes(Family family) const override {
    std::uint64_t n_bytes = 0;
    (void)database_.db->GetIntProperty(database_.handle(family),
                                       rocksdb::DB::Properties::kTotalSstFilesSize, &n_bytes);
    return static_cast<std::int64_t>(n_bytes);
  }

  std::int64_t bytes_written() const override { return 0; }

  Status flush() override {
    return guarded("flush", [&]() -> Status {
      CAIRN_RETURN_IF_ERROR(latch_->first());
      return latched(database_.db->Flush(rocksdb::FlushOptions(), database_.handles), "flush");
    });
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

  rocksdb::Status add(const WriteBatch::Change& change, rocksdb::WriteBatch& batch) const {
    rocksdb::ColumnFamilyHandle* const handle = database_.handle(change.family);
    const rocksdb::Slice key = slice_of(change.key);
    if (change.remove) return batch.Delete(handle, key);
    const std::array<rocksdb::Slice, 2> value = {slice_of(change.head), slice_of(change.body)};
    return batch.Put(handle, rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(value.data(), 2));
  }

  Status latched(const rocksdb::Status& status, const char* what) {
    if (status.ok()) return {};
    const Status error = to_status(status, what, kReopenHint);
    latch_->latch(error);
    return error;
  }

  // Flushing leaves the next open nothing to replay. Errors are of no use to anyone here: what was
  // acknowledged is in the log.
  void close() {
    (void)flush();
    (void)guarded("close", [&]() -> Status {
      for (rocksdb::ColumnFamilyHandle* handle : database_.handles) {
        database_.db->DestroyColumnFamilyHandle(handle);
      }
      return to_status(database_.db->Close(), "close");
    });
  }

  std::string directory_;
  std::int64_t free_bytes_kept_;
  Database database_;
  std::shared_ptr<ErrorLatch> latch_;
};

// Our families in the order of Family, then those that a later version may have added: RocksDB
// opens all or none, and the header that refuses the version is read after opening.
std::vector<rocksdb::ColumnFamilyDescriptor> descriptors(const std::string& directory,
                                                         const rocksdb::DBOptions& options) {
  const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(kCacheBytes);
  std::vector<rocksdb::ColumnFamilyDescriptor> all;
  for (int i = 0; i < kFamilyCount; ++i) {
    all.emplace_back(kFamilyNames[static_cast<std::size_t>(i)],
                     family_options(holds_payloads(static_cast<Family>(i)), cache));
  }
  std::vector<std::string> existing;
  if (!rocksdb::DB::ListColumnFamilies(options, directory, &existing).ok()) return all;
  for (const std::string& name : existing) {
    if (std::find(kFamilyNames.begin(), kFamilyNames.end(), name) != kFamilyNames.end()) continue;
    all.emplace_back(name, family_options(false, cache));
  }
  return all;
}

Status open_error(const rocksdb::Status& status, const std::string& directory) {
  const std::string text = status.ToString();
  if (status.IsIOError() && text.find("lock") != std::string::npos) {
    return {StatusCode::kBusy, "store: open " + directory + ": " + text};
  }
  if (status.IsInvalidArgument() && text.find("create_if_missing") != std::string::npos) {
    return {StatusCode::kNotFound, "store: no database in " + directory};
  }
  if (status.IsInvalidArgument()) return corrupt("store: open " + directory + ": " + text);
  return to_status(status, "open " + directory,
                   status.IsCorruption() ? "restore the store's directory from a copy" : "");
}

}  // namespace

Result<std::unique_ptr<Storage>> open_rocksdb_storage(const std::string& directory,
                                                      const RocksdbOptions& options) {
  return guarded("open", [&]() -> Result<std::unique_ptr<Storage>> {
    // RocksDB would make the directory after its logger is opened in it. Errors show at its open.
    if (options.create_if_missing) (void)mkdir(directory.c_str(), 0700);
    auto latch = std::make_shared<ErrorLatch>();
    const rocksdb::DBOptions db_options = database_options(options, directory, latch);
    Database database;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(
        db_options, directory, descriptors(directory, db_options), &database.handles, &db);
    if (!status.ok()) return open_error(status, directory);
    database.db.reset(db);
    return std::unique_ptr<Storage>(std::make_unique<RocksdbStorage>(
        directory, options.free_bytes_kept, std::move(database), std::move(latch)));
  });
}

}  // namespace cairn::session
