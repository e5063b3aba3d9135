// Nothing reaches the disk around this: sessions, blocks, tails, counters and the collector all
// write batches.
#include "session/bounded_storage.h"

#include <utility>

namespace cairn::session {
namespace {

// Lengths, sequence numbers and checksums that the database adds to a change.
constexpr std::int64_t kChangeBytes = 64;

bool is_state(const WriteBatch::Change& change) {
  return !change.remove && (change.family == Family::kBlocks || change.family == Family::kTails);
}

Space::Load load_of(const WriteBatch& batch) {
  Space::Load load;
  load.kind = Space::Kind::kRemovals;
  const bool ingested = batch.bulk_bytes() >= kBulkBytesMin;
  for (const WriteBatch::Change& change : batch.changes()) {
    const auto n_bytes =
        static_cast<std::int64_t>(change.key.size() + change.head.size() + change.body.size()) +
        kChangeBytes;
    (change.bulk && ingested ? load.bulk : load.logged) += n_bytes;
    if (is_state(change)) {
      load.kind = Space::Kind::kState;
    } else if (!change.remove && load.kind == Space::Kind::kRemovals) {
      load.kind = Space::Kind::kRecords;
    }
  }
  return load;
}

class BoundedStorage final : public Storage {
 public:
  BoundedStorage(std::unique_ptr<Storage> inner, Space& space)
      : inner_(std::move(inner)), space_(space) {}

  Result<std::string> get(Family family, std::string_view key) override {
    return inner_->get(family, key);
  }
  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    return inner_->multi_get(family, keys);
  }
  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    return inner_->view(family, keys, visit);
  }
  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    return inner_->scan(family, prefix, first, visit);
  }

  Status write(const WriteBatch& batch, Durability durability) override {
    if (batch.empty()) return inner_->write(batch, durability);
    const Space::Load load = load_of(batch);
    CAIRN_RETURN_IF_ERROR(space_.enter(load));
    struct Leaving {  // where memory ends within the write too
      Space& space;
      const Space::Load& load;
      ~Leaving() { space.leave(load); }
    } const leaving{space_, load};
    return inner_->write(batch, durability);
  }

  Status flush() override { return inner_->flush(); }
  Status reclaim(Family family, std::string_view first, std::string_view last) override {
    return inner_->reclaim(family, first, last);
  }
  Status drop_tables(Family family, std::span<const KeyRange> ranges) override {
    return inner_->drop_tables(family, ranges);
  }
  std::int64_t table_bytes(Family family) const override { return inner_->table_bytes(family); }
  std::int64_t bytes_written() const override { return inner_->bytes_written(); }

 private:
  std::unique_ptr<Storage> inner_;
  Space& space_;
};

}  // namespace

std::unique_ptr<Storage> bound_storage(std::unique_ptr<Storage> inner, Space& space) {
  return std::make_unique<BoundedStorage>(std::move(inner), space);
}

}  // namespace cairn::session
