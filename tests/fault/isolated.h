// Runs parts of a test in a process of their own, so that they can be killed, end badly or hang
// without harm. The parent must have no threads: it never opens a store itself.
#ifndef CAIRN_TESTS_FAULT_ISOLATED_H_
#define CAIRN_TESTS_FAULT_ISOLATED_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <new>
#include <string>

namespace cairn::test {

// A T that parent and children see. T: trivially destructible, best made of atomics.
void* shared_memory(std::size_t n_bytes);
template <class T>
T& shared() {
  return *new (shared_memory(sizeof(T))) T;
}

// How a child ended.
struct Ending {
  int signal = 0;         // that killed it; 0 = it returned
  bool hung = false;      // killed because its time was over
  std::string complaint;  // what the child returned; empty = all is well

  bool killed() const { return signal == 9 && !hung; }
  // "" if the child returned without a complaint.
  std::string problem() const;
};

inline constexpr std::chrono::seconds kPatience{60};

class Child {
 public:
  // Returns a complaint, empty if all is well.
  using Body = std::function<std::string()>;

  explicit Child(const Body& body);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills and waits

  void kill_now() const;
  // Waits for the end; kills it after `patience`.
  Ending wait(std::chrono::milliseconds patience = kPatience);

 private:
  pid_t pid_ = -1;
  int complaints_ = -1;  // a pipe
};

inline Ending run_isolated(const Child::Body& body,
                           std::chrono::milliseconds patience = kPatience) {
  return Child(body).wait(patience);
}

// Folders of these tests lie in memory where that is possible: a sync that costs nothing allows
// many more trials, and what a power cut leaves is computed, not tried. Call before the first
// TemporaryFolder.
void use_memory_file_system();

// 1 for the normal run; more where CAIRN_FAULT_SCALE says so (the slow runs).
int fault_scale();

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FAULT_ISOLATED_H_
