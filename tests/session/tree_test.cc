// The tree of a session's log: marks, rewinds, forks, removal with forks, names and labels.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using test::live_model;
using test::LiveStore;
using test::say;
using test::text_of;

std::vector<std::string> texts(const Session& session) {
  std::vector<std::string> texts;
  const auto messages = session.messages();
  EXPECT_TRUE(messages.ok()) << messages.status().to_string();
  if (!messages.ok()) return texts;
  for (const Message& message : *messages) texts.push_back(text_of(message));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Tree, a_rewind_goes_back_to_a_mark_and_keeps_the_branch) {
  LiveStore store;
  std::uint64_t mark = 0;
  {
    Session session = store.create("s");
    say(session, "one");
    mark = *session.mark("here");
    say(session, "two");
    ASSERT_TRUE(session.rewind(mark).ok());
    say(session, "three");
    EXPECT_EQ(texts(session), (Texts{"one", "three"}));
  }
  store.reopen();
  Session session = store.open_session("s");
  EXPECT_EQ(texts(session), (Texts{"one", "three"}));
  const auto marks = session.marks();
  ASSERT_TRUE(marks.ok());
  ASSERT_EQ(marks->size(), 2u);
  EXPECT_EQ(marks->at(0).event, mark);
  EXPECT_EQ(marks->at(0).name, "here");
  EXPECT_TRUE(marks->at(1).rewound);
  ASSERT_TRUE(session.rewind(marks->at(1).event).ok());
  EXPECT_EQ(texts(session), (Texts{"one", "two"}));
  EXPECT_EQ(session.rewind(1000).code(), StatusCode::kNotFound);
  EXPECT_EQ(session.rewind(0).code(), StatusCode::kNotFound);
}

TEST(Tree, a_fork_shares_its_text_and_outlives_its_origin) {
  LiveStore store;
  {
    Session session = store.create("s");
    say(session, "one");
    const std::uint64_t mark = *session.mark();
    say(session, "two");
    Result<Session> early = session.fork("early", mark);
    Result<Session> late = session.fork("late");
    ASSERT_TRUE(early.ok() && late.ok());
    say(*early, "three");
    say(*late, "four");
    say(session, "five");
    EXPECT_EQ(texts(*early), (Texts{"one", "three"}));
    EXPECT_EQ(texts(*late), (Texts{"one", "two", "four"}));
    EXPECT_EQ(texts(session), (Texts{"one", "two", "five"}));
    EXPECT_EQ(early->info().forked_from, session.info().id);
    EXPECT_EQ(session.fork("late").status().code(), StatusCode::kAlreadyExists);
    // Not the fork's: events of its origin beside or after its path.
    EXPECT_EQ(early->rewind(mark).code(), StatusCode::kOk);
  }
  const session::SessionId id = store.id_of("s");
  ASSERT_TRUE(store.store().remove("s").ok());
  EXPECT_EQ(store.store().list()->size(), 2u);
  EXPECT_EQ(store.inside().read_events(id)->size(), 3u);  // what the later fork shows
  store.reopen();
  EXPECT_EQ(texts(store.open_session("late")), (Texts{"one", "two", "four"}));
  ASSERT_TRUE(store.store().remove("late").ok());
  ASSERT_TRUE(store.store().remove("early").ok());
  EXPECT_EQ(store.inside().load_session(id).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.inside().read_events(id)->size(), 0u);
}

TEST(Tree, an_open_session_follows_its_new_name_and_labels) {
  LiveStore store;
  Session session = store.create("old");
  ASSERT_TRUE(store.store().rename("old", "new").ok());
  ASSERT_TRUE(store.store().set_labels("new", {{"k", "v"}}).ok());
  EXPECT_EQ(session.info().name, "new");
  say(session, "one");
  EXPECT_EQ(store.store().list()->at(0).name, "new");
  EXPECT_EQ(store.store().list()->at(0).labels.at("k"), "v");
  EXPECT_EQ(store.store().rename("old", "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(store.store().set_labels("new", {{"", "v"}}).code(), StatusCode::kInvalidArgument);
}

TEST(Tree, branches_are_removed_without_harm_to_marks_and_head) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "one");
  const std::uint64_t first = *session.mark("first");
  say(session, "lost");
  ASSERT_TRUE(session.rewind(first).ok());
  say(session, "kept");
  const auto removed = store.inside().remove_branches(store.id_of("s"), INT64_MAX);
  ASSERT_TRUE(removed.ok()) << removed.status().to_string();
  EXPECT_EQ(*removed, 1);
  EXPECT_EQ(texts(session), (Texts{"one", "kept"}));
  EXPECT_EQ(session.marks()->size(), 1u);
}

TEST(Tree, another_model_goes_on_when_it_is_allowed) {
  LiveStore store;
  {
    Session session = store.create("s");
    test::ask(session, "hello", {.sampling = test::greedy(), .max_tokens = 4});
  }
  const Model other = *Model::open(test::live_runtime(), test::kTinyB);
  Result<Session> session = Session::open(other, store.store(), "s", {.allow_other_model = true});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(session->info().model_fingerprint, other.info().fingerprint);
  EXPECT_TRUE(session->messages()->at(1).sampled_tokens.empty());
}

}  // namespace
}  // namespace cairn
