// A layer over RocksDB's own file system: private files, and what ingestion needs.
//
// Left alone, ingestion syncs each table where it was built, again where it was linked, and the
// directory for each family, one after another. In an IngestionScope a table is not synced where it
// is built, only sent on its way to the disk, and what is asked for after linking waits for the
// last sync of the directory. That comes after the last link and before the list of files names any
// table, or RocksDB would be wrong itself. By then much of the tables is written.
//
// Before it links, RocksDB reserves the tables' numbers in its list, with a sync, so that no table
// gets a number twice and overwrites, through the link, what the host keeps. Here the host keeps
// nothing, so that record is synced with the next one. After a power cut in between, a table that
// nobody knows is overwritten or removed.
#include "session/rocksdb_files.h"

#include <rocksdb/file_system.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "session/manifest_watch.h"

namespace cairn::session {
namespace {

using rocksdb::IODebugContext, rocksdb::IOOptions, rocksdb::IOStatus;

// This thread's; nullptr = there is none.
thread_local IngestionScope* scope = nullptr;

bool is_manifest(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("MANIFEST-");
}

// RocksDB writes its options to a file at each open. For people: nothing reads it.
bool is_options(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("OPTIONS-");
}

// A table that is being built. It is synced under its name in the database.
class NewTable final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;

  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return target()->RangeSync(0, target()->GetFileSize(options, debug), options, debug);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }
};

// A table that was linked, opened to be synced.
class LinkedTable final : public rocksdb::FSWritableFile {
 public:
  using FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice&, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("a linked table is not changed");
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

// A file whose loss costs nothing.
class UnsyncedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;

  IOStatus Sync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

// RocksDB's list of files.
class Manifest final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  Manifest(std::string path, std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)), path_(std::move(path)) {
    unsynced_.reserve(kReservationBytesMax + 1);
    note_manifest_synced(path_, 0);
  }
  ~Manifest() override { forget_manifest(path_); }

  IOStatus Append(const rocksdb::Slice& bytes, const IOOptions& options,
                  IODebugContext* debug) override {
    add(bytes);
    return target()->Append(bytes, options, debug);
  }
  IOStatus Append(const rocksdb::Slice& bytes, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& sums, IODebugContext* debug) override {
    add(bytes);
    return target()->Append(bytes, options, sums, debug);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return synced([&] { return target()->Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return synced([&] { return target()->Fsync(options, debug); });
  }

 private:
  static constexpr std::size_t kHeadBytes = 7, kReservationBytesMax = 64;

  void add(const rocksdb::Slice& bytes) {
    n_bytes_ += bytes.size();
    const std::size_t n_kept = kReservationBytesMax + 1 - unsynced_.size();
    unsynced_.append(bytes.data(), std::min(n_kept, bytes.size()));
  }

  template <class Sync>
  IOStatus synced(const Sync& sync) {
    const std::uint64_t n_bytes = n_bytes_;
    if (scope != nullptr && scope->is_reserving() && is_one_record()) return IOStatus::OK();
    const IOStatus status = sync();
    if (status.ok()) note_manifest_synced(path_, n_bytes);
    unsynced_.clear();
    return status;
  }

  // Whoever writes puts its own record first, then those of others who wait.
  bool is_one_record() const {
    if (unsynced_.size() < kHeadBytes || unsynced_.size() > kReservationBytesMax) return false;
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(unsynced_[i]); };
    return unsynced_.size() == kHeadBytes + at(4) + std::size_t{256} * at(5);
  }

  const std::string path_;
  std::uint64_t n_bytes_ = 0;
  std::string unsynced_;  // or its beginning; never grows
};

class Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(std::unique_ptr<rocksdb::FSDirectory> directory, rocksdb::FileSystem& files)
      : FSDirectoryWrapper(std::move(directory)), files_(files) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return synced([&] { return FSDirectoryWrapper::Fsync(options, debug); });
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& reason) override {
    if (is_options(reason.renamed_new_name)) return IOStatus::OK();
    return synced([&] { return FSDirectoryWrapper::FsyncWithDirOptions(options, debug, reason); });
  }

 private:
  template <class Sync>
  IOStatus synced(const Sync& sync) {
    if (scope == nullptr) return sync();
    if (scope->waits_for_tables()) return IOStatus::OK();
    const IOStatus status = scope->sync_tables(files_);
    return status.ok() ? sync() : status;
  }

  rocksdb::FileSystem& files_;
};

class FileInMemory final : public rocksdb::FSRandomAccessFile {
 public:
  FileInMemory(std::unique_ptr<char[]> bytes, std::size_t n_bytes)
      : bytes_(std::move(bytes)), n_bytes_(n_bytes) {}

