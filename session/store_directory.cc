// The lock is an open-file-description lock on LOCK: the kernel drops it however the owner ends,
// and unlike a plain POSIX lock it also keeps out a second opener in the same process. The text in
// LOCK only tells people who the owner is; a stale text is recognised by the start time of the
// process.
#include "session/store_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "engine/directory_names.h"
#include "engine/sha256.h"
#include "session/boot_id.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormatTitle = "cairn store";
constexpr std::size_t kTextFileBytesMax = 4096;

Status errno_status(const std::string& what, int error) {
  const StatusCode code =
      error == ENOSPC || error == EDQUOT ? StatusCode::kOutOfDisk : StatusCode::kIoError;
  return {code, "store: " + what + ": " + std::generic_category().message(error)};
}

// -- small text files --

Result<std::string> read_text(int fd, const std::string& path) {
  std::string text(kTextFileBytesMax, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  if (n < 0) return errno_status("read " + path, errno);
  text.resize(static_cast<std::size_t>(n));
  return text;
}

Status write_text(int fd, const std::string& path, std::string_view text) {
  if (ftruncate(fd, 0) != 0) return errno_status("write " + path, errno);
  const ssize_t n = pwrite(fd, text.data(), text.size(), 0);
  if (n < 0) return errno_status("write " + path, errno);
  if (static_cast<std::size_t>(n) != text.size()) return errno_status("write " + path, ENOSPC);
  return {};
}

// The rest of the line that begins with `name` and a space.
std::optional<std::string_view> line_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) {
      return line.substr(name.size() + 1);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

template <class Number>
std::optional<Number> number_of(std::optional<std::string_view> text) {
  Number value{};
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

// -- the lock --

// Start time of a process in clock ticks since boot, field 22 of /proc/<pid>/stat; empty if there
// is no such process.
std::optional<std::uint64_t> start_time_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return std::nullopt;
  const Result<std::string> text = read_text(file.get(), path);
  if (!text.ok()) return std::nullopt;
  // The second field is the program's name in parentheses and may hold anything.
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.size(), rest.rfind(')') + 1));
  for (int field = 3; field <= 22; ++field) {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == 22) return number_of<std::uint64_t>(word);
    rest.remove_prefix(word.size());
  }
  return std::nullopt;
}

std::string owner_text() {
  const pid_t pid = getpid();
  return "pid " + std::to_string(pid) + "\nstart " +
         std::to_string(start_time_of(pid).value_or(0)) + "\nboot " + engine::hex(boot_id()) + "\n";
}

std::string owner_of(int lock_fd, const std::string& path) {
  const Result<std::string> text = read_text(lock_fd, path);
  if (!text.ok()) return "an unknown process";
  const auto pid = number_of<pid_t>(line_of(*text, "pid"));
  const auto start = number_of<std::uint64_t>(line_of(*text, "start"));
  if (!pid || !start || start_time_of(*pid) != start) return "an unknown process";
  if (line_of(*text, "boot") != engine::hex(boot_id())) return "an unknown process";
  if (*pid == getpid()) return "this process (pid " + std::to_string(*pid) + ")";
  return "pid " + std::to_string(*pid);
}

Result<FileDescriptor> take_lock(const std::string& directory) {
  const std::string path = directory + "/LOCK";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.ok()) return errno_status("open " + path, errno);
  struct flock whole_file = {};
  whole_file.l_type = F_WRLCK;
  whole_file.l_whence = SEEK_SET;
  if (fcntl(file.get(), F_OFD_SETLK, &whole_file) != 0) {
    if (errno != EAGAIN && errno != EACCES) return errno_status("lock " + path, errno);
    return Status(StatusCode::kBusy,
                  "store " + directory + ": in use by " + owner_of(file.get(), path),
                  "one process owns a store; use that process or wait until it ends");
  }
  CAIRN_RETURN_IF_ERROR(write_text(file.get(), path, owner_text()));
  return file;
}

// Empty where nobody holds the lock.
Result<std::string> lock_holder(const std::string& directory) {
  const std::string path = directory + "/LOCK";
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) {
    if (errno != ENOENT) return errno_status("open " + path, errno);
    return std::string();
  }
  struct flock whole_file = {};
  whole_file.l_type = F_WRLCK;
  whole_file.l_whence = SEEK_SET;
  if (fcntl(file.get(), F_OFD_GETLK, &whole_file) != 0)
    return errno_status("look at " + path, errno);
  return whole_file.l_type == F_UNLCK ? std::string() : owner_of(file.get(), path);
}

// -- the directory --

Status create_directory(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) return errno_status("create " + parent.string(), error.value());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_status("create " + path, errno);
  }
  return {};
}

enum class Contents { kNothing, kStore, kOther };

Result<Contents> contents_of(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, engine::names_in(path));
  Contents found = Contents::kNothing;
  for (const std::string& name : names) {
    if (name == "FORMAT" || name == "LOCK" || name == "db") return Contents::kStore;
    found = Contents::kOther;
  }
  return found;
}

