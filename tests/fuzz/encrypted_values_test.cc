// Changed values of an encrypted store, and changed headers: nobody gets in, nothing comes out that
// was not written.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "session/encrypted_storage.h"
#include "tests/fuzz/mutation.h"
#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

using test::Mutation;
using test::n_inputs;

// A storage of nothing but memory.
class MapStorage final : public Storage {
 public:
  using Pairs = std::map<std::string, std::string, std::less<>>;

  Result<std::string> get(Family family, std::string_view key) override {
    const auto found = pairs(family).find(key);
    if (found == pairs(family).end()) return Status(StatusCode::kNotFound, "no such key");
    return found->second;
  }
  Result<std::vector<std::optional<std::string>>> multi_get(
      Family family, std::span<const std::string> keys) override {
    std::vector<std::optional<std::string>> values;
    for (const std::string& key : keys) {
      const auto found = pairs(family).find(key);
      values.push_back(found == pairs(family).end() ? std::nullopt : std::optional(found->second));
    }
    return values;
  }
  Status view(Family family, std::span<const std::string> keys, const KeyVisitor& visit) override {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = pairs(family).find(keys[i]);
      if (!visit(i, found == pairs(family).end()
                        ? std::nullopt
                        : std::optional<std::string_view>(found->second))) {
        break;
      }
    }
    return {};
  }
  Status scan(Family family, std::string_view prefix, std::string_view first,
              const Visitor& visit) override {
    for (auto at = pairs(family).lower_bound(std::max(prefix, first));
         at != pairs(family).end() && at->first.starts_with(prefix); ++at) {
      if (!visit(at->first, at->second)) break;
    }
    return {};
  }
  Status write(const WriteBatch& batch, Durability) override {
    for (const WriteBatch::Change& change : batch.changes()) {
      std::string value = change.head;
      value.append(reinterpret_cast<const char*>(change.body.data()), change.body.size());
      pairs(change.family).erase(change.key);
      if (!change.remove) pairs(change.family)[change.key] = value;
    }
    return {};
  }
  Status flush() override { return {}; }
  Status reclaim(Family, std::string_view, std::string_view) override { return {}; }
  Status drop_tables(Family, std::span<const KeyRange>) override { return {}; }
  std::int64_t table_bytes(Family) const override { return 0; }
  std::int64_t bytes_written() const override { return 0; }

  Pairs& pairs(Family family) { return pairs_[static_cast<std::size_t>(family)]; }

 private:
  std::array<Pairs, kFamilyCount> pairs_;
};

TEST(FuzzEncryption, a_changed_value_is_damaged_or_what_was_written) {
  constexpr std::uint32_t kSeed = 6;
  Mutation mutation(kSeed);
  SecretKey key;
  Cipher cipher = std::move(*Cipher::create(key));
  auto owned = std::make_unique<MapStorage>();
  MapStorage& below = *owned;
  const auto storage =
      encrypted_storage(std::move(owned), {std::move(cipher), std::move(key), "salt"});
  const std::vector<std::string> keys = {"name/a", "name/bb", "namespace/c"};
  std::vector<std::string> corpus;
  WriteBatch batch;
  for (const std::string& name : keys) batch.put(Family::kMeta, name, "value of " + name);
  batch.put(Family::kMeta, "name/empty", "");
  ASSERT_TRUE(storage->write(batch, Durability::kBuffered).ok());
  for (const auto& [name, value] : below.pairs(Family::kMeta)) corpus.push_back(value);

  const MapStorage::Pairs stored = below.pairs(Family::kMeta);
  int n_damaged = 0, n_same = 0;
  for (int i = 0; i < n_inputs(20'000); ++i) {
    const auto victim = std::next(stored.begin(), static_cast<std::ptrdiff_t>(mutation.below(4)));
    const std::string changed = mutation.of(corpus);
    below.pairs(Family::kMeta)[victim->first] = changed;
    ++(changed == victim->second ? n_same : n_damaged);
    int n_right = 0, n_empty = 0;
    ASSERT_TRUE(storage
                    ->scan(Family::kMeta, "", "",
                           [&](std::string_view name, std::string_view value) {
                             n_empty += value.empty();
                             n_right += value == "value of " + std::string(name);
                             return true;
                           })
                    .ok());
    ASSERT_EQ(n_right + n_empty, 4) << i;
    for (const std::string& name : keys) {
      const Result<std::string> value = storage->get(Family::kMeta, name);
      ASSERT_TRUE(value.ok() ? *value == "value of " + name
                             : value.status().code() == StatusCode::kCorrupt)
          << i;
    }
    below.pairs(Family::kMeta)[victim->first] = victim->second;
  }
  std::cout << "seed " << kSeed << ": " << n_damaged << " damaged, " << n_same << " unchanged\n";
}

TEST(FuzzEncryption, a_changed_header_opens_no_lock) {
  constexpr std::uint32_t kSeed = 7;
  Mutation mutation(kSeed);
  const StoreSecret secret = test::secret_key();
  StoreHeader header;
  header.store_id = {1, 2, 3};
  ASSERT_TRUE(StoreLock(secret).close(header).ok());
  ASSERT_TRUE(StoreLock(secret).open(header).ok());
  const std::vector<std::string> corpus = {encode(header)};
  int n_open = 0, n_shut = 0;
  for (int i = 0; i < n_inputs(30'000); ++i) {
    const Result<StoreHeader> changed = decode_store_header(mutation.of(corpus));
    if (!changed.ok()) continue;
    StoreLock lock(secret);
    const Status status = lock.open(*changed);
    ASSERT_EQ(status.ok(),
              changed->key_wrap == header.key_wrap && changed->store_id == header.store_id)
        << i << ": " << status.to_string();
    ASSERT_EQ(status.ok(), lock.take_keys().has_value());
    ++(status.ok() ? n_open : n_shut);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    }
  }
  std::cout << "seed " << kSeed << ": " << n_open << " open, " << n_shut << " shut\n";
  EXPECT_GT(n_open, 0);
  EXPECT_GT(n_shut, n_inputs(1'000));
}

}  // namespace
}  // namespace cairn::session
