// Entries of dead pages are removed when the pool has doubled since the last time, so that each is
// looked at a constant number of times: a page that tells the pool of its end would have to know
// it.
#include "session/page_pool.h"

#include <algorithm>
#include <utility>

namespace cairn::session {
namespace {

constexpr std::size_t kForgetFrom = 64;  // entries; below that it is not worth while

}  // namespace

engine::KvPagePtr PagePool::find(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(key);
  return found == pages_.end() ? nullptr : found->second.lock();
}

engine::KvPagePtr PagePool::share(const BlockKey& key, engine::KvPagePtr page) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const engine::KvPage>& entry = pages_[key];
  if (engine::KvPagePtr live = entry.lock()) return live;
  entry = page;
  if (pages_.size() >= 2 * std::max(n_after_forgetting_, kForgetFrom)) forget_dead();
  return page;
}

std::int64_t PagePool::bytes() {
  const std::lock_guard lock(mutex_);
  forget_dead();
  std::int64_t n_bytes = 0;
  for (const auto& [key, entry] : pages_) {
    if (const engine::KvPagePtr page = entry.lock()) {
      n_bytes += static_cast<std::int64_t>(page->bytes.size());
    }
  }
  return n_bytes;
}

void PagePool::forget_dead() {
  std::erase_if(pages_, [](const auto& entry) { return entry.second.expired(); });
  n_after_forgetting_ = pages_.size();
}

}  // namespace cairn::session
