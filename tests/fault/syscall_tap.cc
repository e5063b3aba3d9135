// The functions of the C library, defined again: the dynamic linker takes the program's definitions
// for every library too. The work is done by raw system calls, so the sanitizers' own versions and
// the linker's lookups play no part.
//
// While a call that changes something is at work the tap's lock is held: the record is in the order
// in which the changes happened.
#include "tests/fault/syscall_tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace cairn::test {
namespace {

struct OpenFile {
  std::string path;
  std::int64_t number = 0;
};

struct Tap {
  std::atomic<bool> watching = false, rebooted = false;
  std::mutex mutex;  // guards what follows
  std::string directory;
  std::map<int, OpenFile> open;                // by descriptor
  std::map<std::string, std::int64_t> number;  // by path; only what was seen
  std::int64_t n_numbers = 0;
  Fault fault;
  std::int64_t n_hits = 0;  // calls of the fault's kinds
  std::int64_t space = -1;
  bool recording = false;
  TapCounts counts;
  std::vector<TapEntry> record;
};

// Never destroyed: calls come until the process ends.
Tap& tap() {
  static Tap* const kTap = new Tap;
  return *kTap;
}

[[noreturn]] void kill_process() {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) syscall(SYS_pause);
}

// What to do with one call.
struct Verdict {
  bool fail = false, after_work = false, halve = false, kill_after = false;
  int error = 0;
};

bool below(const Tap& t, std::string_view path) {
  return path.starts_with(t.directory) &&
         (path.size() == t.directory.size() || path[t.directory.size()] == '/');
}

// The path without doubled slashes; empty if it is not below the directory.
std::string watched_path(const Tap& t, int at, const char* path) {
  std::string full;
  if (path == nullptr) return {};
  if (path[0] != '/' && at != AT_FDCWD) {
    const auto found = t.open.find(at);
    if (found == t.open.end()) return {};
    full = found->second.path + "/";
  }
  for (const char* c = path; *c != '\0'; ++c) {
    if (*c != '/' || full.empty() || full.back() != '/') full += *c;
  }
  if (full.size() > 1 && full.back() == '/') full.pop_back();
  return below(t, full) ? full : std::string();
}

std::int64_t number_of(Tap& t, const std::string& path) {
  const auto [at, added] = t.number.try_emplace(path, t.n_numbers + 1);
  if (added) ++t.n_numbers;
  return at->second;
}

