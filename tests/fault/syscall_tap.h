// Stands between this program and the kernel: counts, fails, records the file system calls below
// one directory, those of RocksDB included. A program that links syscall_tap.cc gets it.
//
// Threads: the tap may be set up by one thread while no other makes calls; calls may come from any.
#ifndef CAIRN_TESTS_FAULT_SYSCALL_TAP_H_
#define CAIRN_TESTS_FAULT_SYSCALL_TAP_H_

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::test {

enum class Call : std::uint8_t {
  kOpen = 0,    // of something that exists
  kCreate = 1,  // open that makes a file
  kRead = 2,
  kWrite = 3,
  kSync = 4,       // of a file or a directory
  kSyncRange = 5,  // makes nothing durable
  kTruncate = 6,
  kAllocate = 7,
  kRename = 8,
  kLink = 9,
  kUnlink = 10,  // of a file or a directory
  kMakeDirectory = 11,
  kClose = 12,
  kNote = 13,  // no call: tap_note
};
inline constexpr int kCallKinds = 14;

// A set of kinds, one bit each.
using Calls = std::uint32_t;
constexpr Calls calls(auto... kinds) { return ((1u << static_cast<unsigned>(kinds)) | ... | 0u); }
inline constexpr Calls kChanges =
    calls(Call::kCreate, Call::kWrite, Call::kSync, Call::kSyncRange, Call::kTruncate,
          Call::kAllocate, Call::kRename, Call::kLink, Call::kUnlink, Call::kMakeDirectory);
inline constexpr Calls kAllCalls = kChanges | calls(Call::kOpen, Call::kRead, Call::kClose);

enum class Effect : std::uint8_t {
  kFail,        // the call does nothing and fails
  kFailDone,    // the call does its work and fails
  kShortWrite,  // a write does the first half; other calls are left alone
  kKill,        // the process is killed instead
  kKillInside,  // the process is killed with half of the write done, after any other call
};

struct Fault {
  Calls kinds = 0;
  std::int64_t at = 0;  // the call hit, counted from 1 among those of `kinds`; 0 = none
  bool for_ever = false;
  int error = EIO;
  Effect effect = Effect::kFail;
};

// What happened below the directory, in order.
struct TapEntry {
  Call call = Call::kNote;
  bool failed = false;      // the caller was told so; the change itself may have happened
  std::int64_t number = 0;  // of the file or directory (stable through renames); value of a note
  std::int64_t at = 0;      // offset of a write, length of a truncation
  std::string path = {}, target = {};  // as of the call; target of renames and links
  std::string bytes = {};              // of a write
};

struct TapCounts {
  std::array<std::int64_t, kCallKinds> calls{};
  std::int64_t n_failed = 0;

  std::int64_t of(Call call) const { return calls[static_cast<std::size_t>(call)]; }
  std::int64_t of(Calls kinds) const;
};

// Begins to look at `directory` (absolute, without links in it), which need not exist: counts are
// zero, nothing fails, nothing is recorded.
void tap_watch(const std::string& directory);
void tap_ignore();
bool tap_watching();

// Counting begins anew with the call.
void tap_fault(const Fault& fault);
// Writes may add this many bytes to the files, then there is no space left; what is removed comes
// back. -1 = no limit. `statvfs` does not know: others are quicker to take what it promises.
void tap_limit_space(std::int64_t n_bytes);

// From here on this process sees another start of the machine than the processes before it.
void tap_reboot();

TapCounts tap_counts();

// Recording is for directories that do not exist when watching begins.
void tap_record(bool on);
void tap_note(std::int64_t value);
std::vector<TapEntry> tap_take_record();

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FAULT_SYSCALL_TAP_H_
