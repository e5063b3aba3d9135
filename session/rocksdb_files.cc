// A layer over RocksDB's own file system: private files, and what ingestion needs.
#include "session/rocksdb_files.h"

#include <rocksdb/file_system.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace cairn::session {
namespace {

using rocksdb::IODebugContext, rocksdb::IOOptions, rocksdb::IOStatus;

// The database of this thread's IngestionScope; empty = there is none.
thread_local std::string_view ingesting_into;

bool is_in_database(std::string_view path) {
  return path.substr(0, path.rfind('/')) == ingesting_into;
}

class FileInMemory final : public rocksdb::FSRandomAccessFile {
 public:
  explicit FileInMemory(std::string bytes) : bytes_(std::move(bytes)) {}

  // RocksDB looks for the bytes where it asked for them, whatever `result` says.
  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, rocksdb::Slice* result,
                char* target, IODebugContext*) const override {
    const std::size_t begin = std::min<std::size_t>(offset, bytes_.size());
    *result = {target, bytes_.copy(target, n, begin)};
    return IOStatus::OK();
  }

 private:
  std::string bytes_;
};

IOStatus read_whole(const rocksdb::FSRandomAccessFile& file, std::size_t n_bytes,
                    std::unique_ptr<rocksdb::FSRandomAccessFile>* result) {
  std::string bytes(n_bytes, '\0');
  rocksdb::Slice read;
  const IOStatus status = file.Read(0, n_bytes, IOOptions(), &read, bytes.data(), nullptr);
  if (!status.ok()) return status;
  if (read.size() != n_bytes) return IOStatus::IOError("a new table is shorter than it was");
  if (read.data() != bytes.data()) bytes.assign(read.data(), read.size());
  *result = std::make_unique<FileInMemory>(std::move(bytes));
  return IOStatus::OK();
}

// Rows can be turned back into the prompt, so files are private. (7.8 ignores
// Env::SetAllowNonOwnerAccess.)
class DatabaseFiles final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "DatabaseFiles"; }

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* debug) override {
    return made_private(path, target()->NewWritableFile(path, options, file, debug));
  }
  IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* debug) override {
    return made_private(path, target()->ReopenWritableFile(path, options, file, debug));
  }
  IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* debug) override {
    return made_private(path, target()->NewRandomRWFile(path, options, file, debug));
  }
  IOStatus LockFile(const std::string& path, const IOOptions& options, rocksdb::FileLock** lock,
                    IODebugContext* debug) override {
    return made_private(path, target()->LockFile(path, options, lock, debug));
  }
  IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               IODebugContext* debug) override {
    IOStatus status = target()->NewRandomAccessFile(path, options, file, debug);
    if (!status.ok() || ingesting_into.empty() || is_in_database(path)) return status;
    std::uint64_t n_bytes = 0;
    status = target()->GetFileSize(path, options.io_options, &n_bytes, debug);
    if (!status.ok()) return status;
    try {
      return read_whole(**file, n_bytes, file);
    } catch (const std::bad_alloc&) {
      return IOStatus::IOError("no memory for a new table", path);
    }
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* debug) override {
    if (!ingesting_into.empty() && is_in_database(path)) return IOStatus::OK();
    return target()->DeleteFile(path, options, debug);
  }

 private:
  static IOStatus made_private(const std::string& path, IOStatus status) {
    if (status.ok() && chmod(path.c_str(), 0600) != 0) {
      return IOStatus::IOError("cannot be made private", path);
    }
    return status;
  }
};

}  // namespace

rocksdb::Env* database_env() {
  static rocksdb::Env* const kEnv =
      rocksdb::NewCompositeEnv(std::make_shared<DatabaseFiles>(rocksdb::FileSystem::Default()))
          .release();
  return kEnv;
}

IngestionScope::IngestionScope(const std::string& database) { ingesting_into = database; }
IngestionScope::~IngestionScope() { ingesting_into = {}; }

}  // namespace cairn::session