bool exists(const std::string& path) {
  return syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

std::int64_t size_of(const std::string& path) {
  struct stat info = {};
  if (syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return S_ISREG(info.st_mode) && info.st_nlink == 1 ? info.st_size : 0;
}

// Counts the call and applies the fault.
Verdict judge(Tap& t, Call call) {
  ++t.counts.calls[static_cast<std::size_t>(call)];
  const Fault& fault = t.fault;
  if (fault.at == 0 || (fault.kinds & calls(call)) == 0) return {};
  ++t.n_hits;
  if (fault.for_ever ? t.n_hits < fault.at : t.n_hits != fault.at) return {};
  Verdict verdict;
  switch (fault.effect) {
    case Effect::kKill:
      kill_process();
    case Effect::kKillInside:
      verdict.halve = call == Call::kWrite;
      verdict.kill_after = true;
      break;
    case Effect::kShortWrite:
      verdict.halve = call == Call::kWrite;
      break;
    case Effect::kFailDone:
      verdict.after_work = true;
      [[fallthrough]];
    case Effect::kFail:
      verdict.fail = true;
      verdict.error = fault.error;
      ++t.counts.n_failed;
      break;
  }
  return verdict;
}

// Does the work of a call as the verdict says; the result of the system call.
template <class Work>
long carry_out(const Verdict& verdict, Work work) {
  long result = 0;
  if (!verdict.fail || verdict.after_work) result = work();
  if (verdict.kill_after) kill_process();
  if (!verdict.fail) return result;
  errno = verdict.error;
  return -1;
}

void note_change(Tap& t, TapEntry entry) {
  if (t.recording) t.record.push_back(std::move(entry));
}

// Whether a call had its effect: it succeeded, or failed after its work.
bool took_place(const Verdict& verdict, long result) {
  return verdict.fail ? verdict.after_work : result >= 0;
}

void give_space_back(Tap& t, std::int64_t n_bytes) {
  if (t.space >= 0) t.space += n_bytes;
}

// -- another start of the machine --

bool is_boot_id(const char* path) {
  return path != nullptr && std::string_view(path) == "/proc/sys/kernel/random/boot_id";
}

// A file that says who else the kernel might be.
long open_other_boot_id() {
  constexpr std::string_view kText = "01234567-89ab-cdef-0123-456789abcdef\n";
  const long fd = syscall(SYS_memfd_create, "boot_id", MFD_CLOEXEC);
  if (fd >= 0) (void)syscall(SYS_pwrite64, fd, kText.data(), kText.size(), 0);
  return fd;
}

// -- calls on paths --

long open_call(int at, const char* path, int flags, mode_t mode) {
  Tap& t = tap();
  const auto plain = [&] { return syscall(SYS_openat, at, path, flags, mode); };
  if (t.rebooted && is_boot_id(path)) return open_other_boot_id();
  if (!t.watching) return plain();
  const std::lock_guard lock(t.mutex);
  const std::string full = watched_path(t, at, path);
  if (full.empty()) return plain();
  const bool creates = (flags & O_CREAT) != 0 && !exists(full);
  const std::int64_t n_cut = (flags & O_TRUNC) != 0 ? size_of(full) : 0;
  const Call call = creates ? Call::kCreate : Call::kOpen;
  const Verdict verdict = judge(t, call);
  if (creates && t.space == 0) {
    errno = ENOSPC;
    return -1;
  }
  const long fd = carry_out(verdict, plain);
  if (!took_place(verdict, fd)) return fd;
  if (creates) t.number.erase(full);
  const std::int64_t number = number_of(t, full);
  if (fd >= 0) t.open[static_cast<int>(fd)] = {full, number};
  if (creates) {
    note_change(t, {.call = call, .failed = fd < 0, .number = number, .path = full});
  } else if (n_cut > 0) {
    give_space_back(t, n_cut);
    note_change(t, {.call = Call::kTruncate, .number = number, .path = full});
  }
  return fd;
}

// Renames and links.
template <class Work>
long two_path_call(Call call, int at, const char* from, int target_at, const char* to, Work work) {
  Tap& t = tap();
  if (!t.watching) return work();
  const std::lock_guard lock(t.mutex);
  const std::string full = watched_path(t, at, from), target = watched_path(t, target_at, to);
  if (full.empty() || target.empty()) return work();
  const std::int64_t n_replaced = call == Call::kRename ? size_of(target) : 0;
  const Verdict verdict = judge(t, call);
  const long result = carry_out(verdict, work);
  if (!took_place(verdict, result)) return result;
  const std::int64_t number = number_of(t, full);
  t.number[target] = number;
  if (call == Call::kRename) t.number.erase(full);
  give_space_back(t, n_replaced);
  note_change(
      t, {.call = call, .failed = result < 0, .number = number, .path = full, .target = target});
  return result;
}

template <class Work>
long path_call(Call call, int at, const char* path, Work work) {
  Tap& t = tap();
  if (!t.watching) return work();
  const std::lock_guard lock(t.mutex);
  const std::string full = watched_path(t, at, path);
  if (full.empty()) return work();
  const std::int64_t n_removed = call == Call::kUnlink ? size_of(full) : 0;
  const Verdict verdict = judge(t, call);
  const long result = carry_out(verdict, work);
  if (!took_place(verdict, result)) return result;
  const std::int64_t number = number_of(t, full);
  if (call == Call::kUnlink) t.number.erase(full);
  give_space_back(t, n_removed);
  note_change(t, {.call = call, .failed = result < 0, .number = number, .path = full});
  return result;
}

// -- calls on descriptors --

// The open file, or null if it is not watched. Under the lock.
const OpenFile* watched_file(const Tap& t, int fd) {
  const auto found = t.open.find(fd);
  return found == t.open.end() ? nullptr : &found->second;
}

// `offset` -1 = where the file stands.
long write_call(int fd, const char* bytes, std::size_t n, std::int64_t offset) {
  const auto plain = [&](std::size_t n_now) {
    return offset < 0 ? syscall(SYS_write, fd, bytes, n_now)
                      : syscall(SYS_pwrite64, fd, bytes, n_now, offset);
  };
  Tap& t = tap();
  if (!t.watching) return plain(n);
  const std::lock_guard lock(t.mutex);
  const OpenFile* const file = watched_file(t, fd);
  if (file == nullptr) return plain(n);
  const Verdict verdict = judge(t, Call::kWrite);
  if (verdict.halve) n = (n + 1) / 2;
  if (t.space >= 0) n = std::min(n, static_cast<std::size_t>(t.space));
  if (t.space == 0) {
    errno = ENOSPC;
    return -1;
  }
  long n_done = 0;
  const long result = carry_out(verdict, [&] { return n_done = plain(n); });
  if (n_done <= 0) return result;
  if (t.space >= 0) t.space -= n_done;
  if (t.recording) {
    const std::int64_t begin = offset < 0 ? syscall(SYS_lseek, fd, 0, SEEK_CUR) - n_done : offset;
    note_change(t, {.call = Call::kWrite,
                    .failed = result < 0,
                    .number = file->number,
                    .at = begin,
                    .path = file->path,
                    .target = {},
                    .bytes = std::string(bytes, static_cast<std::size_t>(n_done))});
  }
  return result;
}

long write_vector_call(int fd, const iovec* parts, int n_parts, std::int64_t offset) {
  long n_sum = 0;
  for (int i = 0; i < n_parts; ++i) {
    const long n = write_call(fd, static_cast<const char*>(parts[i].iov_base), parts[i].iov_len,
                              offset < 0 ? offset : offset + n_sum);
    if (n < 0) return n_sum > 0 ? n_sum : n;
    n_sum += n;
    if (static_cast<std::size_t>(n) < parts[i].iov_len) break;
  }
  return n_sum;
}

template <class Work>
long file_call(Call call, int fd, std::int64_t at, Work work) {
  Tap& t = tap();
  if (!t.watching) return work();
  const std::lock_guard lock(t.mutex);
  const OpenFile* const file = watched_file(t, fd);
  if (file == nullptr) return work();
  const Verdict verdict = judge(t, call);
  const long result = carry_out(verdict, work);
  // A sync that failed is of interest too.
  if (took_place(verdict, result) || call == Call::kSync) {
    note_change(
        t,
        {.call = call, .failed = result < 0, .number = file->number, .at = at, .path = file->path});
  }
  return result;
}

template <class Work>
long read_call(int fd, Work work) {
  Tap& t = tap();
  if (!t.watching) return work();
  Verdict verdict;
  {
    const std::lock_guard lock(t.mutex);
    if (watched_file(t, fd) != nullptr) verdict = judge(t, Call::kRead);
  }
  return carry_out(verdict, work);
}

long close_call(int fd) {
  Tap& t = tap();
  const auto plain = [&] { return syscall(SYS_close, fd); };
  if (!t.watching) return plain();
  const std::lock_guard lock(t.mutex);
  if (watched_file(t, fd) == nullptr) return plain();
  t.open.erase(fd);
  Verdict verdict = judge(t, Call::kClose);
  verdict.after_work = true;  // the descriptor is gone whatever close says
  return carry_out(verdict, plain);
}

}  // namespace

// -- the interface --

std::int64_t TapCounts::of(Calls kinds) const {
  std::int64_t sum = 0;
  for (unsigned i = 0; i < kCallKinds; ++i) {
    if ((kinds >> i & 1u) != 0) sum += calls[i];
  }
  return sum;
}

void tap_watch(const std::string& directory) {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  t.directory = directory;
  t.open.clear();
  t.number.clear();
  t.n_numbers = 0;
  t.fault = {};
  t.n_hits = 0;
  t.space = -1;
  t.recording = false;
  t.counts = {};
  t.record.clear();
  t.watching = true;
}

void tap_ignore() { tap().watching = false; }

bool tap_watching() { return tap().watching; }

void tap_fault(const Fault& fault) {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  t.fault = fault;
  t.n_hits = 0;
}

void tap_limit_space(std::int64_t n_bytes) {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  t.space = n_bytes;
}

void tap_reboot() { tap().rebooted = true; }

TapCounts tap_counts() {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  return t.counts;
}

void tap_record(bool on) {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  t.recording = on;
}

void tap_note(std::int64_t value) {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  note_change(t, {.number = value});
}

std::vector<TapEntry> tap_take_record() {
  Tap& t = tap();
  const std::lock_guard lock(t.mutex);
  return std::exchange(t.record, {});
}

}  // namespace cairn::test

