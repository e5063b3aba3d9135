// What a cairn::Store handle shares: the durable store, and the runtime that it keeps alive.
#ifndef CAIRN_SESSION_STORE_STATE_H_
#define CAIRN_SESSION_STORE_STATE_H_

#include <memory>
#include <utility>

#include "cairn/store.h"
#include "session/collector.h"
#include "session/live_memory.h"
#include "session/page_pool.h"
#include "session/session_store.h"

namespace cairn::session {

// Safe from any thread. The store's directory is released when the last handle, session or turn
// that shares the state is gone.
class StoreState {
 public:
  // `live_bytes`: the budget for live KV.
  StoreState(std::shared_ptr<engine::RuntimeState> runtime, std::unique_ptr<SessionStore> store,
             std::int64_t live_bytes = LiveMemory::default_budget())
      : runtime_(std::move(runtime)),
        store_(std::move(store)),
        live_memory_(live_bytes, pages_),
        collector_(*store_) {}

  const std::shared_ptr<engine::RuntimeState>& runtime() const { return runtime_; }
  SessionStore& store() const { return *store_; }
  // Of the live state of all sessions.
  PagePool& pages() { return pages_; }
  LiveMemory& live_memory() { return live_memory_; }
  Collector& collector() { return collector_; }

 private:
  std::shared_ptr<engine::RuntimeState> runtime_;
  std::unique_ptr<SessionStore> store_;
  PagePool pages_;
  LiveMemory live_memory_;
  Collector collector_;  // after store_: it ends first
};

SessionInfo session_info(const SessionRecord& record);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORE_STATE_H_
