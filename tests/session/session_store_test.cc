#include "session/session_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::code_of;
using test::create;
using test::open_store;
using test::SampleBlock;
using test::TemporaryFolder;

std::vector<std::string> names_of(SessionStore& store) {
  std::vector<std::string> names;
  const auto sessions = store.list();
  for (const SessionRecord& record : *sessions) names.push_back(record.name);
  return names;
}

// -- sessions --

TEST(SessionStore, sessions_are_found_by_id_and_name_after_reopening) {
  const TemporaryFolder folder;
  SessionRecord made;
  {
    const auto store = open_store(folder / "store");
    auto record = store->create_session({.name = "résumé",
                                         .model_fingerprint = "fingerprint",
                                         .options = {.thinking = true, .effort = 10},
                                         .kv_namespace = 3});
    ASSERT_TRUE(record.ok()) << record.status().to_string();
    made = *record;
  }
  const auto store = open_store(folder / "store");
  const auto found = store->find_by_name("résumé");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->id, made.id);
  EXPECT_EQ(found->options.effort, 10);
  EXPECT_EQ(found->kv_namespace, 3u);
  EXPECT_EQ(store->load_session(made.id)->name, "résumé");
  EXPECT_EQ(code_of(store->find_by_name("resume")), StatusCode::kNotFound);
  EXPECT_EQ(code_of(store->load_session(SessionId{})), StatusCode::kNotFound);
}

TEST(SessionStore, names_are_unique_and_checked) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  create(*store, "name");
  const auto code = [&](const std::string& name) {
    return code_of(store->create_session({.name = name, .model_fingerprint = "f"}));
  };
  EXPECT_EQ(code("name"), StatusCode::kAlreadyExists);
  EXPECT_EQ(code(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(201, 'n')), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(200, 'n')), StatusCode::kOk);
  EXPECT_EQ(code("\xff"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("two\nlines"), StatusCode::kInvalidArgument);
}

TEST(SessionStore, lists_the_newest_use_first) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  for (const auto& [name, used_ms] :
       {std::pair("a", 20), std::pair("b", 30), std::pair("d", 10), std::pair("c", 10)}) {
    SessionRecord record = create(*store, name);
    record.used_ms = used_ms;
    ASSERT_TRUE(store->commit({.session = record.id, .record = record}).ok());
  }
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"b", "a", "c", "d"}));
}

TEST(SessionStore, a_session_is_leased_once) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const SessionId id = create(*store, "name").id;
  auto lease = store->lease(id);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(code_of(store->lease(id)), StatusCode::kBusy);
  EXPECT_EQ(store->remove_session(id).code(), StatusCode::kBusy);
  SessionLease moved = std::move(*lease);
  EXPECT_EQ(code_of(store->lease(id)), StatusCode::kBusy);
  moved = SessionLease();
  EXPECT_TRUE(store->lease(id).ok());
}

TEST(SessionStore, removal_takes_log_tails_and_name_and_leaves_blocks) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
  const auto chain = test::sample_chain(1, 1);
  const SessionId kept = create(*store, "kept").id, id = create(*store, "gone").id;
  for (const SessionId& session : {kept, id}) {
    Commit commit = {.session = session,
                     .events = {test::user_event(1, "hello")},
                     .kv_namespace = name_space,
                     .blocks = {chain[0].view()},
                     .tail = NewTail{.payload = chain[0].payload}};
    ASSERT_TRUE(store->commit(commit).ok());
    commit = {.session = session, .tail = NewTail{.slot = 1, .payload = chain[0].payload}};
    ASSERT_TRUE(store->commit(commit).ok());
  }
  EXPECT_EQ(store->stats()->n_tails, 4);
  ASSERT_TRUE(store->remove_session(id).ok());
  EXPECT_EQ(store->remove_session(id).code(), StatusCode::kNotFound);
  EXPECT_EQ(code_of(store->find_by_name("gone")), StatusCode::kNotFound);
  EXPECT_EQ(store->read_events(id)->size(), 0u);
  EXPECT_EQ(code_of(store->get_tail(id)), StatusCode::kNotFound);
  EXPECT_EQ(code_of(store->get_tail(id, 1)), StatusCode::kNotFound);
  EXPECT_TRUE(*store->has_block(chain[0].key));
  EXPECT_EQ(store->read_events(kept)->size(), 1u);
  EXPECT_TRUE(store->get_tail(kept, 1).ok());
  EXPECT_EQ(store->stats()->n_tails, 2);
  EXPECT_NE(create(*store, "gone").id, id);
}

// -- log and commits --

