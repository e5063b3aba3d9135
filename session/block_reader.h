// Reads blocks of a store on a thread of its own, ahead of the strand that takes them: while one
// batch is put into a sequence the next ones are read and checked.
#ifndef CAIRN_SESSION_BLOCK_READER_H_
#define CAIRN_SESSION_BLOCK_READER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cairn/status.h"
#include "engine/kv_page.h"
#include "session/block_store.h"

namespace cairn::session {

inline constexpr std::size_t kReadBatchBlocks = 16;  // 1.8 MB at the released shape
inline constexpr std::size_t kReadBatchesAhead = 4;  // read and not yet taken, at most

// Blocks come in the order they were asked for, and nothing comes after the first that fails: what
// the user sees does not depend on how far ahead the reading is. Confined to one thread, its own
// apart.
class BlockReader {
 public:
  // Borrows the store and the tokens of `blocks`. Throws where there is no thread to be had.
  BlockReader(BlockStore& store, std::vector<FoundBlock> blocks);
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  ~BlockReader();  // waits for the block that is being read

  struct Batch {
    std::vector<engine::KvPagePtr> pages;  // of blocks that checked
    std::int64_t n_bytes_read = 0;
    Status status;      // of the block behind them, as BlockStore::view; Ok where it was read too
    bool last = false;  // nothing comes after this batch
  };
  // The next batch, waiting for it. Not after the last one.
  Batch next();

 private:
  void run() noexcept;
  Batch read(std::size_t first);
  void hand_over(Batch batch);
  bool is_stopped();

  BlockStore& store_;
  const std::vector<FoundBlock> blocks_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  bool stopped_ = false, out_of_memory_ = false;

  std::thread thread_;  // last: uses all of the above
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BLOCK_READER_H_
