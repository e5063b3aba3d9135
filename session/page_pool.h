// The KV pages that are live in a process, by the key of their block: sessions whose prompts begin
// alike hold the pages of the common part once.
#ifndef CAIRN_SESSION_PAGE_POOL_H_
#define CAIRN_SESSION_PAGE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "engine/kv_page.h"
#include "session/block_key.h"

namespace cairn::session {

// Keeps no page alive: a page is here for as long as a sequence holds it. What may share a page is
// decided by the key alone, as on disk: model, KV format, salt, tokens and provenance are in it.
// Safe from any thread.
class PagePool {
 public:
  // Null where no live sequence holds the block.
  engine::KvPagePtr find(const BlockKey& key);
  // The page that everybody is to use for the block: one that is live, else `page` from now on.
  engine::KvPagePtr share(const BlockKey& key, engine::KvPagePtr page);
  // Of all pages that are live, each counted once.
  std::int64_t bytes();

 private:
  void forget_dead();  // under mutex_

  std::mutex mutex_;  // guards what follows
  std::unordered_map<BlockKey, std::weak_ptr<const engine::KvPage>, BlockKeyHash> pages_;
  std::size_t n_after_forgetting_ = 0;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_PAGE_POOL_H_
