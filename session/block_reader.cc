// One thread for each restore: it lives for the milliseconds that reading takes, and a pool would
// have to be shared fairly between restores. The queue is bounded, so a strand that is busy with
// other turns holds a few megabytes of pages, not a whole session's.
#include "session/block_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace cairn::session {

BlockReader::BlockReader(BlockStore& store, std::vector<FoundBlock> blocks)
    : store_(store), blocks_(std::move(blocks)), thread_([this] { run(); }) {}

BlockReader::~BlockReader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

BlockReader::Batch BlockReader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || out_of_memory_; });
  if (ready_.empty()) {
    Batch batch;
    batch.status = {StatusCode::kOutOfMemory, "out of memory while blocks were read",
                    "free memory, then resume the turn"};
    batch.last = true;
    return batch;
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

void BlockReader::run() noexcept {
  try {
    std::size_t first = 0;
    for (bool last = false; !last && !is_stopped(); first += kReadBatchBlocks) {
      Batch batch = read(first);
      last = batch.last;
      hand_over(std::move(batch));
    }
  } catch (...) {  // nothing here throws but for want of memory
    const std::lock_guard lock(mutex_);
    out_of_memory_ = true;
    changed_.notify_all();
  }
}

BlockReader::Batch BlockReader::read(std::size_t first) {
  const std::size_t n = std::min(kReadBatchBlocks, blocks_.size() - first);
  Batch batch;
  batch.pages.reserve(n);
  batch.status = store_.view(std::span(blocks_).subspan(first, n),
                             [&](std::span<const std::byte> payload, std::int64_t n_bytes_read) {
                               auto page = std::make_shared<engine::KvPage>();
                               page->bytes.assign(payload.begin(), payload.end());
                               batch.pages.push_back(std::move(page));
                               batch.n_bytes_read += n_bytes_read;
                             });
  batch.last = !batch.status.ok() || first + n == blocks_.size();
  return batch;
}

void BlockReader::hand_over(Batch batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_.size() < kReadBatchesAhead || stopped_; });
  ready_.push_back(std::move(batch));
  changed_.notify_all();
}

bool BlockReader::is_stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace cairn::session
