// Three ways to make KV blocks and the index that names them durable with RocksDB: all through the
// log; blocks into tables before the commit that names them, without the log; blocks as tables that
// are ingested. Rounds alternate; each ends when the database has nothing left to do.
//
//   write_path_bench [--rounds N] [--commits N]
#include <rocksdb/db.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/measure.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr std::size_t kBlockBytes = 113'920, kBlocks = 16;  // of a commit: 2,048 tokens
constexpr std::size_t kIndexBytes = 95;
constexpr std::size_t kBufferBytes = 32 << 20;

enum Path : std::size_t { kLog, kFlushed, kIngested, kPathCount };
constexpr std::array<const char*, kPathCount> kNames = {"log", "flushed", "ingested"};

void check(const rocksdb::Status& status) {
  if (!status.ok()) bench::check({StatusCode::kIoError, status.ToString()});
}

rocksdb::Options options() {
  rocksdb::BlockBasedTableOptions table;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = kBufferBytes;
  options.max_background_jobs = 2;
  options.bytes_per_sync = 1 << 20;
  options.allow_fallocate = false;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

std::string big_endian(std::uint64_t number) {
  std::string key(8, '\0');
  for (std::size_t i = 8; i-- > 0; number >>= 8) key[i] = static_cast<char>(number);
  return key;
}

// A database that is written to in one of the ways.
class Database {
 public:
  Database(const std::string& folder, Path path) : path_(path), folder_(folder) {
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options(), folder,
                            {{rocksdb::kDefaultColumnFamilyName, options()}, {"blocks", options()}},
                            &handles_, &db));
    db_.reset(db);
  }
  ~Database() {
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  }

  void commit(const std::vector<std::string>& blocks) {
    rocksdb::WriteBatch batch;
    const std::uint64_t first = next_;
    next_ += blocks.size();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      check(batch.Put(handles_[0], big_endian((first + i) * 0x9e3779b97f4a7c15),
                      std::string(kIndexBytes, 'i')));
      if (path_ == kLog) check(batch.Put(handles_[1], big_endian(first + i), blocks[i]));
    }
    if (path_ == kFlushed) flush_blocks(first, blocks);
    if (path_ == kIngested) ingest(first, blocks);
    rocksdb::WriteOptions synced;
    synced.sync = true;
    check(db_->Write(synced, &batch));
  }

  // What is in memory goes to tables, as it must one day, and compactions end.
  void settle() {
    check(db_->Flush({}, handles_));
    for (rocksdb::ColumnFamilyHandle* handle : handles_) {
      while (number(handle, "rocksdb.num-running-compactions") > 0 ||
             number(handle, "rocksdb.compaction-pending") > 0 ||
             number(handle, "rocksdb.num-running-flushes") > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

 private:
  std::uint64_t number(rocksdb::ColumnFamilyHandle* handle, const char* property) {
    std::uint64_t value = 0;
    db_->GetIntProperty(handle, property, &value);
    return value;
  }

  void flush_blocks(std::uint64_t first, const std::vector<std::string>& blocks) {
    rocksdb::WriteOptions without_log;
    without_log.disableWAL = true;
    rocksdb::WriteBatch batch;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      check(batch.Put(handles_[1], big_endian(first + i), blocks[i]));
    }
    check(db_->Write(without_log, &batch));
    check(db_->Flush({}, handles_[1]));
  }

  void ingest(std::uint64_t first, const std::vector<std::string>& blocks) {
    const std::string file = folder_ + "/next.sst";
    rocksdb::SstFileWriter writer({}, options(), handles_[1], /*invalidate_page_cache=*/false);
    check(writer.Open(file));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      check(writer.Put(big_endian(first + i), blocks[i]));
    }
    check(writer.Finish());
    rocksdb::IngestExternalFileOptions options;
    options.move_files = true;
    options.write_global_seqno = false;
    check(db_->IngestExternalFile(handles_[1], {file}, options));
  }

  Path path_;
  std::string folder_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::uint64_t next_ = 1;
};

struct Measured {
  std::vector<double> commit_ms, written, handed, cpu;  // one entry a commit; one a round
};

void run_round(Database& database, int n_commits, std::uint32_t seed, Measured& measured) {
  std::vector<std::vector<std::string>> commits(static_cast<std::size_t>(n_commits));
  for (std::vector<std::string>& blocks : commits) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const test::Bytes bytes = test::random_bytes(seed++, kBlockBytes);
      blocks.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  const Usage before = usage();
  for (const auto& blocks : commits) {
    measured.commit_ms.push_back(timed_ms([&] { database.commit(blocks); }));
  }
  database.settle();
  const Usage spent = usage() - before;
  const double payload = double{kBlockBytes} * kBlocks * n_commits;
  measured.written.push_back(static_cast<double>(spent.n_dirtied) / payload);
  measured.handed.push_back(static_cast<double>(spent.n_handed) / payload);
  measured.cpu.push_back(spent.cpu_s / payload * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  const test::TemporaryFolder folder;
  print_load();
  std::vector<std::unique_ptr<Database>> databases;
  std::array<Measured, kPathCount> measured;
  for (std::size_t path = 0; path < kPathCount; ++path) {
    databases.push_back(std::make_unique<Database>(folder / kNames[path], static_cast<Path>(path)));
  }
  const int n_commits = flags.number("--commits", 20);
  for (int round = 0; round < flags.number("--rounds", 9); ++round) {
    for (std::size_t path = 0; path < kPathCount; ++path) {
      const auto seed = static_cast<std::uint32_t>(round * 1000 + static_cast<int>(path) * 100'000);
      run_round(*databases[path], n_commits, seed, measured[path]);
    }
  }
  for (std::size_t path = 0; path < kPathCount; ++path) {
    const Measured& m = measured[path];
    std::printf(
        "%-9s commit p50 %6.1f p99 %6.1f ms; written per byte: write_bytes %.3f, wchar %.3f; "
        "CPU %.2f s/GB; to the log: p50 %.2f, bytes %.2f, CPU %.2f\n",
        kNames[path], median(m.commit_ms), percentile(m.commit_ms, 0.99), median(m.written),
        median(m.handed), median(m.cpu), median(m.commit_ms) / median(measured[kLog].commit_ms),
        median(m.handed) / median(measured[kLog].handed),
        median(m.cpu) / median(measured[kLog].cpu));
  }
  print_load();
  return 0;
}