TEST(SessionStore, a_log_is_read_from_any_sequence_in_order) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const SessionId other = create(*store, "other").id, id = create(*store, "name").id;
  for (std::uint64_t i = 1; i <= 300; ++i) {
    Commit commit = {.session = id,
                     .events = {test::user_event(i, "message " + std::to_string(i))},
                     .durability = Durability::kBuffered};
    ASSERT_TRUE(store->commit(commit).ok());
    if (i == 1) commit.session = other;
    if (i == 1) {
      ASSERT_TRUE(store->commit(commit).ok());
    }
  }
  const auto events = store->read_events(id);
  ASSERT_EQ(events->size(), 300u);
  for (std::uint64_t i = 1; i <= 300; ++i) {
    const LogEvent& event = (*events)[i - 1];
    EXPECT_EQ(event.sequence, i);
    EXPECT_EQ(event.parent, i - 1);
    EXPECT_EQ(std::get<MessageAppended>(event.body).message.content[0].text,
              "message " + std::to_string(i));
  }
  EXPECT_EQ(store->read_events(id, 299)->size(), 2u);
  EXPECT_EQ(store->read_events(id, 301)->size(), 0u);
  EXPECT_EQ(store->read_events(other)->size(), 1u);
  int n_visited = 0;
  ASSERT_TRUE(store->visit_events(id, 1, [&](LogEvent&&) { return ++n_visited < 5; }).ok());
  EXPECT_EQ(n_visited, 5);
}

