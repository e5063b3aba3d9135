// Every function of the C API with too little memory: the n-th allocation of a call fails, once or
// from then on, or throws something that nobody expects, for n = 1, 2, ... until the call needs no
// more. Each time the call says so (OUT_OF_MEMORY, INTERNAL) or does what it should; what it made
// is NULL; what it worked on is as it was, and goes on once there is memory. The calls are in
// entry_calls.h; one that is missing there fails the test.
//
// Allocations within RocksDB do not fail: it has no answer to that.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <ostream>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/bindings/entry_calls.h"
#include "tests/support/failing_allocations.h"

namespace cairn::test {
namespace {

// ---- Which allocations may fail

struct CodeRange {
  std::uintptr_t begin = 0, end = 0;
};

int note_database(dl_phdr_info* library, std::size_t, void* out) {
  if (std::string_view(library->dlpi_name).find("librocksdb") == std::string_view::npos) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
    *static_cast<CodeRange*>(out) = {begin, begin + segment.p_memsz};
  }
  return 1;
}

const CodeRange& database_code() {
  static const CodeRange range = [] {
    CodeRange found;
    dl_iterate_phdr(note_database, &found);
    void* first[1];
    backtrace(first, 1);  // loads what it needs now rather than in a shortage
    return found;
  }();
  return range;
}

bool in_database() noexcept {
  void* frames[96];
  const int n_frames = backtrace(frames, 96);
  return std::any_of(frames, frames + n_frames, [](void* frame) {
    const auto at = reinterpret_cast<std::uintptr_t>(frame);
    return at >= database_code().begin && at < database_code().end;
  });
}

// ---- Attempts

struct Shortage {
  const char* name;
  bool once;
  Thrown thrown;
  std::int64_t dense;  // each of the first allocations fails so many times, later ones sparsely
};

constexpr Shortage kShortages[] = {{"from then on", false, Thrown::kBadAlloc, 16},
                                   {"once", true, Thrown::kBadAlloc, 16},
                                   {"exception", true, Thrown::kException, 4},
                                   {"number", true, Thrown::kNumber, 4}};

struct Attempt {
  cairn_code code;
  std::int64_t n_failed;  // allocations
};

Attempt try_call(const EntryCall& entry, World& world, const Shortage& shortage, std::int64_t n) {
  fails_once = shortage.once;
  thrown = shortage.thrown;
  n_failed_allocations = 0;
  allocations_left = n;
  const cairn_code code = entry.call(world, &world.made.error);
  allocations_left = -1;
  return {code, n_failed_allocations};
}

std::unique_ptr<World> world_for(const EntryCall& entry) {
  auto world = std::make_unique<World>();
  if (entry.prepare) entry.prepare(*world);
  return world;
}

// A call that failed. Where whatever was thrown is taken for want of memory, nothing of the host's
// can be behind it.
void expect_nothing_happened(const EntryCall& entry, World& world, const Shortage& shortage,
                             cairn_code code, const SessionState& before) {
  const bool is_right = code == CAIRN_OUT_OF_MEMORY ||
                        (code == CAIRN_INTERNAL && shortage.thrown != Thrown::kBadAlloc);
  EXPECT_TRUE(is_right) << cairn_code_name(code) << ": " << cairn_error_message(world.made.error);
  EXPECT_TRUE(world.made.error == nullptr || cairn_error_code(world.made.error) == code);
  cairn_error_destroy(&world.made.error);
  EXPECT_TRUE(world.made.all_null()) << "a result in spite of the failure";
  const bool may_differ = entry.changes_state_by_itself || entry.may_be_done;
  EXPECT_TRUE(may_differ || world.state() == before);
}

void expect_done(const EntryCall& entry, World& world) {
  cairn_error_destroy(&world.made.error);
  if (entry.expect) entry.expect(world);
  world.made.destroy();
  world.expect_usable();
}

// Returns how many attempts met a failing allocation.
int fail_each_allocation(const EntryCall& entry, const Shortage& shortage) {
  std::unique_ptr<World> world = world_for(entry);
  SessionState before = world->state();
  const std::int64_t dense = entry.is_slow ? shortage.dense / 4 : shortage.dense;
  int n_attempts = 0;
  std::string last;  // what the last failure said
  for (std::int64_t n = 0;; n += 1 + n / dense) {
    SCOPED_TRACE(std::string(shortage.name) + ", allocation " + std::to_string(n));
    const Attempt attempt = try_call(entry, *world, shortage, n);
    n_attempts += attempt.n_failed > 0 ? 1 : 0;
    if (attempt.n_failed > 0 && attempt.code != CAIRN_OK && attempt.code != entry.code) {
      last = cairn_error_message(world->made.error);
      expect_nothing_happened(entry, *world, shortage, attempt.code, before);
      const bool goes_on = entry.changes_state_by_itself || world->state() == before;
      if (goes_on && !testing::Test::HasFailure()) continue;
    } else {
      EXPECT_EQ(attempt.code, entry.code) << "before: " << last;
      expect_done(entry, *world);
    }
    if (attempt.n_failed == 0 || testing::Test::HasFailure()) return n_attempts;
    world.reset();  // the call was done, or needed less than it asked for: begin anew
    world = world_for(entry);
    before = world->state();
  }
}

// ---- Tests

class EveryEntry : public testing::TestWithParam<EntryCall> {};

TEST_P(EveryEntry, keeps_its_promises_without_memory) {
  database_code();
  exempt = in_database;
  const EntryCall& entry = GetParam();
  std::string counts;
  for (const Shortage& shortage : kShortages) {
    const int n_attempts = fail_each_allocation(entry, shortage);
    counts += " " + std::to_string(n_attempts);
    if (n_attempts == 0 || HasFailure()) break;  // it allocates nothing
  }
  std::cout << entry.name << ": attempts with a failing allocation" << counts << "\n";
}

INSTANTIATE_TEST_SUITE_P(C, EveryEntry, testing::ValuesIn(entry_calls()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EveryEntryOf, the_export_list_is_here) {
  const std::string map = read_file(CAIRN_SOURCE_DIR "/bindings/c/cairn.map");
  const std::regex line(R"(\n\s+(cairn_[a-z0-9_]+);)");
  std::set<std::string> exported;
  for (std::sregex_iterator it(map.begin(), map.end(), line), end; it != end; ++it) {
    exported.insert((*it)[1]);
  }
  std::set<std::string> called;
  for (const EntryCall& entry : entry_calls()) {
    EXPECT_TRUE(called.insert(entry.name).second) << entry.name << " twice";
  }
  EXPECT_EQ(called, exported);
  EXPECT_GT(called.size(), 90u);
}

// The events of a turn, read with too little memory at each of them.
TEST(Reading, loses_no_event_for_want_of_memory) {
  database_code();
  exempt = in_database;
  const auto texts = [](bool is_short) {
    World world;
    world.start_turn(40);
    std::string said;
    int n_failed = 0;
    for (std::int64_t n = 0;; ++n) {
      fails_once = false;
      thrown = Thrown::kBadAlloc;
      allocations_left = is_short ? n : -1;
      const cairn_code code = cairn_turn_next(world.has.turn, -1, &world.made.event, nullptr);
      allocations_left = -1;
      if (code == CAIRN_OUT_OF_MEMORY) {
        ++n_failed;
        continue;
      }
      if (code != CAIRN_OK) {
        EXPECT_EQ(code, CAIRN_NOT_FOUND);
        break;
      }
      n = -1;
      said += std::to_string(cairn_event_kind(world.made.event)) + ":" +
              cairn_event_bytes(world.made.event, nullptr) + "\n";
      if (cairn_event_kind(world.made.event) == CAIRN_EVENT_DURABLE ||
          cairn_event_kind(world.made.event) == CAIRN_EVENT_PREFILL_PROGRESS) {
        said.resize(said.rfind('\n', said.size() - 2) + 1);  // come when time allows
      }
      cairn_event_destroy(&world.made.event);
    }
    EXPECT_EQ(n_failed > 0, is_short);
    return said;
  };
  EXPECT_EQ(texts(true), texts(false));
}

// ---- What a host in C++ throws from its callbacks

struct ThrowingHost {
  int n_lines = 0, n_keys = 0, n_finalized = 0;
};

[[noreturn]] void throw_from_log(void* user, std::int32_t, const char*, std::size_t) {
  if (static_cast<ThrowingHost*>(user)->n_lines++ % 2 == 0) throw 7;
  throw std::runtime_error("log");
}
[[noreturn]] void throw_from_finalizer(void* user) {
  ++static_cast<ThrowingHost*>(user)->n_finalized;
  throw 8;
}
std::int32_t throw_once_for_key(void* user, std::uint8_t* key) {
  if (static_cast<ThrowingHost*>(user)->n_keys++ == 0) throw std::runtime_error("no key");
  std::fill_n(key, 32, std::uint8_t{5});
  return 0;
}

TEST(HostCallbacks, may_throw_without_harm) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  ThrowingHost host;
  Handles has;
  cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
  options.log = throw_from_log;
  options.log_level = CAIRN_LOG_TRACE;
  options.log_user = &host;
  options.log_finalize = throw_from_finalizer;
  ASSERT_EQ(cairn_runtime_create(&options, &has.runtime, nullptr), CAIRN_OK);
  ASSERT_EQ(cairn_model_open(has.runtime, kCheckpoint, CAIRN_CSTRING, nullptr, &has.model, nullptr),
            CAIRN_OK);
  cairn_store_options store_options = CAIRN_STORE_OPTIONS_INIT;
  store_options.key = throw_once_for_key;
  store_options.key_user = &host;
  const auto open = [&] {
    return cairn_store_open(has.runtime, path.c_str(), CAIRN_CSTRING, &store_options, &has.store,
                            &has.error);
  };
  EXPECT_EQ(open(), CAIRN_CANCELLED);
  EXPECT_NE(std::string_view(cairn_error_message(has.error)).find("threw"), std::string_view::npos);
  cairn_error_destroy(&has.error);
  ASSERT_EQ(open(), CAIRN_OK);
  ASSERT_EQ(cairn_session_create(has.model, has.store, "s", 1, nullptr, &has.session, nullptr),
            CAIRN_OK);
  ASSERT_EQ(cairn_session_append_user(has.session, "hello", CAIRN_CSTRING, nullptr), CAIRN_OK);
  const cairn_turn_options turn_options = short_turn();
  ASSERT_EQ(cairn_session_start_turn(has.session, &turn_options, &has.turn, nullptr), CAIRN_OK);
  while (cairn_turn_next(has.turn, -1, &has.event, nullptr) == CAIRN_OK) {
    EXPECT_EQ(cairn_event_error(has.event), nullptr);
    cairn_event_destroy(&has.event);
  }
  has.destroy();
  EXPECT_EQ(host.n_finalized, 1);
  std::cout << host.n_lines << " lines of the log threw\n";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const EntryCall& entry) { return out << entry.name; }

}  // namespace cairn::test