// -- the C library's names --

namespace tap = cairn::test;
using tap::Call;

#define CAIRN_TAP extern "C" __attribute__((visibility("default")))

// The mode of an open that may create, 0 otherwise.
#define CAIRN_TAP_MODE(flags)                           \
  mode_t mode = 0;                                      \
  if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {         \
    va_list arguments;                                  \
    va_start(arguments, flags);                         \
    mode = static_cast<mode_t>(va_arg(arguments, int)); \
    va_end(arguments);                                  \
  }

CAIRN_TAP int open(const char* path, int flags, ...) {
  CAIRN_TAP_MODE(flags)
  return static_cast<int>(tap::open_call(AT_FDCWD, path, flags, mode));
}
CAIRN_TAP int open64(const char* path, int flags, ...) {
  CAIRN_TAP_MODE(flags)
  return static_cast<int>(tap::open_call(AT_FDCWD, path, flags, mode));
}
CAIRN_TAP int openat(int at, const char* path, int flags, ...) {
  CAIRN_TAP_MODE(flags)
  return static_cast<int>(tap::open_call(at, path, flags, mode));
}
CAIRN_TAP int openat64(int at, const char* path, int flags, ...) {
  CAIRN_TAP_MODE(flags)
  return static_cast<int>(tap::open_call(at, path, flags, mode));
}
CAIRN_TAP int creat(const char* path, mode_t mode) {
  return static_cast<int>(tap::open_call(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode));
}
CAIRN_TAP int creat64(const char* path, mode_t mode) {
  return static_cast<int>(tap::open_call(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode));
}

