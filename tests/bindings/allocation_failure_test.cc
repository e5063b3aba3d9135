// Fails the n-th allocation of a C call, for n = 1, 2, ... until the call succeeds: every failure
// is a code, never an exception or the end of the process, and the next call works.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "cairn/cairn.h"
#include "tests/support/temporary_folder.h"

namespace {

// Allocations of this thread until one fails; negative = none fails.
thread_local std::int64_t allocations_left = -1;
// What the failing allocation throws instead of bad_alloc.
enum class Foreign { kNone, kException, kNumber };
thread_local Foreign foreign = Foreign::kNone;

void* allocate(std::size_t n_bytes) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return std::malloc(n_bytes == 0 ? 1 : n_bytes);
}

void throw_foreign() {
  const Foreign what = std::exchange(foreign, Foreign::kNone);
  if (what == Foreign::kException) throw std::runtime_error("not a bad_alloc");
  if (what == Foreign::kNumber) throw 7;
}

// Runs `call` with its n-th allocation failing, for every n up to 64 and then in steps of about
// n / 64, since opening a model allocates many thousand times. Returns how often it failed.
template <class Call>
int fail_each_allocation(Call call) {
  constexpr int kMaxAllocations = 10000000;
  int failures = 0;
  for (int n = 0; n < kMaxAllocations; n += 1 + n / 64) {
    cairn_error* error = nullptr;
    allocations_left = n;
    const cairn_code code = call(&error);
    allocations_left = -1;
    if (code == CAIRN_OK) {
      EXPECT_EQ(error, nullptr);
      return failures;
    }
    ++failures;
    EXPECT_EQ(code, CAIRN_OUT_OF_MEMORY) << cairn_error_message(error);
    cairn_error_destroy(&error);
  }
  ADD_FAILURE() << "never succeeded";
  return failures;
}

class AllocationFailure : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cairn_runtime_create(nullptr, &runtime_, nullptr), CAIRN_OK);
    ASSERT_EQ(cairn_model_open(runtime_, kCheckpoint, CAIRN_CSTRING, nullptr, &model_, nullptr),
              CAIRN_OK);
  }
  void TearDown() override {
    cairn_model_destroy(&model_);
    cairn_runtime_destroy(&runtime_);
  }

  static constexpr const char* kCheckpoint = CAIRN_SOURCE_DIR "/examples/models/tiny-a";
  cairn_runtime* runtime_ = nullptr;
  cairn_model* model_ = nullptr;
};

TEST_F(AllocationFailure, tokenize_reports_out_of_memory) {
  const int failures = fail_each_allocation([&](cairn_error** error) {
    cairn_token_list* tokens = nullptr;
    const cairn_code code =
        cairn_model_tokenize(model_, "some text", CAIRN_CSTRING, &tokens, error);
    EXPECT_EQ(tokens != nullptr, code == CAIRN_OK);
    cairn_token_list_destroy(&tokens);
    return code;
  });
  EXPECT_GT(failures, 0);
}

TEST_F(AllocationFailure, detokenize_reports_out_of_memory) {
  const std::int32_t tokens[] = {70, 71, 72};
  const int failures = fail_each_allocation([&](cairn_error** error) {
    cairn_buffer* bytes = nullptr;
    const cairn_code code = cairn_model_detokenize(model_, tokens, 3, &bytes, error);
    cairn_buffer_destroy(&bytes);
    return code;
  });
  EXPECT_GT(failures, 0);
}

TEST_F(AllocationFailure, opening_a_model_reports_out_of_memory) {
  const int failures = fail_each_allocation([&](cairn_error** error) {
    cairn_model* model = nullptr;
    const cairn_code code =
        cairn_model_open(runtime_, kCheckpoint, CAIRN_CSTRING, nullptr, &model, error);
    EXPECT_EQ(model != nullptr, code == CAIRN_OK);
    cairn_model_destroy(&model);
    return code;
  });
  EXPECT_GT(failures, 0);
}

// Resuming writes nothing, so no allocation of RocksDB is among those that fail.
TEST_F(AllocationFailure, resuming_a_turn_reports_out_of_memory_and_can_be_repeated) {
  const cairn::test::TemporaryFolder folder;
  const std::string path = folder / "store";
  cairn_store* store = nullptr;
  cairn_session* session = nullptr;
  cairn_turn* turn = nullptr;
  ASSERT_EQ(cairn_store_open(runtime_, path.c_str(), CAIRN_CSTRING, nullptr, &store, nullptr),
            CAIRN_OK);
  ASSERT_EQ(cairn_session_create(model_, store, "s", 1, nullptr, &session, nullptr), CAIRN_OK);
  ASSERT_EQ(cairn_session_append_user(session, "hello", CAIRN_CSTRING, nullptr), CAIRN_OK);
  ASSERT_EQ(cairn_session_start_turn(session, nullptr, &turn, nullptr), CAIRN_OK);
  cairn_turn_destroy(&turn);
  const int failures = fail_each_allocation([&](cairn_error** error) {
    const cairn_code code = cairn_session_resume_turn(session, &turn, error);
    EXPECT_EQ(turn != nullptr, code == CAIRN_OK);
    return code;
  });
  EXPECT_GT(failures, 0);
  cairn_turn_destroy(&turn);
  cairn_session_destroy(&session);
  cairn_store_destroy(&store);
}

TEST_F(AllocationFailure, exceptions_of_any_kind_become_internal_errors) {
  const std::pair<Foreign, std::string> kinds[] = {
      {Foreign::kException, "unexpected exception: not a bad_alloc"},
      {Foreign::kNumber, "unexpected exception"}};
  for (const auto& [kind, text] : kinds) {
    cairn_token_list* tokens = nullptr;
    cairn_error* error = nullptr;
    foreign = kind;
    allocations_left = 0;
    const cairn_code code =
        cairn_model_tokenize(model_, "some text", CAIRN_CSTRING, &tokens, &error);
    allocations_left = -1;
    EXPECT_EQ(code, CAIRN_INTERNAL);
    ASSERT_NE(error, nullptr);
    EXPECT_NE(std::string(cairn_error_message(error)).find(text), std::string::npos);
    EXPECT_EQ(tokens, nullptr);
    cairn_error_destroy(&error);
    EXPECT_EQ(cairn_model_tokenize(model_, "some text", CAIRN_CSTRING, &tokens, &error), CAIRN_OK);
    cairn_token_list_destroy(&tokens);
  }
}

}  // namespace

// libcairn.so takes these from the program as well. Not inlined: GCC would take free() in a delete
// expression for a mistake.
[[gnu::noinline]] void* operator new(std::size_t n_bytes) {
  void* memory = allocate(n_bytes);
  if (memory == nullptr) {
    allocations_left = -1;
    throw_foreign();
    allocations_left = 0;
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t n_bytes, const std::nothrow_t&) noexcept {
  return allocate(n_bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
