// Makes sessions as turns would, without a model: the log, blocks and tail of each agree.
#ifndef CAIRN_TESTS_SESSION_SESSION_AUTHOR_H_
#define CAIRN_TESTS_SESSION_SESSION_AUTHOR_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "session/session_store.h"
#include "session/storage_key.h"
#include "tests/session/store_samples.h"

namespace cairn::test {

// FORMAT.md section 7, with a state of random bytes.
inline Bytes tail_payload(const std::vector<TokenId>& open_tokens, std::uint32_t seed,
                          std::size_t n_state) {
  std::string head;
  session::append_little_endian32(1, head);
  session::append_little_endian32(static_cast<std::uint32_t>(open_tokens.size()), head);
  session::append_little_endian64(static_cast<std::uint64_t>(-1), head);
  for (const TokenId token : open_tokens) {
    session::append_little_endian32(static_cast<std::uint32_t>(token), head);
  }
  Bytes payload(head.size());
  std::memcpy(payload.data(), head.data(), head.size());
  const Bytes state = random_bytes(seed, n_state);
  payload.insert(payload.end(), state.begin(), state.end());
  return payload;
}

// A session whose turns have prompts that grow by whole blocks.
class Author {
 public:
  Author(session::SessionStore& store, const std::string& name, std::uint32_t seed)
      : store_(store), seed_(seed), record_(create(store, name)) {
    record_.kv_namespace = *store.open_namespace(kSampleNamespace);
  }

  const session::SessionRecord& record() const { return record_; }
  const std::vector<SampleBlock>& chain() const { return chain_; }

  // A message, a turn over `n_blocks` more blocks and `n_open` tokens, three tokens of an answer.
  void take_turn(std::uint32_t n_blocks, std::size_t n_open, std::size_t payload_bytes,
                 session::Durability durability = session::Durability::kSynced) {
    for (std::uint32_t i = 0; i < n_blocks; ++i) {
      const session::BlockKey parent =
          chain_.empty() ? session::root_key(kSampleNamespace) : chain_.back().key;
      chain_.push_back(
          sample_block(parent, static_cast<std::uint32_t>(chain_.size()), seed_, payload_bytes));
    }
    std::vector<TokenId> tokens, open = random_tokens(seed_ + record_.n_events, n_open);
    for (const SampleBlock& block : chain_) {
      tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
    }
    tokens.insert(tokens.end(), open.begin(), open.end());
    const std::size_t n_answer = std::min<std::size_t>(3, open.size());
    const std::vector<TokenId> answer(tokens.end() - static_cast<std::ptrdiff_t>(n_answer),
                                      tokens.end());
    tokens.resize(tokens.size() - n_answer);

    session::Commit commit = {.session = record_.id, .kv_namespace = record_.kv_namespace};
    commit.durability = durability;
    add(commit, session::MessageAppended{Message::user("do it \x1b[2J again")});
    session::TurnStarted started;
    started.turn = record_.n_turns;
    started.n_prompt_tokens = static_cast<std::int64_t>(tokens.size());
    started.prompt_digest = session::token_digest(tokens);
    add(commit, started);
    add(commit, session::TokensGenerated{record_.n_turns, answer});
    session::TurnEnded ended;
    ended.turn = record_.n_turns++;
    ended.n_tokens = static_cast<std::int64_t>(answer.size());
    ended.message = Message::user("done");
    ended.message.role = Role::kAssistant;
    add(commit, ended);
    for (std::size_t i = chain_.size() - n_blocks; i < chain_.size(); ++i) {
      commit.blocks.push_back(chain_[i].view());
    }
    const Bytes payload = tail_payload(open, seed_, payload_bytes);
    commit.tail = session::NewTail{.position = static_cast<std::int64_t>(tokens.size() + n_answer),
                                   .sequence = record_.head_sequence,
                                   .payload = payload};
    if (!chain_.empty()) record_.chain_key = commit.tail->chain_key = chain_.back().key;
    record_.stored_blocks = static_cast<std::uint32_t>(chain_.size());
    record_.head_tokens = commit.tail->position;
    commit.record = record_;
    const auto receipt = store_.commit(commit);
    ASSERT_TRUE(receipt.ok()) << receipt.status().to_string();
  }

 private:
  void add(session::Commit& commit, session::EventBody body) {
    const std::uint64_t parent = record_.head_sequence++;
    ++record_.n_events;
    commit.events.push_back({record_.head_sequence, parent, 1'700'000'000'000, std::move(body)});
  }

  session::SessionStore& store_;
  std::uint32_t seed_;
  session::SessionRecord record_;
  std::vector<SampleBlock> chain_;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_SESSION_AUTHOR_H_