CAIRN_TAP ssize_t write(int fd, const void* bytes, size_t n) {
  return tap::write_call(fd, static_cast<const char*>(bytes), n, -1);
}
CAIRN_TAP ssize_t pwrite(int fd, const void* bytes, size_t n, off_t at) {
  return tap::write_call(fd, static_cast<const char*>(bytes), n, at);
}
CAIRN_TAP ssize_t pwrite64(int fd, const void* bytes, size_t n, off64_t at) {
  return tap::write_call(fd, static_cast<const char*>(bytes), n, at);
}
CAIRN_TAP ssize_t writev(int fd, const iovec* parts, int n_parts) {
  return tap::write_vector_call(fd, parts, n_parts, -1);
}
CAIRN_TAP ssize_t pwritev(int fd, const iovec* parts, int n_parts, off_t at) {
  return tap::write_vector_call(fd, parts, n_parts, at);
}
CAIRN_TAP ssize_t pwritev64(int fd, const iovec* parts, int n_parts, off64_t at) {
  return tap::write_vector_call(fd, parts, n_parts, at);
}

CAIRN_TAP ssize_t read(int fd, void* out, size_t n) {
  return tap::read_call(fd, [&] { return syscall(SYS_read, fd, out, n); });
}
CAIRN_TAP ssize_t pread(int fd, void* out, size_t n, off_t at) {
  return tap::read_call(fd, [&] { return syscall(SYS_pread64, fd, out, n, at); });
}
CAIRN_TAP ssize_t pread64(int fd, void* out, size_t n, off64_t at) {
  return tap::read_call(fd, [&] { return syscall(SYS_pread64, fd, out, n, at); });
}
// RocksDB reads its log and its manifest through a stream.
CAIRN_TAP size_t fread_unlocked(void* out, size_t size, size_t n, FILE* stream) {
  const long result = tap::read_call(
      fileno_unlocked(stream), [&] { return static_cast<long>(fread(out, size, n, stream)); });
  return result < 0 ? 0 : static_cast<size_t>(result);
}

