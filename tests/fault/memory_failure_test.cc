// Memory that runs out while a store is opened, written, read: the allocations of our code fail in
// turn. An error or std::bad_alloc comes out (the C API and the turns make the one of the other),
// the process lives, and the store holds what was acknowledged. A program of its own, since it
// replaces the allocator.
//
// Allocations within RocksDB do not fail here: it has no answer to that (locks stay held, its
// assertions end the process).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "session/session_store.h"
#include "tests/fault/isolated.h"
#include "tests/fault/life.h"
#include "tests/fault/script.h"
#include "tests/support/temporary_folder.h"

// Where the program's own code lies; the linker knows.
extern "C" const char __executable_start, etext;

namespace {

// Allocations of this thread until one fails; negative = none fails. Those of libraries neither
// fail nor count.
thread_local std::int64_t allocations_left = -1;

void* allocate(std::size_t n_bytes, const void* caller) noexcept {
  const char* const code = static_cast<const char*>(caller);
  if (code >= &__executable_start && code < &etext) {
    if (allocations_left == 0) return nullptr;
    if (allocations_left > 0) --allocations_left;
  }
  return std::malloc(n_bytes == 0 ? 1 : n_bytes);
}

}  // namespace

namespace cairn::test {
namespace {

using session::SessionStore;

// Runs `call` with its n-th allocation failing.
template <class Call>
Status with_short_memory(std::int64_t n, Call call) {
  Status status;
  allocations_left = n;
  try {
    status = call();
  } catch (const std::bad_alloc&) {
    allocations_left = -1;
    status = {StatusCode::kOutOfMemory, "bad_alloc"};
  }
  allocations_left = -1;
  return status;
}

struct Shared {
  std::atomic<int> n_failed = 0, n_steps = 0;
};

struct MemoryFailureTest : testing::Test {
  static void SetUpTestSuite() { use_memory_file_system(); }

  TemporaryFolder folder;
  std::string path = folder / "store";
  Shared& told = shared<Shared>();
  Script script{{.seed = 20260609, .n_steps = 14, .reopens = false}};

  // How n goes on: all small numbers, then ever fewer.
  static std::int64_t next(std::int64_t n) { return n + 1 + n / (10 * fault_scale()); }

  std::unique_ptr<SessionStore> open() {
    auto store = SessionStore::open(path);
    return store.ok() ? std::move(*store) : nullptr;
  }

  // Fails each allocation of each step until the step succeeds.
  std::string fail_in_steps() {
    auto store = open();
    for (int k = 1; k <= script.n_steps(); ++k, ++told.n_steps) {
      bool done = false;
      for (std::int64_t n = 0; !done; n = next(n)) {
        if (store == nullptr) return "it cannot be opened";
        const Status status = with_short_memory(n, [&] { return script.run(*store, k); });
        const std::string where = "step " + std::to_string(k) + ", allocation " + std::to_string(n);
        if (!status.ok() && status.code() != StatusCode::kOutOfMemory) {
          return where + ": " + status.to_string();
        }
        told.n_failed += !status.ok();
        done = status.ok();
        if (!done && n % 4 != 0) continue;
        std::string why;
        const std::optional<int> found = script.find(*store, done ? k : k - 1, k, why);
        if (!found) return where + ": " + why;
        done = *found == k;
        // After a failure within a write the store must be opened again.
        if (!done && n % 8 == 0) store = (store.reset(), open());
      }
    }
    return {};
  }

  std::string fail_in_opening() {
    for (std::int64_t n = 0;; n = next(n)) {
      std::unique_ptr<SessionStore> store;
      const Status status = with_short_memory(n, [&]() -> Status {
        CAIRN_ASSIGN_OR_RETURN(store, SessionStore::open(path));
        return {};
      });
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) {
        return "allocation " + std::to_string(n) + ": " + status.to_string();
      }
      if (!status.ok()) {
        ++told.n_failed;
        continue;
      }
      std::string why;
      return script.find(*store, script.n_steps(), script.n_steps(), why) ? std::string() : why;
    }
  }

  // Reading is `find` itself: whatever it returns, the next one is right.
  std::string fail_in_reading() {
    const auto store = open();
    const int last = script.n_steps();
    for (std::int64_t n = 0;; n = next(n)) {
      std::string why;
      const Status status = with_short_memory(n, [&]() -> Status {
        if (script.find(*store, last, last, why)) return {};
        return {StatusCode::kOutOfMemory, why};
      });
      if (status.ok()) return {};
      ++told.n_failed;
      if (!script.find(*store, last, last, why))
        return "allocation " + std::to_string(n) + ": " + why;
    }
  }
};

TEST_F(MemoryFailureTest, each_allocation_of_a_life_fails) {
  EXPECT_EQ(run_isolated([&] { return fail_in_steps(); }, 20 * kPatience).problem(), "");
  std::printf("steps: %d, allocations that failed: %d\n", told.n_steps.load(),
              told.n_failed.load());
  EXPECT_EQ(told.n_steps, script.n_steps());
  EXPECT_GT(told.n_failed, 200);
  told.n_failed = 0;
  EXPECT_EQ(run_isolated([&] { return fail_in_opening(); }, 20 * kPatience).problem(), "");
  std::printf("opening: allocations that failed: %d\n", told.n_failed.load());
  EXPECT_GT(told.n_failed, 20);
  told.n_failed = 0;
  EXPECT_EQ(run_isolated([&] { return fail_in_reading(); }, 20 * kPatience).problem(), "");
  std::printf("reading: allocations that failed: %d\n", told.n_failed.load());
  EXPECT_GT(told.n_failed, 50);
}

}  // namespace
}  // namespace cairn::test

[[gnu::noinline]] void* operator new(std::size_t n_bytes) {
  void* memory = allocate(n_bytes, __builtin_return_address(0));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t n_bytes, const std::nothrow_t&) noexcept {
  return allocate(n_bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