  // RocksDB looks for the bytes where it asked for them, whatever `result` says.
  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, rocksdb::Slice* result,
                char* target, IODebugContext*) const override {
    const std::size_t begin = std::min<std::size_t>(offset, n_bytes_);
    n = std::min(n, n_bytes_ - begin);
    std::copy_n(bytes_.get() + begin, n, target);
    *result = {target, n};
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t n_bytes_;
};

IOStatus read_whole(const rocksdb::FSRandomAccessFile& file, std::size_t n_bytes,
                    std::unique_ptr<rocksdb::FSRandomAccessFile>* result) {
  auto bytes = std::make_unique_for_overwrite<char[]>(n_bytes);
  rocksdb::Slice read;
  const IOStatus status = file.Read(0, n_bytes, IOOptions(), &read, bytes.get(), nullptr);
  if (!status.ok()) return status;
  if (read.size() != n_bytes) return IOStatus::IOError("a new table is shorter than it was");
  if (read.data() != bytes.get()) std::copy_n(read.data(), n_bytes, bytes.get());
  *result = std::make_unique<FileInMemory>(std::move(bytes), n_bytes);
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
    const IOStatus status =
        made_private(path, target()->NewWritableFile(path, options, file, debug));
    if (!status.ok()) return status;
    return with_memory(path, [&] {
      if (is_options(path)) *file = std::make_unique<UnsyncedFile>(std::move(*file));
      if (is_manifest(path)) *file = std::make_unique<Manifest>(path, std::move(*file));
      if (scope == nullptr) return IOStatus::OK();
      if (!scope->has_database_of(path)) {
        *file = std::make_unique<NewTable>(std::move(*file));
      } else if (path.ends_with(".sst")) {
        scope->note_made(path);  // copied where it could not be linked
      }
      return IOStatus::OK();
    });
  }
  IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* debug) override {
    if (scope != nullptr && scope->is_unsynced(path)) {
      return with_memory(path, [&] {
        *file = std::make_unique<LinkedTable>();
        return IOStatus::OK();
      });
    }
    return made_private(path, target()->ReopenWritableFile(path, options, file, debug));
  }
  IOStatus LinkFile(const std::string& path, const std::string& link, const IOOptions& options,
                    IODebugContext* debug) override {
    const IOStatus status = target()->LinkFile(path, link, options, debug);
    if (!status.ok() || scope == nullptr) return status;
    return with_memory(link, [&] {
      scope->note_made(link);
      return IOStatus::OK();
    });
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext* debug) override {
    const IOStatus status = target()->NewDirectory(path, options, directory, debug);
    if (!status.ok()) return status;
    return with_memory(path, [&] {
      *directory = std::make_unique<Directory>(std::move(*directory), *target());
      return IOStatus::OK();
    });
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
    if (!status.ok() || scope == nullptr || scope->has_database_of(path)) return status;
    std::uint64_t n_bytes = 0;
    status = target()->GetFileSize(path, options.io_options, &n_bytes, debug);
    if (!status.ok()) return status;
    return with_memory(path, [&] { return read_whole(**file, n_bytes, file); });
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* debug) override {
    if (scope != nullptr && scope->has_database_of(path)) return IOStatus::OK();
    return target()->DeleteFile(path, options, debug);
  }

 private:
  // RocksDB cannot bear exceptions.
  template <class Work>
  static IOStatus with_memory(const std::string& path, const Work& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return IOStatus::IOError("no memory for a file", path);
    }
  }
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

IngestionScope::IngestionScope(const std::string& database, std::size_t n_tables)
    : database_(database), n_tables_(n_tables) {
  scope = this;
}
IngestionScope::~IngestionScope() { scope = nullptr; }

bool IngestionScope::has_database_of(const std::string& path) const {
  return std::string_view(path).substr(0, path.rfind('/')) == database_;
}

void IngestionScope::note_made(const std::string& path) {
  any_made_ = true;
  unsynced_.push_back(path);
}

bool IngestionScope::is_unsynced(const std::string& path) const {
  return std::ranges::find(unsynced_, path) != unsynced_.end();
}

bool IngestionScope::is_reserving() const { return !any_made_; }

bool IngestionScope::waits_for_tables() const {
  return !unsynced_.empty() && unsynced_.size() < n_tables_;
}

rocksdb::IOStatus IngestionScope::sync_tables(rocksdb::FileSystem& files) {
  for (const std::string& path : unsynced_) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus status = files.ReopenWritableFile(path, rocksdb::FileOptions(), &file, nullptr);
    if (status.ok()) status = file->Sync(IOOptions(), nullptr);
    if (status.ok()) status = file->Close(IOOptions(), nullptr);
    if (!status.ok()) return status;
  }
  unsynced_.clear();
  return IOStatus::OK();
}

}  // namespace cairn::session
