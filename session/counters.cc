// The counters are a record like others, but one whose loss is harmless: where it does not check,
// counting begins again.
#include "session/counters.h"

#include <string>

#include "session/records.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {

Status Counters::load(Storage& storage) {
  const Result<std::string> content = get_record(storage, Family::kMeta, std::string(kCountersKey));
  if (content.status().code() == StatusCode::kNotFound ||
      content.status().code() == StatusCode::kCorrupt) {
    return {};
  }
  if (!content.ok()) return content.status();
  Result<StoreCounters> counters = decode_store_counters(*content);
  const std::lock_guard lock(mutex_);
  if (counters.ok()) counters_ = *counters;
  return {};
}

void Counters::change(const std::function<void(StoreCounters&)>& change) {
  const std::lock_guard lock(mutex_);
  change(counters_);
}

void Counters::add_turn(const TurnUsage& usage) {
  const std::lock_guard lock(mutex_);
  const ReuseReport& reuse = usage.reuse;
  ++counters_.turns;
  counters_.tokens_from_memory += reuse.from_memory;
  counters_.tokens_from_disk += reuse.from_disk;
  counters_.tokens_replayed += reuse.replayed;
  counters_.tokens_prefilled += reuse.prefilled;
  counters_.tokens_generated += usage.output_tokens - usage.resumed_tokens;
  const auto cause = static_cast<std::size_t>(reuse.cause);
  if (cause < counters_.misses.size()) ++counters_.misses[cause];
}

StoreCounters Counters::get(const Storage& storage) const {
  const std::lock_guard lock(mutex_);
  StoreCounters counters = counters_;
  counters.bytes_written += storage.bytes_written();
  return counters;
}

Status Counters::put(const Storage& storage, WriteBatch& batch) const {
  const std::string key(kCountersKey);
  CAIRN_ASSIGN_OR_RETURN(std::string value, seal_record(Family::kMeta, key, encode(get(storage))));
  batch.put(Family::kMeta, key, std::move(value));
  return {};
}

}  // namespace cairn::session
