// A commit's KV blocks and its tail are megabytes. Through the log each byte would be written
// twice, checked by RocksDB's slow CRC and rewritten by compactions. Instead they become one table
// for each family, which RocksDB takes over by a link. Their keys are above all earlier ones, so a
// table overlaps no other: it goes to the last level at once and is never rewritten while it lives
// whole.
//
// 7.8.3 repairs of later versions concern ingestion into live key ranges and `change_level`;
// neither happens here.
#include "session/rocksdb_ingestion.h"

#include <rocksdb/sst_file_writer.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "engine/directory_names.h"
#include "session/rocksdb_files.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;

// Makes the folder, empty.
Status empty_folder(const std::string& path) {
  engine::remove_with_files(path);
  if (mkdir(path.c_str(), 0700) == 0) return {};
  const std::error_code error(errno, std::generic_category());
  const bool full = error == std::errc::no_space_on_device;
  return {full ? StatusCode::kOutOfDisk : StatusCode::kIoError,
          "store: make " + path + ": " + error.message()};
}

rocksdb::IngestExternalFileOptions ingestion_options() {
  rocksdb::IngestExternalFileOptions options;
  options.move_files = true;
  options.write_global_seqno = false;  // the file is not changed
  return options;
}

}  // namespace

BulkIngestion::BulkIngestion(std::string folder, rocksdb::DB& db,
                             const std::vector<rocksdb::ColumnFamilyHandle*>& handles,
                             ErrorLatch& latch)
    : folder_(std::move(folder)), db_(db), handles_(handles), latch_(latch) {
  for (int i = 0; i < kFamilyCount; ++i) {
    options_.push_back(db.GetOptions(handles[static_cast<std::size_t>(i)]));
  }
}

Result<std::unique_ptr<BulkIngestion>> BulkIngestion::open(
    const std::string& folder, rocksdb::DB& db,
    const std::vector<rocksdb::ColumnFamilyHandle*>& handles, ErrorLatch& latch) {
  CAIRN_RETURN_IF_ERROR(empty_folder(folder));
  return std::unique_ptr<BulkIngestion>(new BulkIngestion(folder, db, handles, latch));
}

Status BulkIngestion::ingest(const WriteBatch& batch) {
  std::array<Changes, kFamilyCount> by_family;
  for (const WriteBatch::Change& change : batch.changes()) {
    if (change.bulk) by_family[static_cast<std::size_t>(change.family)].push_back(&change);
  }
  const auto n_tables =
      std::ranges::count_if(by_family, [](const Changes& c) { return !c.empty(); });
  const IngestionScope scope(db_.GetName(), static_cast<std::size_t>(n_tables));
  std::vector<Table> tables;
  rocksdb::Status status;
  for (std::size_t i = 0; i < by_family.size() && status.ok(); ++i) {
    if (by_family[i].empty()) continue;
    const auto family = static_cast<Family>(i);
    tables.push_back({family, folder_ + "/" + std::to_string(next_file_++) + ".sst"});
    status = write_table(family, std::move(by_family[i]), tables.back().path);
  }
  const bool harmless = status.IsInvalidArgument() || status.IsNoSpace();
  if (status.ok()) status = hand_over(tables);
  if (status.ok()) return {};
  std::error_code ignored;
  for (const Table& table : tables) fs::remove(table.path, ignored);
  return harmless ? to_status(status, "write a table") : latch_.latch(status, "write a table");
}

rocksdb::Status BulkIngestion::write_table(Family family, Changes changes,
                                           const std::string& path) {
  std::ranges::sort(changes, {}, &WriteBatch::Change::key);
  const rocksdb::Options& options = options_[static_cast<std::size_t>(family)];
  // What was just written is likely to be read again: it stays in memory.
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(options), options,
                                handles_[static_cast<std::size_t>(family)],
                                /*invalidate_page_cache=*/false);
  rocksdb::Status status = writer.Open(path);
  std::string value;
  for (std::size_t i = 0; i < changes.size() && status.ok(); ++i) {
    const WriteBatch::Change& change = *changes[i];
    value.assign(change.head);
    value.append(reinterpret_cast<const char*>(change.body.data()), change.body.size());
    status = writer.Put(change.key, value);
  }
  rocksdb::ExternalSstFileInfo info;
  if (status.ok()) status = writer.Finish(&info);  // does not sync it (IngestionScope)
  bytes_written_ += static_cast<std::int64_t>(info.file_size);
  return status;
}

rocksdb::Status BulkIngestion::hand_over(const std::vector<Table>& tables) {
  std::vector<rocksdb::IngestExternalFileArg> arguments;
  for (const Table& table : tables) {
    rocksdb::IngestExternalFileArg argument;
    argument.column_family = handles_[static_cast<std::size_t>(table.family)];
    argument.external_files = {table.path};
    argument.options = ingestion_options();
    arguments.push_back(std::move(argument));
  }
  const std::lock_guard lock(mutex_);
  return db_.IngestExternalFiles(arguments);
}

}  // namespace cairn::session
