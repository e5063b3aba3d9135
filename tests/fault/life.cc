#include "tests/fault/life.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "tests/fault/syscall_tap.h"

namespace cairn::test {

void Progress::begin(int k) {
  begun = k;
  tap_note(begun_note(k));
}

void Progress::acknowledge(const Script& script, int k) {
  acknowledged = k;
  if (script.step(k).durability == session::Durability::kSynced) synced = k;
  tap_note(acknowledged_note(k));
}

void read_note(const Script& script, std::int64_t note, Bounds& bounds) {
  const int k = static_cast<int>(note / 2);
  if (note == begun_note(k)) {
    bounds.last = k;
    return;
  }
  bounds.acknowledged = k;
  if (script.step(k).durability == session::Durability::kSynced) {
    bounds.first = k;
  }
}

namespace {

using OpenStore = std::unique_ptr<session::SessionStore>;

Status open_into(OpenStore& store, const std::string& directory) {
  store.reset();
  CAIRN_ASSIGN_OR_RETURN(store, session::SessionStore::open(directory));
  return {};
}

Status do_step(const Script& script, int k, OpenStore& store, const std::string& directory) {
  if (script.step(k).kind == Step::Kind::kReopen) return open_into(store, directory);
  return script.run(*store, k);
}

// What the store in a state of at least `found` says about lost commits and should not.
std::string false_alarm(const session::SessionStore& store, int found, const Bounds& bounds) {
  const StoreRecovery& recovery = store.recovery();
  if (recovery.rolled_back) return "a false alarm: " + recovery.detail;
  if (recovery.detail.empty() && recovery.commits_lost == 0) return {};
  // A step is several commits; its last ones may change nothing that a state shows.
  if (recovery.commits_lost > 0 && found <= bounds.acknowledged) return {};
  // Cut before the mark was ever synced: not known is what it says, and nothing was acknowledged.
  if (recovery.commits_lost == 0 && bounds.first == 0) return {};
  return "a report of " + std::to_string(recovery.commits_lost) + " lost commits in state " +
         std::to_string(found) + ": " + recovery.detail;
}

}  // namespace

Status live(const Script& script, const std::string& directory, int from, int to,
            Progress& progress, bool killed_at_end) {
  OpenStore store;
  CAIRN_RETURN_IF_ERROR(open_into(store, directory));
  for (int k = from + 1; k <= to; ++k) {
    progress.begin(k);
    CAIRN_RETURN_IF_ERROR(do_step(script, k, store, directory));
    progress.acknowledge(script, k);
  }
  if (killed_at_end) std::raise(SIGKILL);
  return {};
}

std::string check(const Script& script, const std::string& directory, Bounds bounds, int n_more,
                  int* found) {
  OpenStore store;
  if (const Status status = open_into(store, directory); !status.ok()) {
    return "open: " + status.to_string();
  }
  std::string why;
  const std::optional<int> k = script.find(*store, bounds.first, bounds.last, why);
  if (!k) return why;
  if (found != nullptr) *found = *k;
  if (why = false_alarm(*store, *k, bounds); !why.empty()) return why;
  if (n_more == 0) return {};

  const int end = std::min(script.n_steps(), *k + n_more);
  for (int next = *k + 1; next <= end; ++next) {
    if (const Status status = do_step(script, next, store, directory); !status.ok()) {
      return "going on with step " + std::to_string(next) + ": " + status.to_string();
    }
  }
  if (const Status status = open_into(store, directory); !status.ok()) {
    return "open after going on: " + status.to_string();
  }
  if (!script.find(*store, end, end, why)) return "after going on: " + why;
  return false_alarm(*store, end, {.first = end, .last = end, .acknowledged = end});
}

}  // namespace cairn::test
