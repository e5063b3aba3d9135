// A script lived on a store, and the check of what it left. Progress is told to the parent process,
// so the one that lives may die at any instant.
#ifndef CAIRN_TESTS_FAULT_LIFE_H_
#define CAIRN_TESTS_FAULT_LIFE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/fault/script.h"

namespace cairn::test {

// Numbers of steps; in shared memory.
struct Progress {
  std::atomic<int> begun = 0;
  std::atomic<int> acknowledged = 0;
  std::atomic<int> synced = 0;  // acknowledged as safe from the death of the machine

  void begin(int k);
  void acknowledge(const Script& script, int k);
};

// States that a fault may leave: `first` at least, `last` at most. A store that is in a state
// before `acknowledged` may say that buffered commits were lost, another may not.
struct Bounds {
  int first = 0, last = 0, acknowledged = 0;
};

// The notes that a life leaves in the tap's record: what it began, what was acknowledged.
constexpr std::int64_t begun_note(int k) { return 2 * k; }
constexpr std::int64_t acknowledged_note(int k) { return 2 * k + 1; }
// Moves the bounds of what a power cut may leave.
void read_note(const Script& script, std::int64_t note, Bounds& bounds);

// Opens the store in `directory` and does the steps behind `from`, up to `to`; closes it, or kills
// this process instead. Returns the first error.
Status live(const Script& script, const std::string& directory, int from, int to,
            Progress& progress, bool killed_at_end = false);

// Opens the store and looks for one of the allowed states; a complaint if there is none, or if the
// store reports a loss that there is not. `n_more`: steps to do from there, to be found after
// opening again.
std::string check(const Script& script, const std::string& directory, Bounds bounds, int n_more = 0,
                  int* found = nullptr);

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FAULT_LIFE_H_
