// What a disk may hold after the power was cut at some point of a recorded life: a model of a
// journaling file system (ext4, XFS) over a record of the tap.
//
// Bytes. What was written to a file before its last successful sync is there. Of what was written
// since, these file systems keep a beginning: the size of a file follows its bytes. The reordered
// styles are for those that promise less: each piece (512 B or 4 KiB) is there as of some instant
// since the sync, and a file may hold zeros.
// Names. Creations, renames, links, removals reach the disk in their order, so a beginning of them
// is there. It has at least what a sync of the file or of its directory made durable.
#ifndef CAIRN_TESTS_FAULT_POWER_CUT_H_
#define CAIRN_TESTS_FAULT_POWER_CUT_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/fault/syscall_tap.h"

namespace cairn::test {

// How much of what was not synced is there.
enum class CutStyle : std::uint8_t {
  kNothing,
  kEverything,
  kNamesOnly,
  kBytesOnly,
  kBeginnings,  // of the names and of each file's bytes
  kReorderedPages,
  kReorderedSectors,
};
inline constexpr int kCutStyles = 7;

constexpr bool is_reordered(CutStyle style) { return style >= CutStyle::kReorderedPages; }

// What a sync that failed leaves of the bytes it was for: none is synced by it or any later one.
enum class FailedSync : std::uint8_t { kKept, kDropped, kHalf };

class PowerCut {
 public:
  // The directory that was watched, which did not exist at the start.
  explicit PowerCut(std::string directory, FailedSync failed_sync = FailedSync::kDropped)
      : directory_(std::move(directory)), failed_sync_(failed_sync) {}

  void add(const TapEntry& entry);

  // Makes `target` what the disk may hold now; it must not exist.
  void build(const std::string& target, CutStyle style, std::mt19937& random) const;

 private:
  struct File {
    std::string durable;
    std::vector<TapEntry> pending;  // writes and truncations since the last sync
    std::size_t last_name = 0;      // names up to this index are durable once the file is synced
  };
  // A change of names.
  struct Name {
    Call call;
    std::int64_t number;
    std::string path, target;
  };

  void add_name(const TapEntry& entry);
  void sync(const TapEntry& entry);
  std::string bytes_of(const File& file, CutStyle style, std::mt19937& random) const;

  std::string directory_;
  FailedSync failed_sync_;
  std::map<std::int64_t, File> files_;  // by number
  std::map<std::string, std::int64_t> directories_;
  std::vector<Name> names_;
  std::size_t n_names_durable_ = 0;
};

// A record as a file, for another process.
void save_record(const std::vector<TapEntry>& record, const std::string& path);
std::vector<TapEntry> load_record(const std::string& path);

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FAULT_POWER_CUT_H_
