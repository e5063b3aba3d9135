// What of a database's directory must be taken in which order to have one instant of it, without
// the owner's help.
//
// A private directory gets copies of the write-ahead logs first, of the manifest second, and links
// to the tables around it; it is opened read-only and removed. Why that is one instant:
//   - A log is only appended to. The copies are the log up to some instant T: a log that is there
//     at the listing was begun when the ones before it were complete.
//   - The manifest is copied after T. All families flush at once, so it is the database as of some
//     flush, plus what was ingested or reclaimed since. Either that flush is older than T, and
//     the logs bring everything up to T; or it is younger, and the logs are not needed.
//   - Payloads are ingested before the log names them, and reclaimed after a flush of their
//     removal: a manifest younger than the log has every payload that the log names.
//   - Tables that were there before the manifest was copied are held by hard links, where the file
//     system and the owner of the files allow them; those of the moments between are linked after
//     it. A table that the manifest names and that is gone all the same makes the open fail, and
//     the whole is repeated. Once open, tables stay readable by their descriptors.
// RocksDB's secondary instances read the manifest first and the logs second, and pass over files
// that vanished: under ingestion they can show index entries without their blocks (DESIGN.md).
#include "session/rocksdb_snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/directory_names.h"
#include "session/file_descriptor.h"
#include "session/rocksdb_storage.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(10);
constexpr std::chrono::milliseconds kFirstPause(2), kLongestPause(100);

Status errno_status(const std::string& what, int error) {
  StatusCode code = StatusCode::kIoError;
  if (error == ENOENT) code = StatusCode::kNotFound;
  if (error == ENOSPC || error == EDQUOT) code = StatusCode::kOutOfDisk;
  const bool no_descriptor = error == EMFILE || error == ENFILE;
  return {code, "store: " + what + ": " + std::generic_category().message(error),
          no_descriptor ? "close files or raise the limit of open files (ulimit -n)" : ""};
}

// A directory of files for one process that goes away with the object.
class PrivateDirectory {
 public:
  static Result<PrivateDirectory> make() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error) return errno_status("find the directory for temporary files", error.value());
    std::string path = (parent / "cairn-reader-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) return errno_status("create " + path, errno);
    return PrivateDirectory(std::move(path));
  }
  PrivateDirectory(PrivateDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateDirectory& operator=(PrivateDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~PrivateDirectory() {
    if (!path_.empty()) engine::remove_with_files(path_);
  }

  const std::string& path() const { return path_; }

 private:
  explicit PrivateDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Copies the bytes that the file has when the copying reaches its end. kNotFound if it is gone.
Status copy_file(const std::string& from, const std::string& to) {
  const FileDescriptor in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in.ok()) return errno_status("open " + from, errno);
  const FileDescriptor out(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out.ok()) return errno_status("create " + to, errno);
  std::vector<char> buffer(256 << 10);
  for (;;) {
    const ssize_t n_read = ::read(in.get(), buffer.data(), buffer.size());
    if (n_read < 0) return errno_status("read " + from, errno);
    if (n_read == 0) return {};
    for (ssize_t done = 0; done < n_read;) {
      const ssize_t n =
          ::write(out.get(), buffer.data() + done, static_cast<std::size_t>(n_read - done));
      if (n < 0) return errno_status("write " + to, errno);
      done += n;
    }
  }
}

// The names in the directory that end so, ascending: RocksDB's numbers have six digits or more.
Result<std::vector<std::string>> names_with(const std::string& directory, const char* extension) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> names, engine::names_in(directory));
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(extension); });
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

// The manifest that counts, and how far it has got: a change of it is a change of the set of files.
struct ManifestState {
  std::string name;
  std::int64_t n_bytes = 0;
  bool operator==(const ManifestState&) const = default;
};

