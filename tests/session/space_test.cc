// Admission under a quota, on numbers alone.
#include "session/space.h"

#include <gtest/gtest.h>

#include <random>

namespace cairn::session {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

struct SampleSpace {
  Space::Gauge gauge;
  bool fails = false;
  int n_measured = 0;
  Space space;

  explicit SampleSpace(std::int64_t quota)
      : space("store", quota, [this]() -> Result<Space::Gauge> {
          ++n_measured;
          if (fails) return Status(StatusCode::kIoError, "unreadable");
          return gauge;
        }) {
    EXPECT_TRUE(space.measure().ok());
  }
  bool admits(const Space::Load& load) {
    const Status status = space.enter(load);
    if (status.ok()) space.leave(load);
    return status.ok();
  }
};

constexpr Space::Load state(std::int64_t n_bytes) {
  return {.kind = Space::Kind::kState, .bulk = n_bytes};
}
constexpr Space::Load records(std::int64_t n_bytes) {
  return {.kind = Space::Kind::kRecords, .logged = n_bytes};
}

TEST(Space, state_stops_before_records_and_removals_never_do) {
  SampleSpace sample(64 * kMiB);
  std::int64_t n_state = 0, n_records = 0;
  while (sample.admits(state(kMiB))) n_state += kMiB;
  EXPECT_GE(n_state, 40 * kMiB);
  EXPECT_LE(n_state, 48 * kMiB);
  while (sample.admits(records(10'000))) n_records += 10'000;
  EXPECT_GT(n_records, 2 * kMiB);
  EXPECT_LT(n_state + 2 * n_records, 64 * kMiB);
  EXPECT_TRUE(sample.admits({.kind = Space::Kind::kRemovals, .logged = 10'000}));
}

TEST(Space, a_refusal_names_the_numbers_and_counts_nothing) {
  SampleSpace sample(64 * kMiB);
  const std::int64_t before = sample.space.bytes_on_disk();
  const Status status = sample.space.enter(state(100 * kMiB));
  EXPECT_EQ(status.code(), StatusCode::kOutOfDisk);
  EXPECT_NE(status.message().find("quota of 67108864 bytes"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("104857600"), std::string::npos);
  EXPECT_EQ(sample.space.bytes_on_disk(), before);
}

TEST(Space, what_is_in_flight_counts_until_it_is_measured) {
  SampleSpace sample(64 * kMiB);
  const Space::Load load = state(20 * kMiB);
  ASSERT_TRUE(sample.space.enter(load).ok());
  EXPECT_FALSE(sample.space.enter(state(40 * kMiB)).ok());
  ASSERT_TRUE(sample.space.measure().ok());  // perhaps before it reached the disk
  EXPECT_EQ(sample.space.bytes_on_disk(), 20 * kMiB);
  sample.space.leave(load);
  EXPECT_EQ(sample.space.bytes_on_disk(), 20 * kMiB);
  sample.gauge.bytes_on_disk = 21 * kMiB;
  ASSERT_TRUE(sample.space.measure().ok());
  EXPECT_EQ(sample.space.bytes_on_disk(), 21 * kMiB);
}

TEST(Space, pressure_calls_before_state_is_refused) {
  SampleSpace sample(256 * kMiB);
  int n_calls = 0;
  sample.space.on_pressure([&] { ++n_calls; });
  std::int64_t n_state = 0;
  while (n_calls == 0) {
    ASSERT_TRUE(sample.admits(state(kMiB)));
    n_state += kMiB;
  }
  EXPECT_TRUE(sample.space.under_pressure());
  EXPECT_TRUE(sample.admits(state(kMiB)));
  EXPECT_GT(n_state, sample.space.low_mark());
  sample.gauge.bytes_on_disk = sample.space.low_mark() - 1;
  ASSERT_TRUE(sample.space.measure().ok());
  EXPECT_FALSE(sample.space.under_pressure());
  EXPECT_FALSE(sample.space.enter(state(256 * kMiB)).ok());
  EXPECT_TRUE(sample.space.under_pressure());  // there is room, but not for what was asked
  sample.space.forget_refused();
  EXPECT_FALSE(sample.space.under_pressure());
}

TEST(Space, a_directory_that_cannot_be_measured_admits_nothing_more_when_it_seems_full) {
  SampleSpace sample(64 * kMiB);
  sample.gauge.bytes_on_disk = 63 * kMiB;
  ASSERT_TRUE(sample.space.measure().ok());
  sample.fails = true;
  EXPECT_FALSE(sample.admits(state(kMiB)));
}

TEST(Space, a_directory_is_not_walked_for_every_refusal) {
  SampleSpace sample(64 * kMiB);
  sample.gauge.bytes_on_disk = 63 * kMiB;
  ASSERT_TRUE(sample.space.measure().ok());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(sample.admits(state(kMiB)));
  EXPECT_LT(sample.n_measured, 100);
}

// A simulated database: log, tables that repeat it, a family of records that is rewritten. Nothing
// that is admitted takes it over the quota, at any instant of its worst case.
TEST(Space, no_order_of_writes_takes_a_database_over_its_quota) {
  std::mt19937 random(11);
  std::int64_t n_admitted = 0, n_refused = 0;
  for (int trace = 0; trace < 300; ++trace) {
    SampleSpace sample((64 + random() % 200) * kMiB);
    std::int64_t log = 0, records_bytes = 0, state_bytes = 0;
    const auto peak = [&] {  // the log is flushed and, at the same time, a family is rewritten
      return log + log + 2 * records_bytes + state_bytes;
    };
    for (int step = 0; step < 2000; ++step) {
      const auto n_bytes = static_cast<std::int64_t>(random() % (2 * kMiB));
      if (random() % 3 == 0) {
        if (sample.admits(state(n_bytes))) {
          state_bytes += n_bytes;
          ++n_admitted;
        } else {
          ++n_refused;
        }
      } else if (sample.admits(records(n_bytes / 8))) {
        log += n_bytes / 8;
        ++n_admitted;
        if (log > 8 * kMiB) {
          records_bytes += log;
          log = 0;
        }
      }
      ASSERT_LE(peak(), sample.space.quota()) << "trace " << trace << ", step " << step;
      if (random() % 50 == 0) {
        sample.gauge = {log + records_bytes + state_bytes, records_bytes};
        ASSERT_TRUE(sample.space.measure().ok());
      }
      if (random() % 200 == 0) state_bytes /= 2;  // collected
    }
  }
  std::printf("%lld writes admitted, %lld refused\n", static_cast<long long>(n_admitted),
              static_cast<long long>(n_refused));
  EXPECT_GT(n_refused, 1000);
}

}  // namespace
}  // namespace cairn::session
