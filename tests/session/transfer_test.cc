// Sessions seen from outside and in other stores: trees with gaps are whole, and what was imported
// goes on as its original does.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "session/rocksdb_storage.h"
#include "session/storage_key.h"
#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using test::ask;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::Reply;
using test::say;
using test::Script;
using test::turn;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

StoreReader reader(const LiveStore& store, const StoreSecret& secret = {}) {
  Result<StoreReader> opened = StoreReader::open(store.path(), secret);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return std::move(*opened);
}

std::vector<std::string> problems(const LiveStore& store, const StoreSecret& secret = {}) {
  const auto report = reader(store, secret).verify();
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report->problems;
}

std::vector<std::string> texts(const Session& session) {
  const auto messages = session.messages();
  EXPECT_TRUE(messages.ok()) << messages.status().to_string();
  std::vector<std::string> texts;
  for (const Message& message : *messages) texts.push_back(test::text_of(message));
  return texts;
}

// -- gaps --

// Leaves the fork "f" of a session that is gone, with gaps where branches of both were.
void make_trimmed_fork(LiveStore& store) {
  const TurnOptions options = {.sampling = test::greedy(), .max_tokens = 4};
  {
    Session origin = store.create("origin");
    ask(origin, test::words(80, 1), options);
    const std::uint64_t mark = *origin.mark("first", /*keep_state=*/true);
    ask(origin, test::words(80, 2), options);
    ASSERT_TRUE(origin.rewind(mark).ok());
    say(origin, "kept");
    Session fork = *origin.fork("f");
    const std::uint64_t point = store.inside().find_by_name("f")->origin_sequence;
    say(origin, "only the origin's");
    ask(fork, test::words(80, 3), options);
    ASSERT_TRUE(fork.rewind(point).ok());
    EXPECT_EQ(fork.marks()->size(), 2u) << "the inherited mark and the branch";
    ask(fork, "kept by the fork", options);
  }
  ASSERT_TRUE(store.store().collect({.branches = true}).ok());
  ASSERT_TRUE(store.store().remove("origin").ok());
}

TEST(Transfer, gaps_that_removed_branches_and_origins_leave_are_no_damage) {
  LiveStore store, other;
  make_trimmed_fork(store);
  EXPECT_EQ(joined(problems(store)), "");
  Session fork = store.open_session("f");
  EXPECT_EQ(fork.marks()->size(), 1u);
  const auto tree = reader(store).show("f");
  ASSERT_TRUE(tree.ok()) << tree.status().to_string();
  for (const SessionEvent& event : tree->events) EXPECT_TRUE(event.on_path) << event.id;
  EXPECT_LT(tree->events.size(), tree->head);

  const std::string file = store.path() + ".file";
  const Status exported = reader(store).export_session("f", file);
  ASSERT_TRUE(exported.ok()) << exported.to_string();
  const auto imported = other.store().import_session(file, "g");
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  EXPECT_EQ(joined(problems(other)), "");
  EXPECT_EQ(texts(other.open_session("g")), texts(fork));
  const auto same = reader(other).show("g");
  ASSERT_TRUE(same.ok()) << same.status().to_string();
  EXPECT_EQ(same->events.size(), tree->events.size());
  EXPECT_EQ(same->head, tree->head);
}

TEST(Transfer, blocks_of_a_removed_branch_are_collected) {
  LiveStore store;
  Session session = store.create("s");
  const TurnOptions options = {.sampling = test::greedy(), .max_tokens = 4};
  say(session, "one");
  const std::uint64_t mark = *session.mark("here");
  ask(session, test::words(80, 1), options);
  ASSERT_TRUE(session.rewind(mark).ok());
  ASSERT_TRUE(store.store().collect({.branches = true}).ok());
  // A branch that is left later does not bring back what the log still says of the first.
  ask(session, test::words(80, 2), options);
  ASSERT_TRUE(session.rewind(mark).ok());
  store.create("other");
  ASSERT_TRUE(store.store().remove("other").ok());  // and every block that no session reaches
  const auto report = reader(store).verify();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(joined(report->problems) + joined(report->notes), "");
  EXPECT_GT(report->n_blocks, 0);
}

