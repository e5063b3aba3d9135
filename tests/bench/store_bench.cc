// What a long session costs its store, with blocks of the released shape: bytes written per byte of
// payload, the latency of a turn's commit against a file written and synced, and opening after the
// owner was killed.
//
//   store_bench [--blocks N] [--turns N] [--timed-turns N] [--kills N] [--store-blocks N]
//               [--groups N]
//
// Payloads are random bytes. Everything runs in a temporary folder (TMPDIR).
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "session/collector.h"
#include "session/session_store.h"
#include "tests/bench/measure.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr std::size_t kBlockBytes = 113'920, kTailBytes = 3'400'000;
constexpr std::uint32_t kTurnBlocks = 16;  // 2,048 tokens
constexpr std::size_t kGroupTokens = 8;    // of an answer, a commit
constexpr double kBytesBar = 1.25;         // of KV bytes, beside a tail a turn
constexpr double kCommitBarMs = 60;        // p99
constexpr double kReopenBarMs = 150;       // p95
constexpr const char* kSessionName = "long";

// What one commit adds. Made before the clock runs.
struct Addition {
  std::vector<test::SampleBlock> blocks;
  test::Bytes tail;  // empty: none

  std::int64_t n_bytes() const {
    return static_cast<std::int64_t>(blocks.size() * kBlockBytes + tail.size());
  }
};

// A session that grows by whole blocks; goes on with the one that is in the store.
class Writer {
 public:
  explicit Writer(session::SessionStore& store) : store_(store) {
    auto found = store.find_by_name(kSessionName);
    record_ = found.ok() ? *found : test::create(store, kSessionName);
    record_.kv_namespace = checked(store.open_namespace(test::kSampleNamespace));
  }

  Addition next(std::uint32_t n_blocks, std::size_t tail_bytes) const {
    Addition addition;
    session::BlockKey parent =
        record_.stored_blocks == 0 ? session::root_key(test::kSampleNamespace) : record_.chain_key;
    for (std::uint32_t i = 0; i < n_blocks; ++i) {
      const std::uint32_t depth = record_.stored_blocks + i;
      addition.blocks.push_back(test::sample_block(parent, depth, 1, kBlockBytes));
      parent = addition.blocks.back().key;
    }
    if (tail_bytes > 0) addition.tail = test::random_bytes(record_.stored_blocks, tail_bytes);
    return addition;
  }

  void commit(const Addition& addition) {
    session::Commit commit = begin();
    commit.events.push_back(test::user_event(++record_.head_sequence, "go on"));
    for (const test::SampleBlock& block : addition.blocks) commit.blocks.push_back(block.view());
    record_.chain_key = addition.blocks.back().key;
    record_.stored_blocks += static_cast<std::uint32_t>(addition.blocks.size());
    record_.head_tokens = std::int64_t{record_.stored_blocks} * session::kBlockTokens;
    if (!addition.tail.empty()) {
      commit.tail = session::NewTail{.position = record_.head_tokens,
                                     .chain_key = record_.chain_key,
                                     .sequence = record_.head_sequence,
                                     .payload = addition.tail};
    }
    finish(commit);
  }

  // A group of tokens of an answer, not synced.
  void commit_group() {
    session::Commit commit = begin();
    commit.durability = session::Durability::kBuffered;
    const std::uint64_t sequence = ++record_.head_sequence;
    commit.events.push_back(test::token_event(
        sequence, test::random_tokens(static_cast<std::uint32_t>(sequence), kGroupTokens)));
    finish(commit);
  }

 private:
  session::Commit begin() const {
    session::Commit commit;
    commit.session = record_.id;
    commit.kv_namespace = record_.kv_namespace;
    return commit;
  }
  void finish(session::Commit& commit) {
    ++record_.n_events;
    commit.record = record_;
    check(store_.commit(commit).status());
  }

  session::SessionStore& store_;
  session::SessionRecord record_;
};

std::unique_ptr<session::SessionStore> open_store(const std::string& path) {
  return checked(session::SessionStore::open(path));
}

// --- Bytes written.