TEST(SessionStore, refuses_commits_that_would_break_the_log) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const SessionRecord record = create(*store, "name");
  const auto code = [&](const Commit& commit) { return code_of(store->commit(commit)); };
  ASSERT_EQ(code({.session = record.id, .events = {test::user_event(1, "a")}}), StatusCode::kOk);
  EXPECT_EQ(code({.session = record.id, .events = {test::user_event(1, "b")}}),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(code({.session = record.id, .events = {LogEvent{0, 0, 0, MessageAppended{}}}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      code({.session = record.id, .events = {test::user_event(3, "a"), test::user_event(2, "b")}}),
      StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.session = record.id, .events = {LogEvent{2, 2, 0, MessageAppended{}}}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.session = record.id, .events = {LogEvent{2, 1, 0, UnknownEvent{}}}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.session = SessionId{}, .events = {test::user_event(1, "a")}}),
            StatusCode::kNotFound);
  SessionRecord renamed = record;
  renamed.name = "other";
  EXPECT_EQ(code({.session = record.id, .record = renamed}), StatusCode::kInvalidArgument);
  SampleBlock block = test::sample_chain(1, 1)[0];
  EXPECT_EQ(code({.session = record.id, .kv_namespace = 9, .blocks = {block.view()}}),
            StatusCode::kInvalidArgument);
  block.tokens.pop_back();
  EXPECT_EQ(code({.session = record.id,
                  .kv_namespace = *store->open_namespace(test::kSampleNamespace),
                  .blocks = {block.view()}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(store->read_events(record.id)->size(), 1u);
  EXPECT_EQ(store->stats()->n_blocks, 0);
}

TEST(SessionStore, a_commit_reports_what_it_handed_to_the_disk) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const SessionId id = create(*store, "name").id;
  const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
  const auto chain = test::sample_chain(1, 3, 100'000);
  Commit commit = {.session = id, .kv_namespace = name_space};
  for (const SampleBlock& block : chain) commit.blocks.push_back(block.view());
  const auto first = store->commit(commit);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->blocks_written, 3);
  EXPECT_GT(first->bytes_written, 300'000);
  EXPECT_LT(first->bytes_written, 303'000);  // index, keys and token ids are under one percent
  EXPECT_EQ(store->read_counters().bytes_committed, first->bytes_written);
  const auto again = store->commit(commit);
  EXPECT_EQ(again->blocks_written, 0);
  EXPECT_EQ(again->blocks_skipped, 3);
  EXPECT_EQ(again->bytes_written, 0);
}

TEST(SessionStore, a_failed_write_leaves_the_old_state_and_releases_its_blocks) {
  const TemporaryFolder folder;
  const test::ProbedStore probed = test::open_probed(folder / "store");
  SessionStore& store = *probed.store;
  SessionRecord record = create(store, "name");
  const std::uint32_t name_space = *store.open_namespace(test::kSampleNamespace);
  const auto chain = test::sample_chain(1, 1);
  record.head_sequence = 1;
  const Commit commit = {.session = record.id,
                         .events = {test::user_event(1, "a")},
                         .kv_namespace = name_space,
                         .blocks = {chain[0].view()},
                         .tail = NewTail{.position = 1, .payload = chain[0].payload},
                         .record = record};
  // Write 0 reserves block numbers, write 1 is the commit.
  for (int n = 0; n < 2; ++n) {
    probed.storage->n_writes = 0;
    probed.storage->fail_writes_after = n;
    EXPECT_EQ(code_of(store.commit(commit)), StatusCode::kOutOfDisk);
    EXPECT_EQ(store.read_events(record.id)->size(), 0u);
    EXPECT_EQ(code_of(store.get_tail(record.id)), StatusCode::kNotFound);
    EXPECT_FALSE(*store.has_block(chain[0].key));
    EXPECT_EQ(store.load_session(record.id)->head_sequence, 0u);
    EXPECT_EQ(code_of(store.create_session({.name = "b"})), StatusCode::kOutOfDisk);
  }
  probed.storage->fail_writes_after = -1;
  const auto receipt = store.commit(commit);
  ASSERT_TRUE(receipt.ok());
  EXPECT_EQ(receipt->blocks_written, 1);
}

// -- blocks --

TEST(SessionStore, blocks_come_back_whole_after_reopening) {
  const TemporaryFolder folder;
  const auto chain = test::sample_chain(1, 40, 3000);
  std::vector<BlockKey> keys;
  {
    const auto store = open_store(folder / "store");
    Commit commit = {.session = create(*store, "name").id,
                     .kv_namespace = *store->open_namespace(test::kSampleNamespace)};
    for (const SampleBlock& block : chain) commit.blocks.push_back(block.view());
    commit.blocks.erase(commit.blocks.begin() + 30);
    ASSERT_TRUE(store->commit(commit).ok());
  }
  const auto store = open_store(folder / "store");
  for (const SampleBlock& sample : chain) {
    keys.push_back(sample.key);
    const auto block = store->get_block(sample.key, sample.tokens);
    if (sample.depth == 30) {
      EXPECT_EQ(code_of(block), StatusCode::kNotFound);
      continue;
    }
    ASSERT_TRUE(block.ok()) << block.status().to_string();
    EXPECT_TRUE(test::same_bytes(block->payload(), sample.payload));
    EXPECT_EQ(block->descriptor.parent, sample.parent);
    EXPECT_EQ(block->descriptor.depth, sample.depth);
    EXPECT_EQ(store->blocks().find(sample.key)->depth, sample.depth);
  }
  EXPECT_EQ(*store->stored_prefix(keys), 30u);
  EXPECT_EQ(*store->stored_prefix(std::span(keys).subspan(31)), 9u);
  EXPECT_EQ(*store->stored_prefix({}), 0u);
}

TEST(SessionStore, the_first_writer_of_a_block_wins) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
  const SessionId id = create(*store, "name").id;
  const SampleBlock first = test::sample_chain(1, 1)[0];
  SampleBlock second = first;
  second.payload = test::random_bytes(99, 500);
  // In one commit and in two.
  ASSERT_EQ(
      store
          ->commit(
              {.session = id, .kv_namespace = name_space, .blocks = {first.view(), second.view()}})
          ->blocks_written,
      1);
  ASSERT_EQ(store->commit({.session = id, .kv_namespace = name_space, .blocks = {second.view()}})
                ->blocks_written,
            0);
  EXPECT_TRUE(
      test::same_bytes(store->get_block(first.key, first.tokens)->payload(), first.payload));
}

TEST(SessionStore, racing_writers_store_each_block_once) {
  constexpr int kThreads = 4, kBlocks = 60;
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const std::uint32_t name_space = *store->open_namespace(test::kSampleNamespace);
  const auto chain = test::sample_chain(1, kBlocks);
  std::vector<int> written(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      const SessionId id = create(*store, "session " + std::to_string(t)).id;
      threads.emplace_back([&, t, id] {
        std::vector<SampleBlock> mine = chain;
        std::shuffle(mine.begin(), mine.end(), std::mt19937(static_cast<unsigned>(t)));
        for (SampleBlock& block : mine) {
          block.payload.assign(500, static_cast<std::byte>(t));
          const auto receipt = store->commit({.session = id,
                                              .kv_namespace = name_space,
                                              .blocks = {block.view()},
                                              .durability = Durability::kBuffered});
          if (receipt.ok()) written[static_cast<std::size_t>(t)] += receipt->blocks_written;
        }
      });
    }
  }
  EXPECT_EQ(written[0] + written[1] + written[2] + written[3], kBlocks);
  EXPECT_EQ(store->stats()->n_blocks, kBlocks);
  for (const SampleBlock& sample : chain) {
    const auto block = store->get_block(sample.key, sample.tokens);
    ASSERT_TRUE(block.ok()) << block.status().to_string();
    const std::byte writer = block->payload()[0];
    EXPECT_TRUE(std::ranges::all_of(block->payload(), [&](std::byte b) { return b == writer; }));
  }
}

TEST(SessionStore, a_block_of_other_tokens_is_dropped) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const SampleBlock block = test::sample_chain(1, 1)[0];
  ASSERT_TRUE(store
                  ->commit({.session = create(*store, "name").id,
                            .kv_namespace = *store->open_namespace(test::kSampleNamespace),
                            .blocks = {block.view()}})
                  .ok());
  std::vector<TokenId> tokens = block.tokens;
  tokens[127] ^= 1;
  EXPECT_EQ(code_of(store->get_block(block.key, tokens)), StatusCode::kCorrupt);
  EXPECT_EQ(code_of(store->get_block(block.key, block.tokens)), StatusCode::kNotFound);
}

TEST(SessionStore, namespaces_keep_their_numbers) {
  const TemporaryFolder folder;
  std::uint32_t first = 0, second = 0;
  {
    const auto store = open_store(folder / "store");
    first = *store->open_namespace({"a", 1, ""});
    second = *store->open_namespace({"b", 1, ""});
    EXPECT_NE(first, second);
  }
  const auto store = open_store(folder / "store");
  EXPECT_EQ(*store->open_namespace({"b", 1, ""}), second);
  EXPECT_EQ(*store->open_namespace({"a", 1, ""}), first);
  EXPECT_NE(*store->open_namespace({"a", 2, ""}), first);
}

TEST(SessionStore, block_numbers_are_never_used_twice) {
  const TemporaryFolder folder;
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto store = open_store(folder / "store");
    const SampleBlock block = test::sample_chain(i, 1)[0];
    ASSERT_TRUE(store
                    ->commit({.session = create(*store, std::to_string(i)).id,
                              .kv_namespace = *store->open_namespace(test::kSampleNamespace),
                              .blocks = {block.view()}})
                    .ok());
    const std::uint64_t number = store->blocks().find(block.key)->number;
    if (i > 0) {
      EXPECT_GT(number, last);
    }
    last = number;
    ASSERT_TRUE(store->blocks().drop(block.key).ok());
  }
}