TEST(Transfer, an_event_lost_from_a_path_is_damage) {
  LiveStore store;
  make_trimmed_fork(store);
  const auto tree = reader(store).show("f");
  ASSERT_TRUE(tree.ok());
  store.close();
  int n_lost = 0;
  for (const SessionEvent& event : tree->events) {
    const auto storage = session::open_rocksdb_storage(store.path() + "/db");
    ASSERT_TRUE(storage.ok()) << storage.status().to_string();
    std::string lost_key, lost_value;
    ASSERT_TRUE((*storage)
                    ->scan(session::Family::kEvents, "", "",
                           [&](std::string_view key, std::string_view value) {
                             if (session::parse_event_sequence(key) != event.id) return true;
                             lost_key = key;
                             lost_value = value;
                             return false;
                           })
                    .ok());
    session::WriteBatch loss, repair;
    loss.remove(session::Family::kEvents, lost_key);
    ASSERT_TRUE((*storage)->write(loss, session::Durability::kSynced).ok());
    const std::string found = joined(problems(store));
    EXPECT_NE(found.find("session "), std::string::npos) << "event " << event.id;
    EXPECT_FALSE(reader(store).export_session("f", store.path() + ".file").ok()) << event.id;
    repair.put(session::Family::kEvents, lost_key, lost_value);
    ASSERT_TRUE((*storage)->write(repair, session::Durability::kSynced).ok());
    ++n_lost;
  }
  EXPECT_EQ(joined(problems(store)), "");
  std::printf("%d events lost, one at a time\n", n_lost);
}

// -- the same state elsewhere --

const Script kScript = {.sampling = test::penalised(7), .n_words = 60, .max_tokens = 8};

// Sends the session through a file into a store with `options`; both go on with the same message,
// from `rewind_to` if it is not 0, after their stores were opened anew.
void expect_same_next_turn(LiveStore& from, const std::string& name, std::uint64_t rewind_to = 0,
                           const StoreOptions& options = {}) {
  const std::string file = from.path() + "." + name + std::to_string(rewind_to);
  const Status exported = reader(from).export_session(name, file);
  ASSERT_TRUE(exported.ok()) << exported.to_string();
  LiveStore to(live_model(), options);
  const auto imported = to.store().import_session(file, "copy");
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  EXPECT_EQ(joined(problems(to, options.secret)), "");
  from.reopen();
  to.reopen();
  Session original = from.open_session(name), copy = to.open_session("copy");
  EXPECT_EQ(texts(copy), texts(original));
  if (rewind_to != 0) {
    ASSERT_TRUE(original.rewind(rewind_to).ok());
    ASSERT_TRUE(copy.rewind(rewind_to).ok());
  }
  const Reply expected = turn(original, kScript, 9), reply = turn(copy, kScript, 9);
  EXPECT_TRUE(expected.reuse.tail_restored);
  EXPECT_TRUE(reply.reuse.tail_restored);
  EXPECT_GT(reply.reuse.from_disk, 0);
  EXPECT_EQ(reply.reuse.from_disk, expected.reuse.from_disk);
  EXPECT_EQ(reply.reuse.prefilled, expected.reuse.prefilled);
  EXPECT_EQ(reply.reuse.replayed, 0);
  EXPECT_EQ(last_tokens(copy), last_tokens(original));
  EXPECT_EQ(reply.text(), expected.text());
}

TEST(Transfer, an_imported_session_goes_on_as_its_original) {
  for (const bool encrypted : {false, true}) {
    LiveStore store;
    {
      Session session = store.create("s");
      turn(session, kScript, 0);
      turn(session, kScript, 1);
    }
    StoreOptions options;
    if (encrypted) options.secret = test::secret_key();
    expect_same_next_turn(store, "s", 0, options);
  }
}

TEST(Transfer, an_imported_fork_goes_on_as_the_fork) {
  LiveStore store;
  {
    Session session = store.create("s");
    turn(session, kScript, 0);
    Session fork = *session.fork("untouched"), gone_on = *session.fork("gone on");
    turn(session, kScript, 1);
    turn(gone_on, kScript, 2);
  }
  expect_same_next_turn(store, "untouched");
  expect_same_next_turn(store, "gone on");
}

TEST(Transfer, marks_and_branches_travel_with_their_state) {
  LiveStore store;
  std::uint64_t mark = 0;
  {
    Session session = store.create("s");
    turn(session, kScript, 0);
    mark = *session.mark("m", /*keep_state=*/true);
    turn(session, kScript, 1);
    ASSERT_TRUE(session.rewind(mark).ok());
    turn(session, kScript, 2);
    EXPECT_EQ(session.marks()->size(), 2u);
  }
  expect_same_next_turn(store, "s", mark);
  store.reopen();
  expect_same_next_turn(store, "s");
}

}  // namespace
}  // namespace cairn