struct Written {
  std::int64_t payload = 0, by_storage = 0;
  Usage usage;  // its CPU time: while commits ran
};

// Commits `n_commits` times; making what is committed writes nothing.
Written write(session::SessionStore& store, Writer& writer, std::uint32_t n_commits,
              std::uint32_t n_blocks, std::size_t tail_bytes) {
  Written written;
  const std::int64_t storage_before = store.storage().bytes_written();
  const Usage before = usage();
  double cpu_s = 0;
  for (std::uint32_t i = 0; i < n_commits; ++i) {
    const Addition addition = writer.next(n_blocks, tail_bytes);
    const double cpu_before = usage().cpu_s;
    writer.commit(addition);
    cpu_s += usage().cpu_s - cpu_before;
    written.payload += addition.n_bytes();
  }
  written.usage = usage() - before;
  written.usage.cpu_s = cpu_s;
  written.by_storage = store.storage().bytes_written() - storage_before;
  return written;
}

void report(const char* name, const Written& written) {
  const auto payload = static_cast<double>(written.payload);
  std::printf(
      "%-8s %6.1f MB of payload; written per byte: storage %.3f, wchar %.3f, write_bytes %.3f; "
      "CPU %.2f s/GB\n",
      name, payload / 1e6, static_cast<double>(written.by_storage) / payload,
      static_cast<double>(written.usage.n_handed) / payload,
      static_cast<double>(written.usage.n_dirtied) / payload, written.usage.cpu_s / payload * 1e9);
}

void measure_bytes(const std::string& path, const Flags& flags) {
  const auto n_blocks = static_cast<std::uint32_t>(flags.number("--blocks", 782));
  const auto n_turns = static_cast<std::uint32_t>(flags.number("--turns", 50));
  auto store = open_store(path);
  Writer writer(*store);
  report("prefill", write(*store, writer, n_blocks / kTurnBlocks, kTurnBlocks, 0));
  const Written turns = write(*store, writer, n_turns, kTurnBlocks, kTailBytes);
  report("turns", turns);
  // Against the larger of the kernel's counts: whole pages, closing included.
  const Usage before = usage();
  store.reset();
  const Usage closing = usage() - before;
  const double kv = double{kBlockBytes} * kTurnBlocks * n_turns;
  const double beside_tails =
      static_cast<double>(turns.usage.n_dirtied + closing.n_dirtied) - double{kTailBytes} * n_turns;
  std::printf(
      "         closing wrote %.2f MB; beside one tail a turn: %.3f of the KV bytes, "
      "%.0f bytes a token (bar %.2f: %s)\n",
      static_cast<double>(closing.n_dirtied) / 1e6, beside_tails / kv,
      beside_tails / n_turns / kTurnBlocks / session::kBlockTokens, kBytesBar,
      verdict(beside_tails / kv <= kBytesBar));
}

// --- Latency of commits.

void write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n <= 0) check({StatusCode::kIoError, "write failed"});
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

// The same bytes as one new file, synced.
void write_file(const std::string& path, const Addition& addition) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (const test::SampleBlock& block : addition.blocks) write_all(file, block.payload);
  write_all(file, addition.tail);
  if (fdatasync(file) != 0) check({StatusCode::kIoError, "fdatasync failed"});
  close(file);
}

void print_times(const char* name, const std::vector<double>& ms) {
  std::printf("%-28s p50 %6.1f   p95 %6.1f   p99 %6.1f   max %6.1f ms of %zu\n", name, median(ms),
              percentile(ms, 0.95), percentile(ms, 0.99), percentile(ms, 1), ms.size());
}

