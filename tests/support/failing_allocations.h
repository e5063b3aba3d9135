// Allocations that fail when a test says so: replaces the program's operator new. For one file of a
// program.
#ifndef CAIRN_TESTS_SUPPORT_FAILING_ALLOCATIONS_H_
#define CAIRN_TESTS_SUPPORT_FAILING_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace cairn::test {

// Allocations of this thread until one fails; negative = none fails.
inline thread_local std::int64_t allocations_left = -1;
// Only that one fails, and not all after it.
inline thread_local bool fails_once = false;
// How many have failed.
inline thread_local std::int64_t n_failed_allocations = 0;
// What a failing allocation throws: what it should, or something that nobody expects.
enum class Thrown { kBadAlloc, kException, kNumber };
inline thread_local Thrown thrown = Thrown::kBadAlloc;
// If set, says of an allocation that is to fail that it may not; then a later one fails.
inline bool (*exempt)() noexcept = nullptr;

inline void* allocate(std::size_t n_bytes) noexcept {
  if (allocations_left == 0 && (exempt == nullptr || !exempt())) {
    if (fails_once) allocations_left = -1;
    ++n_failed_allocations;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  return std::malloc(n_bytes == 0 ? 1 : n_bytes);
}

[[noreturn]] inline void throw_failure() {
  if (thrown == Thrown::kBadAlloc) throw std::bad_alloc();
  const std::int64_t left = allocations_left;
  allocations_left = -1;
  struct Back {
    std::int64_t left;
    ~Back() { allocations_left = left; }
  } const back{left};
  if (thrown == Thrown::kException) throw std::runtime_error("not a bad_alloc");
  throw 7;
}

}  // namespace cairn::test

// Not inlined: GCC would take free() in a delete expression for a mistake.
[[gnu::noinline]] void* operator new(std::size_t n_bytes) {
  void* memory = cairn::test::allocate(n_bytes);
  if (memory == nullptr) cairn::test::throw_failure();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t n_bytes, const std::nothrow_t&) noexcept {
  return cairn::test::allocate(n_bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif  // CAIRN_TESTS_SUPPORT_FAILING_ALLOCATIONS_H_
