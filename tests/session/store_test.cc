#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/session.h"
#include "session/store_state.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

Runtime runtime() {
  RuntimeOptions options;
  options.compute_threads = 1;
  auto made = Runtime::create(options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *made;
}

TEST(Store, lists_and_removes_sessions_without_a_model) {
  const test::TemporaryFolder folder;
  auto store = Store::open(runtime(), folder / "store");
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_EQ(store->list()->size(), 0u);
  for (const auto& [name, used_ms] : {std::pair("old", 10), std::pair("new", 20)}) {
    session::SessionRecord record = test::create(store->state()->store(), name);
    record.used_ms = used_ms;
    record.n_events = 3;
    record.head_tokens = 400;
    record.turn_open = true;
    ASSERT_TRUE(store->state()->store().commit({.session = record.id, .record = record}).ok());
  }
  const auto sessions = store->list();
  ASSERT_EQ(sessions->size(), 2u);
  const SessionInfo& newest = (*sessions)[0];
  EXPECT_EQ(newest.name, "new");
  EXPECT_EQ(newest.id.size(), 32u);
  EXPECT_EQ(newest.model_fingerprint, "fingerprint");
  EXPECT_EQ(newest.used_ms, 20);
  EXPECT_EQ(newest.n_events, 3);
  EXPECT_EQ(newest.n_tokens, 400);
  EXPECT_TRUE(newest.turn_open);
  EXPECT_EQ(store->stats()->n_sessions, 2);
  EXPECT_GT(store->stats()->bytes_on_disk, 0);
  EXPECT_TRUE(store->remove("old").ok());
  EXPECT_EQ(store->remove("old").code(), StatusCode::kNotFound);
  EXPECT_EQ(store->list()->size(), 1u);
}

TEST(Store, a_session_that_is_open_is_not_removed) {
  const test::TemporaryFolder folder;
  auto store = Store::open(runtime(), folder / "store");
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  const session::SessionId id = test::create(store->state()->store(), "name").id;
  {
    const auto lease = store->state()->store().lease(id);
    EXPECT_EQ(store->remove("name").code(), StatusCode::kBusy);
  }
  EXPECT_TRUE(store->remove("name").ok());
}

TEST(Store, is_free_again_once_its_last_handle_is_gone) {
  const test::TemporaryFolder folder;
  const Runtime shared = runtime();
  EXPECT_EQ(Store::open(shared, folder / "store", {.create_if_missing = false}).status().code(),
            StatusCode::kNotFound);
  {
    const auto first = Store::open(shared, folder / "store");
    const Store copy = *first;
    EXPECT_EQ(Store::open(shared, folder / "store").status().code(), StatusCode::kBusy);
  }
  EXPECT_TRUE(Store::open(shared, folder / "store").ok());
}

}  // namespace
}  // namespace cairn