void measure_commits(const std::string& path, const std::string& folder, const Flags& flags) {
  auto store = open_store(path);
  const session::Collector collector(*store);  // as beside every Store
  Writer writer(*store);
  std::vector<double> commits, files;
  for (int i = 0; i < flags.number("--timed-turns", 200); ++i) {  // in turns: the same machine
    const Addition addition = writer.next(kTurnBlocks, kTailBytes);
    const std::string file = folder + "/file-" + std::to_string(i);
    files.push_back(timed_ms([&] { write_file(file, addition); }));
    commits.push_back(timed_ms([&] { writer.commit(addition); }));
    unlink(file.c_str());
  }
  print_times("commit of a turn with tail", commits);
  print_times("one file, fdatasync", files);
  const double p99 = percentile(commits, 0.99);
  std::printf("  ratio to the file: p50 %.2f, p95 %.2f, p99 %.2f (bar p99 %.0f ms: %s)\n",
              median(commits) / median(files), percentile(commits, 0.95) / percentile(files, 0.95),
              p99 / percentile(files, 0.99), kCommitBarMs, verdict(p99 <= kCommitBarMs));
}

// --- Opening after the owner was killed.

// The owner: commits a turn and groups of tokens, says so on standard output, and goes on with
// turns until it is killed.
[[noreturn]] void own(const std::string& path, int n_groups) {
  auto store = open_store(path);
  Writer writer(*store);
  writer.commit(writer.next(kTurnBlocks, kTailBytes));
  for (int i = 0; i < n_groups; ++i) writer.commit_group();
  if (::write(STDOUT_FILENO, "r", 1) != 1) std::exit(1);
  for (;;) writer.commit(writer.next(1, kTailBytes));
}

// Starts an owner, lets it work, kills it.
void kill_an_owner(const std::string& path, int n_groups, std::chrono::milliseconds delay) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) check({StatusCode::kIoError, "pipe failed"});
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  std::vector<std::string> words = {"store_bench", "--own", path, "--groups",
                                    std::to_string(n_groups)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t owner = 0;
  if (posix_spawn(&owner, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0) {
    check({StatusCode::kIoError, "cannot start an owner"});
  }
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  char ready = 0;
  if (read(pipe_ends[0], &ready, 1) != 1) check({StatusCode::kIoError, "the owner failed"});
  close(pipe_ends[0]);
  std::this_thread::sleep_for(delay);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
}

void measure_reopening(const std::string& path, const Flags& flags) {
  const int n_kills = flags.number("--kills", 30);
  if (n_kills < 1) return;
  const auto n_blocks = static_cast<std::uint32_t>(flags.number("--store-blocks", 4400));
  {
    auto store = open_store(path);
    Writer writer(*store);
    write(*store, writer, n_blocks / kTurnBlocks, kTurnBlocks, 0);
    std::printf("store of %.0f MB\n",
                static_cast<double>(checked(store->stats()).bytes_on_disk) / 1e6);
  }
  std::mt19937 random(1);
  const int n_full_log = flags.number("--groups", 20'000);
  std::vector<double> after_answer, after_full_log, after_close;
  for (int i = 0; i < n_kills; ++i) {
    for (const int n_groups : {256, n_full_log}) {
      kill_an_owner(path, n_groups, std::chrono::milliseconds(random() % 100));
      std::unique_ptr<session::SessionStore> store;
      (n_groups == 256 ? after_answer : after_full_log).push_back(timed_ms([&] {
        store = open_store(path);
      }));
      if (store->recovery().rolled_back) check({StatusCode::kCorrupt, "the store went back"});
    }
    after_close.push_back(timed_ms([&] { open_store(path); }));
  }
  print_times("opening, log of one answer", after_answer);
  print_times("opening, log of many groups", after_full_log);
  print_times("opened and closed again", after_close);
  const double p95 = percentile(after_answer, 0.95);
  std::printf("  ratio to opening and closing: p50 %.2f (bar p95 %.0f ms: %s; many groups: %s)\n",
              median(after_answer) / median(after_close), kReopenBarMs,
              verdict(p95 <= kReopenBarMs),
              verdict(percentile(after_full_log, 0.95) <= kReopenBarMs));
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  const std::string owned = flags.text("--own");
  if (!owned.empty()) own(owned, flags.number("--groups", 0));
  const test::TemporaryFolder folder;
  print_load();
  measure_bytes(folder / "bytes", flags);
  measure_commits(folder / "bytes", folder.path().string(), flags);
  std::filesystem::remove_all(folder / "bytes");
  measure_reopening(folder / "killed", flags);
  print_load();
  return 0;
}