// Of `path`, or of the directory that it would be made in.
Status check_file_system(const std::string& path) {
  struct statfs info = {};
  std::error_code error;
  for (fs::path at = fs::absolute(path, error); !at.empty(); at = at.parent_path()) {
    if (statfs(at.c_str(), &info) == 0) break;
    if (errno != ENOENT || at == at.parent_path()) return {};  // said by what comes next
  }
  const char* const name = network_file_system(static_cast<std::uint32_t>(info.f_type));
  if (name == nullptr) return {};
  return {StatusCode::kUnsupported,
          "store " + path + ": on " + name + ", whose locks and syncs a store cannot rely on",
          "name a directory on a local disk, or allow network file systems in the options"};
}

// Makes sure that `path` is a directory of ours that holds a store or may get one.
Status prepare(const std::string& path, bool create_if_missing) {
  const Status missing = {StatusCode::kNotFound, "store " + path + ": there is none"};
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return errno_status("open " + path, errno);
    if (!create_if_missing) return missing;
    CAIRN_RETURN_IF_ERROR(create_directory(path));
    if (stat(path.c_str(), &info) != 0) return errno_status("open " + path, errno);
  }
  if (!S_ISDIR(info.st_mode)) return invalid_argument("store " + path + ": not a directory");
  CAIRN_ASSIGN_OR_RETURN(const Contents contents, contents_of(path));
  if (contents == Contents::kOther) {
    return invalid_argument("store " + path + ": the directory holds other files",
                            "name an empty or a missing directory");
  }
  if (contents == Contents::kNothing && !create_if_missing) return missing;
  if (info.st_uid != geteuid()) {
    return invalid_argument("store " + path + ": the directory belongs to another user");
  }
  // Key-value rows can be turned back into the prompt: nobody else may read them.
  if ((info.st_mode & 0077) != 0 && chmod(path.c_str(), 0700) != 0) {
    return errno_status("make " + path + " private", errno);
  }
  return {};
}

// -- FORMAT --

std::string key_wrap_text(const KeyWrap& wrap) {
  const ScryptCost& cost = wrap.cost;
  std::string text = "secret key\n";
  if (wrap.source == SecretSource::kPassphrase) {
    text = "secret scrypt " + std::to_string(cost.log2_n) + " " + std::to_string(cost.r) + " " +
           std::to_string(cost.p) + " " + engine::hex(wrap.salt) + "\n";
  }
  return text + "key " + engine::hex(wrap.wrapped_key) + "\n";
}

std::string format_text(const StoreHeader& header) {
  std::string text(kFormatTitle);
  text += "\nformat " + std::to_string(header.format_version);
  text += "\nreader " + std::to_string(header.reader_version);
  text += "\nstore " + engine::hex(header.store_id) + "\n";
  if (header.key_wrap) text += key_wrap_text(*header.key_wrap);
  return text;
}

std::string check_line(std::string_view text) {
  return "sha256 " +
         engine::hex(engine::sha256(std::as_bytes(std::span(text.data(), text.size())))) + "\n";
}

template <std::size_t n>
bool parse_hex(std::optional<std::string_view> text, std::array<std::uint8_t, n>& out) {
  if (!text || text->size() != 2 * n) return false;
  for (std::size_t i = 0; i < n; ++i) {
    const char* const digits = text->data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, out[i], 16);
    if (error != std::errc() || end != digits + 2) return false;
  }
  return true;
}

// The next of the words between single spaces, taken off `text`.
std::string_view next_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

// False if the lines about encryption do not parse. There are none in a store without it.
bool parse_key_wrap(std::string_view body, std::optional<KeyWrap>& out) {
  const std::optional<std::string_view> secret = line_of(body, "secret");
  const std::optional<std::string_view> key = line_of(body, "key");
  if (!secret && !key) return true;
  KeyWrap& wrap = out.emplace();
  if (!secret || !parse_hex(key, wrap.wrapped_key)) return false;
  if (*secret == "key") return true;
  std::string_view words = *secret;
  if (next_word(words) != "scrypt") return false;
  wrap.source = SecretSource::kPassphrase;
  for (std::uint32_t* const number : {&wrap.cost.log2_n, &wrap.cost.r, &wrap.cost.p}) {
    const std::optional<std::uint32_t> value = number_of<std::uint32_t>(next_word(words));
    if (!value) return false;
    *number = *value;
  }
  return parse_hex(words, wrap.salt);
}

std::optional<StoreHeader> parse_format(std::string_view text) {
  const std::size_t checked = text.rfind("sha256 ");
  if (checked == std::string_view::npos || !text.starts_with(kFormatTitle)) return std::nullopt;
  const std::string_view body = text.substr(0, checked);
  if (text.substr(checked) != check_line(body)) return std::nullopt;
  const auto format = number_of<std::uint32_t>(line_of(body, "format"));
  const auto reader = number_of<std::uint32_t>(line_of(body, "reader"));
  StoreHeader header;
  if (!format || !reader || !parse_hex(line_of(body, "store"), header.store_id) ||
      !parse_key_wrap(body, header.key_wrap)) {
    return std::nullopt;
  }
  header.format_version = *format;
  header.reader_version = *reader;
  return header;
}

