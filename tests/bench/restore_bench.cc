// How fast the blocks of a long session come back from the disk, against reading as many bytes of
// one file: restore_bench [--blocks n] [--runs n] [--folder path]. Both sides make memory that is
// kept and check every byte with a checksum where that is said. Prints medians and ratios; cold
// runs have no page of the files in memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "session/block_reader.h"
#include "session/session_store.h"
#include "tests/bench/measure.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr std::size_t kBlockBytes = 113'920;  // of the released shape
constexpr std::size_t kCommitted = 16;        // blocks a commit, as a prefill does

// Takes a file's pages out of memory. They must be on the disk.
void forget(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)fdatasync(file);
  (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

void forget_all(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) forget(entry.path());
  }
}

// --- One file, read a block at a time into memory that is kept.

void write_file(const std::filesystem::path& path, const std::vector<test::SampleBlock>& chain) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  for (const test::SampleBlock& block : chain) {
    (void)std::fwrite(block.payload.data(), 1, block.payload.size(), file);
  }
  std::fclose(file);
}

double read_file(const std::filesystem::path& path, std::size_t n_blocks) {
  const Clock::time_point start = Clock::now();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::unique_ptr<std::byte[]>> kept;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    kept.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlockBytes));
    if (read(file, kept.back().get(), kBlockBytes) != static_cast<ssize_t>(kBlockBytes)) return 0;
  }
  close(file);
  return ms_since(start);
}

// --- The store.

void fill(session::SessionStore& store, const std::vector<test::SampleBlock>& chain) {
  const session::SessionRecord record = test::create(store, "s");
  const std::uint32_t kv_namespace = *store.open_namespace(test::kSampleNamespace);
  for (std::size_t at = 0; at < chain.size(); at += kCommitted) {
    session::Commit commit;
    commit.session = record.id;
    commit.kv_namespace = kv_namespace;
    for (std::size_t i = at; i < std::min(at + kCommitted, chain.size()); ++i) {
      commit.blocks.push_back(chain[i].view());
    }
    if (!store.commit(commit).ok()) std::exit(2);
  }
}

// As a restore does: names, index, values checked and made pages on the reader's thread, taken in
// order by this one.
double restore(session::SessionStore& store, const std::vector<test::SampleBlock>& chain) {
  const Clock::time_point start = Clock::now();
  std::vector<session::BlockKey> keys;
  for (const test::SampleBlock& block : chain) {
    keys.push_back(session::block_key(keys.empty() ? chain[0].parent : keys.back(),
                                      session::Provenance::kExact, block.tokens));
  }
  const session::FoundBlocks found = *store.blocks().find_all(keys);
  std::vector<session::FoundBlock> blocks;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    blocks.push_back({keys[i], chain[i].tokens, *found.records[i]});
  }
  session::BlockReader reader(store.blocks(), std::move(blocks));
  std::vector<engine::KvPagePtr> kept;
  for (bool last = false; !last;) {
    session::BlockReader::Batch batch = reader.next();
    if (!batch.status.ok()) std::exit(3);
    kept.insert(kept.end(), batch.pages.begin(), batch.pages.end());
    last = batch.last;
  }
  const double ms = ms_since(start);
  if (kept.size() != chain.size() || kept.back()->bytes != chain.back().payload) std::exit(4);
  return ms;
}

void report(const char* name, const std::vector<double>& file, const std::vector<double>& store,
            double n_bytes) {
  const double a = median(file), b = median(store);
  std::printf("%-5s file %6.1f ms (%5.0f MB/s)   restore %6.1f ms (%5.0f MB/s)   ratio %.2f\n",
              name, a, n_bytes / a / 1e3, b, n_bytes / b / 1e3, b / a);
}

void run(const Flags& flags, const std::filesystem::path& folder) {
  const auto n_blocks = static_cast<std::size_t>(flags.number("--blocks", 782));  // 100k tokens
  const std::vector<test::SampleBlock> chain =
      test::sample_chain(1, static_cast<std::uint32_t>(n_blocks), kBlockBytes);
  const std::filesystem::path file = folder / "one-file";
  write_file(file, chain);
  { fill(*test::open_store((folder / "store").string()), chain); }
  const auto store = test::open_store((folder / "store").string());
  for (const bool cold : {true, false}) {
    std::vector<double> file_runs, store_runs;
    if (!cold) restore(*store, chain);
    for (int i = 0; i < flags.number("--runs", 7); ++i) {  // in turns: both see the same machine
      if (cold) forget(file);
      file_runs.push_back(read_file(file, n_blocks));
      if (cold) forget_all(folder / "store");
      store_runs.push_back(restore(*store, chain));
    }
    report(cold ? "cold" : "warm", file_runs, store_runs,
           static_cast<double>(n_blocks * kBlockBytes));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  const std::string folder = flags.text("--folder");
  const test::TemporaryFolder temporary;
  print_load();
  run(flags, folder.empty() ? temporary.path() : std::filesystem::path(folder));
  return 0;
}