// -- tails --

TEST(SessionStore, a_tail_is_replaced_in_its_slot) {
  const TemporaryFolder folder;
  SessionId id;
  const test::Bytes payload = test::random_bytes(1, 100'000), later = test::random_bytes(2, 90'000);
  {
    const auto store = open_store(folder / "store");
    id = create(*store, "name").id;
    EXPECT_EQ(code_of(store->get_tail(id)), StatusCode::kNotFound);
    NewTail tail = {.position = 1000, .chain_key = {7}, .sequence = 12, .payload = payload};
    ASSERT_TRUE(store->commit({.session = id, .tail = tail}).ok());
    tail.slot = 5;
    ASSERT_TRUE(store->commit({.session = id, .tail = tail}).ok());
    tail = {.position = 1100, .payload = later};
    ASSERT_TRUE(store->commit({.session = id, .tail = tail}).ok());
  }
  const auto store = open_store(folder / "store");
  const auto head = store->get_tail(id), mark = store->get_tail(id, 5);
  ASSERT_TRUE(head.ok() && mark.ok());
  EXPECT_EQ(head->record.position, 1100);
  EXPECT_TRUE(test::same_bytes(head->payload(), later));
  EXPECT_EQ(mark->record.position, 1000);
  EXPECT_EQ(mark->record.chain_key[0], 7);
  EXPECT_EQ(mark->record.sequence, 12u);
  EXPECT_TRUE(test::same_bytes(mark->payload(), payload));
  EXPECT_EQ(store->find_tail(id, 5)->position, 1000);
  ASSERT_TRUE(store->drop_tail(id).ok());
  EXPECT_EQ(code_of(store->get_tail(id)), StatusCode::kNotFound);
  EXPECT_TRUE(store->get_tail(id, 5).ok());
}

TEST(SessionStore, statistics_count_what_is_there) {
  const TemporaryFolder folder;
  const auto store = open_store(folder / "store");
  const auto chain = test::sample_chain(1, 5, 100'000);
  Commit commit = {.session = create(*store, "name").id,
                   .kv_namespace = *store->open_namespace(test::kSampleNamespace),
                   .tail = NewTail{.payload = chain[0].payload}};
  for (const SampleBlock& block : chain) commit.blocks.push_back(block.view());
  create(*store, "other");
  ASSERT_TRUE(store->commit(commit).ok());
  const auto stats = store->stats();
  ASSERT_TRUE(stats.ok()) << stats.status().to_string();
  EXPECT_EQ(stats->n_sessions, 2);
  EXPECT_EQ(stats->n_blocks, 5);
  EXPECT_EQ(stats->n_tails, 1);
  EXPECT_GT(stats->bytes_on_disk, 600'000);
  EXPECT_LT(stats->bytes_on_disk, 2'000'000);
}

}  // namespace
}  // namespace cairn::session
