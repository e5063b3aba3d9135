// Holders are told on the strand, where their state may be changed, and without a lock, since they
// write to the disk. A holder that ends meanwhile waits: it is destroyed by the thread of its
// owner, never by the strand.
#include "session/live_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace cairn::session {
namespace {

constexpr std::int64_t kShareOfMachine = 8;
constexpr std::size_t kLastUsedStay = 2;

}  // namespace

std::int64_t LiveMemory::default_budget() {
  const std::int64_t n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  constexpr std::int64_t kFallback = std::int64_t{1} << 30;  // where the system does not say
  return n_pages > 0 && page_bytes > 0 ? n_pages * page_bytes / kShareOfMachine : kFallback;
}

LiveMemory::Entries::iterator LiveMemory::find(const LiveHolder& holder) {
  return std::ranges::find(entries_, &holder, &Entry::holder);
}

void LiveMemory::add(LiveHolder& holder) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({.holder = &holder});
}

void LiveMemory::remove(LiveHolder& holder) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return put_away_now_ != &holder; });
  entries_.erase(find(holder));
}

std::int64_t LiveMemory::private_bytes() const {
  std::int64_t n_bytes = 0;
  for (const Entry& entry : entries_) n_bytes += entry.private_bytes;
  return n_bytes;
}

std::int64_t LiveMemory::bytes() {
  const std::int64_t n_pool_bytes = pool_.bytes();
  const std::lock_guard lock(mutex_);
  return n_pool_bytes + private_bytes();
}

void LiveMemory::used(LiveHolder& holder, std::int64_t private_bytes) {
  std::unique_lock lock(mutex_);
  const Entries::iterator entry = find(holder);
  entry->live = true;
  entry->private_bytes = private_bytes;
  entries_.splice(entries_.begin(), entries_, entry);
  keep_within_budget(lock);
}

LiveMemory::Entries::iterator LiveMemory::next_to_go() {
  Entries::iterator found = entries_.end();
  std::size_t n_live = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->live && n_live++ >= kLastUsedStay && !entry->asked) found = entry;
  }
  return found;
}

void LiveMemory::keep_within_budget(std::unique_lock<std::mutex>& lock) {
  for (Entry& entry : entries_) entry.asked = false;
  while (pool_.bytes() + private_bytes() > budget_) {
    const Entries::iterator entry = next_to_go();
    if (entry == entries_.end()) return;
    entry->asked = true;
    put_away_now_ = entry->holder;  // so the entry stays
    lock.unlock();
    const bool gone = entry->holder->put_away();
    lock.lock();
    put_away_now_ = nullptr;
    changed_.notify_all();
    if (!gone) continue;
    entry->live = false;
    entry->private_bytes = 0;
  }
}

}  // namespace cairn::session