Result<ManifestState> manifest_state(const std::string& directory) {
  const std::string current = directory + "/CURRENT";
  const FileDescriptor file(::open(current.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return errno_status("open " + current, errno);
  std::string text(64, '\0');
  const ssize_t n = pread(file.get(), text.data(), text.size(), 0);
  if (n < 0) return errno_status("read " + current, errno);
  text.resize(static_cast<std::size_t>(n));
  if (!text.starts_with("MANIFEST-") || !text.ends_with('\n') ||
      text.find('/') != std::string::npos) {
    return corrupt("store: " + current + " does not name a manifest",
                   "restore the store's directory from a copy");
  }
  text.pop_back();
  struct stat info = {};
  const std::string path = directory + "/" + text;
  if (stat(path.c_str(), &info) != 0) return errno_status("open " + path, errno);
  return ManifestState{std::move(text), info.st_size};
}

Status take_logs(const std::string& directory, const std::string& copy) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_with(directory, ".log"));
  for (const std::string& name : names) {
    const Status copied = copy_file(directory + "/" + name, copy + "/" + name);
    // Gone = flushed, which the manifest will say.
    if (!copied.ok() && copied.code() != StatusCode::kNotFound) return copied;
  }
  return {};
}

Status take_manifest(const std::string& directory, const std::string& copy) {
  CAIRN_ASSIGN_OR_RETURN(const ManifestState manifest, manifest_state(directory));
  for (const std::string& name : {manifest.name, std::string("IDENTITY")}) {
    CAIRN_RETURN_IF_ERROR(copy_file(directory + "/" + name, copy + "/" + name));
  }
  // Not CURRENT itself, which may name a younger manifest by now.
  const std::string current = copy + "/CURRENT", text = manifest.name + "\n";
  const FileDescriptor file(::open(current.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.ok() || ::write(file.get(), text.data(), text.size()) != ssize_t(text.size())) {
    return errno_status("write " + current, errno);
  }
  return {};
}

// Those that are not linked yet.
Status link_tables(const std::string& directory, const std::string& copy) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_with(directory, ".sst"));
  for (const std::string& name : names) {
    const std::string table = directory + "/" + name, link = copy + "/" + name;
    if (::link(table.c_str(), link.c_str()) == 0 || errno == EEXIST) continue;
    if (errno == ENOENT) continue;  // gone since the listing
    if (symlink(table.c_str(), link.c_str()) == 0 || errno == EEXIST) continue;
    return errno_status("create " + link, errno);
  }
  return {};
}

Result<std::unique_ptr<Storage>> open_once(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const PrivateDirectory copy, PrivateDirectory::make());
  CAIRN_RETURN_IF_ERROR(take_logs(directory, copy.path()));
  CAIRN_RETURN_IF_ERROR(link_tables(directory, copy.path()));
  CAIRN_RETURN_IF_ERROR(take_manifest(directory, copy.path()));
  CAIRN_RETURN_IF_ERROR(link_tables(directory, copy.path()));
  Result<std::unique_ptr<Storage>> storage = open_rocksdb_read_only(copy.path());
  if (storage.ok()) return storage;
  // People know the store, not the copy.
  std::string message(storage.status().message());
  for (std::size_t at; (at = message.find(copy.path())) != std::string::npos;) {
    message.replace(at, copy.path().size(), directory);
  }
  return Status(storage.status().code(), message, std::string(storage.status().hint()));
}

}  // namespace

Result<std::unique_ptr<Storage>> open_rocksdb_snapshot(const std::string& directory) {
  std::error_code error;
  const std::string path = fs::canonical(directory, error).string();  // links want absolute paths
  if (error) return errno_status("open " + directory, error.value());
  const auto give_up_at = steady_clock::now() + kPatience;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const Result<ManifestState> before = manifest_state(path);
    Result<std::unique_ptr<Storage>> storage = open_once(path);
    if (storage.ok()) return storage;
    const Result<ManifestState> after = manifest_state(path);
    // A failure while nothing moved is the database's own.
    const bool moved = before.ok() != after.ok() || (before.ok() && *before != *after);
    if (!moved) return storage;
    if (steady_clock::now() >= give_up_at) {
      return Status(StatusCode::kBusy, std::string(storage.status().message()),
                    "its owner keeps changing it; try again later");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace cairn::session