CAIRN_TAP int fsync(int fd) {
  return static_cast<int>(
      tap::file_call(Call::kSync, fd, 0, [&] { return syscall(SYS_fsync, fd); }));
}
CAIRN_TAP int fdatasync(int fd) {
  return static_cast<int>(
      tap::file_call(Call::kSync, fd, 0, [&] { return syscall(SYS_fdatasync, fd); }));
}
CAIRN_TAP int sync_file_range(int fd, off64_t at, off64_t n, unsigned flags) {
  const auto plain = [&] { return syscall(SYS_sync_file_range, fd, at, n, flags); };
  // Without flags it does nothing and can only fail for a wrong descriptor. RocksDB asks so whether
  // there is such a call, and asserts that nothing but ENOSYS comes back.
  if (flags == 0) return static_cast<int>(plain());
  return static_cast<int>(tap::file_call(Call::kSyncRange, fd, at, plain));
}
CAIRN_TAP int ftruncate(int fd, off_t n) noexcept {
  return static_cast<int>(
      tap::file_call(Call::kTruncate, fd, n, [&] { return syscall(SYS_ftruncate, fd, n); }));
}
CAIRN_TAP int ftruncate64(int fd, off64_t n) noexcept {
  return static_cast<int>(
      tap::file_call(Call::kTruncate, fd, n, [&] { return syscall(SYS_ftruncate, fd, n); }));
}
CAIRN_TAP int fallocate(int fd, int mode, off_t at, off_t n) {
  return static_cast<int>(tap::file_call(Call::kAllocate, fd, at,
                                         [&] { return syscall(SYS_fallocate, fd, mode, at, n); }));
}
CAIRN_TAP int fallocate64(int fd, int mode, off64_t at, off64_t n) {
  return static_cast<int>(tap::file_call(Call::kAllocate, fd, at,
                                         [&] { return syscall(SYS_fallocate, fd, mode, at, n); }));
}
CAIRN_TAP int close(int fd) { return static_cast<int>(tap::close_call(fd)); }

CAIRN_TAP int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(tap::two_path_call(Call::kRename, AT_FDCWD, from, AT_FDCWD, to,
                                             [&] { return syscall(SYS_rename, from, to); }));
}
CAIRN_TAP int renameat(int at, const char* from, int target_at, const char* to) noexcept {
  return static_cast<int>(tap::two_path_call(Call::kRename, at, from, target_at, to, [&] {
    return syscall(SYS_renameat, at, from, target_at, to);
  }));
}
CAIRN_TAP int link(const char* from, const char* to) noexcept {
  return static_cast<int>(tap::two_path_call(Call::kLink, AT_FDCWD, from, AT_FDCWD, to,
                                             [&] { return syscall(SYS_link, from, to); }));
}
CAIRN_TAP int linkat(int at, const char* from, int target_at, const char* to, int flags) noexcept {
  return static_cast<int>(tap::two_path_call(Call::kLink, at, from, target_at, to, [&] {
    return syscall(SYS_linkat, at, from, target_at, to, flags);
  }));
}
CAIRN_TAP int unlink(const char* path) noexcept {
  return static_cast<int>(
      tap::path_call(Call::kUnlink, AT_FDCWD, path, [&] { return syscall(SYS_unlink, path); }));
}
CAIRN_TAP int unlinkat(int at, const char* path, int flags) noexcept {
  return static_cast<int>(tap::path_call(Call::kUnlink, at, path,
                                         [&] { return syscall(SYS_unlinkat, at, path, flags); }));
}
CAIRN_TAP int rmdir(const char* path) noexcept {
  return static_cast<int>(
      tap::path_call(Call::kUnlink, AT_FDCWD, path, [&] { return syscall(SYS_rmdir, path); }));
}
CAIRN_TAP int remove(const char* path) noexcept {
  const int result = unlink(path);
  return result != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : result;
}
CAIRN_TAP int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(tap::path_call(Call::kMakeDirectory, AT_FDCWD, path,
                                         [&] { return syscall(SYS_mkdir, path, mode); }));
}
CAIRN_TAP int mkdirat(int at, const char* path, mode_t mode) noexcept {
  return static_cast<int>(tap::path_call(Call::kMakeDirectory, at, path,
                                         [&] { return syscall(SYS_mkdirat, at, path, mode); }));
}