// Fills in `format` where FORMAT is valid; kUnsupported where this build cannot read the store.
Result<FormatFile> read_format(const std::string& path, StoreHeader& format) {
  const std::string file_path = path + "/FORMAT";
  const FileDescriptor file(::open(file_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) {
    if (errno != ENOENT) return errno_status("open " + file_path, errno);
    return FormatFile::kMissing;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string text, read_text(file.get(), file_path));
  const std::optional<StoreHeader> header = parse_format(text);
  if (!header) return FormatFile::kDamaged;
  format = *header;
  CAIRN_RETURN_IF_ERROR(check_readable(format, path));
  return FormatFile::kValid;
}

Status sync_directory(const std::string& path) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok() || fsync(directory.get()) != 0) return errno_status("sync " + path, errno);
  return {};
}

}  // namespace

Status check_readable(const StoreHeader& header, const std::string& path) {
  if (header.reader_version <= kFormatVersion) return {};
  return {StatusCode::kUnsupported,
          "store " + path + ": made by a newer version (format " +
              std::to_string(header.format_version) + ", readable from version " +
              std::to_string(header.reader_version) + " on; this one reads up to " +
              std::to_string(kFormatVersion) + ")",
          "open it with the newer version of Cairn"};
}

const char* network_file_system(std::uint32_t type) {
  struct Known {
    std::uint32_t type;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {0x6969, "NFS"},        {0x517B, "SMB"},        {0xFF534D42, "CIFS"},  {0xFE534D42, "SMB2"},
      {0x5346414F, "AFS"},    {0x6B414653, "AFS"},    {0x73757245, "Coda"},  {0x00C36400, "Ceph"},
      {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"},   {0x01021997, "9P"},    {0x564C, "NCP"},
      {0x20030528, "PVFS"},   {0x19830326, "BeeGFS"}, {0x7461636F, "OCFS2"}, {0x01161970, "GFS2"},
  };
  for (const Known& known : kKnown) {
    if (known.type == type) return known.name;
  }
  return nullptr;
}

Result<StoreDirectory> StoreDirectory::open(const std::string& path, bool create_if_missing,
                                            bool allow_network_file_system) {
  if (path.empty()) return invalid_argument("store: an empty path");
  if (!allow_network_file_system) CAIRN_RETURN_IF_ERROR(check_file_system(path));
  CAIRN_RETURN_IF_ERROR(prepare(path, create_if_missing));
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor lock, take_lock(path));
  StoreDirectory directory(path, std::move(lock));
  CAIRN_ASSIGN_OR_RETURN(directory.format_file_, read_format(path, directory.format_));
  return directory;
}

Status StoreDirectory::write_format(const StoreHeader& header) {
  const std::string path = path_ + "/FORMAT", temporary = path_ + "/FORMAT.new";
  const std::string body = format_text(header);
  {
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file.ok()) return errno_status("create " + temporary, errno);
    CAIRN_RETURN_IF_ERROR(write_text(file.get(), temporary, body + check_line(body)));
    if (fsync(file.get()) != 0) return errno_status("sync " + temporary, errno);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return errno_status("rename " + path, errno);
  CAIRN_RETURN_IF_ERROR(sync_directory(path_));
  format_file_ = FormatFile::kValid;
  format_ = header;
  return {};
}

Result<DirectoryView> look_into(const std::string& path) {
  struct stat info = {};
  const Status missing = {StatusCode::kNotFound, "store " + path + ": there is none"};
  if (stat(path.c_str(), &info) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? missing : errno_status("open " + path, errno);
  }
  if (!S_ISDIR(info.st_mode)) return missing;
  CAIRN_ASSIGN_OR_RETURN(const Contents contents, contents_of(path));
  if (contents != Contents::kStore) return missing;
  DirectoryView view;
  CAIRN_ASSIGN_OR_RETURN(view.format_file, read_format(path, view.format));
  CAIRN_ASSIGN_OR_RETURN(view.owner, lock_holder(path));
  return view;
}

Result<std::int64_t> bytes_on_disk(const std::string& path) {
  constexpr std::int64_t kStatBlockBytes = 512;  // unit of st_blocks on Linux
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, engine::names_in(path));
  struct stat info = {};
  std::int64_t sum = lstat(path.c_str(), &info) == 0 ? kStatBlockBytes * info.st_blocks : 0;
  for (const std::string& name : names) {
    const std::string file = path + "/" + name;
    // What went away since it was listed counts nothing.
    if (lstat(file.c_str(), &info) != 0) continue;
    if (!S_ISDIR(info.st_mode)) {
      sum += kStatBlockBytes * info.st_blocks;
      continue;
    }
    const Result<std::int64_t> below = bytes_on_disk(file);
    if (!below.ok() && below.status().code() != StatusCode::kNotFound) return below.status();
    if (below.ok()) sum += *below;
  }
  return sum;
}

}  // namespace cairn::session
