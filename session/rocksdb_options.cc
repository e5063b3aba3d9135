// The options follow one idea: use the smallest and most travelled part of RocksDB 7.8.3, because
// several corners of it lose or mix data and were repaired later. So: no BlobDB, no compressed or
// recycled write-ahead log, no manual log flush, no write without the log but whole tables
// (rocksdb_ingestion.cc), no memory-mapped reads, no automatic resume after an error, all column
// families flushed at one instant (a log file lives until every family with data in it has
// flushed), options fixed at open.
//
// Values carry their own checksums and, where it pays, their own compression, so RocksDB does
// neither beyond its table checksums.
#include "session/rocksdb_options.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "session/file_descriptor.h"
#include "session/rocksdb_files.h"

namespace cairn::session {
namespace {

constexpr std::size_t kMiB = 1 << 20;
// Large payloads do not go through the log: what does are records, and blocks of tiny models. A
// crash replays at most 8 MiB.
constexpr std::size_t kBufferBytes = 4 * kMiB;
constexpr std::size_t kWalBytesMax = 8 * kMiB;
constexpr std::size_t kCacheBytes = 16 * kMiB;
constexpr std::int64_t kMessageBytes = 1 * kMiB;
// A commit makes up to two tables, so a store has thousands. Those above the limit are opened when
// they are read; at open only the first few of a family are, whatever their number.
constexpr int kOpenFilesMax = 256;

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

rocksdb::ColumnFamilyOptions family_options(bool payloads,
                                            const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  table.block_size = 16 << 10;
  table.block_cache = cache;
  // Payloads are looked up by numbers that an index gave, in tables that do not overlap.
  if (!payloads) table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));

  rocksdb::ColumnFamilyOptions family;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  family.compression = rocksdb::kNoCompression;
  family.bottommost_compression = rocksdb::kDisableCompressionOption;
  family.write_buffer_size = kBufferBytes;
  family.max_write_buffer_number = 2;
  family.force_consistency_checks = true;
  if (payloads) {
    // Small pieces: what is rewritten to give space back is there twice for a while.
    family.target_file_size_base = 2 * kMiB;
    family.max_compaction_bytes = 16 * kMiB;
    family.level0_file_num_compaction_trigger = 2;
  }
  // Nothing is rewritten because of its age.
  family.ttl = 0;
  family.periodic_compaction_seconds = 0;
  return family;
}

}  // namespace

rocksdb::DBOptions database_options(const std::string& directory) {
  rocksdb::DBOptions db;
  db.env = database_env();
  db.create_missing_column_families = true;
  db.paranoid_checks = true;
  db.verify_sst_unique_id_in_manifest = true;

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
  db.max_open_files = kOpenFilesMax;
  // The few tables that are opened at open take less time than threads for each family.
  db.max_file_opening_threads = 1;
  db.skip_stats_update_on_db_open = true;
  // A session's blocks lie beside each other: let the kernel read ahead.
  db.advise_random_on_open = false;

  // Nothing is printed.
  db.info_log = std::make_shared<MessageLog>(directory);
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  return db;
}

std::vector<rocksdb::ColumnFamilyDescriptor> family_descriptors(const std::string& directory,
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

}  // namespace cairn::session
