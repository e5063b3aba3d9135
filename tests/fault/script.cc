// Sessions of one salt begin with the same two blocks, so that some blocks are shared and the first
// writer's are kept; further blocks are each session's own.
#include "tests/fault/script.h"

#include <algorithm>
#include <random>
#include <utility>

namespace cairn::test {
namespace {

using namespace session;

constexpr std::uint32_t kSharedDepth = 2;
constexpr std::uint32_t kSalts = 2;
// Three of them are more than kBulkBytesMin; some payloads of that size are tails.
constexpr std::size_t kLargeBlockBytes = 100'000;

const SessionState kNothing;

std::string name_of(int i) { return "session " + std::to_string(i); }

SessionRecord updated(SessionRecord record, const SessionState& state) {
  record.head_sequence = record.n_events = state.events.size();
  record.head_tokens = state.n_tokens;
  record.stored_blocks = static_cast<std::uint32_t>(state.chain.size());
  if (!state.chain.empty()) record.chain_key = state.chain.back()->key;
  return record;
}

void add_to(const Step& step, StoreContents& contents) {
  if (step.kind == Step::Kind::kReopen) return;
  if (step.kind == Step::Kind::kRemove) {
    contents.erase(step.session);
    return;
  }
  SessionState& session = contents[step.session];
  if (step.kind == Step::Kind::kDropTail) session.tails.erase(kHeadTail);
  session.events.insert(session.events.end(), step.events.begin(), step.events.end());
  session.chain.insert(session.chain.end(), step.blocks.begin(), step.blocks.end());
  session.n_tokens += static_cast<std::int64_t>(step.blocks.size() * kBlockTokens);
  if (step.tail) session.tails[step.tail->slot] = *step.tail;
}

// -- what a store holds, payloads apart --

struct SeenTail {
  std::int64_t position = 0;
  std::uint64_t sequence = 0;
  BlockKey chain_key{};
  std::uint64_t payload_bytes = 0;

  bool operator==(const SeenTail&) const = default;
};

struct SeenSession {
  std::vector<std::string> events;  // encoded
  std::uint64_t head_sequence = 0, stored_blocks = 0;
  std::int64_t n_tokens = 0;
  std::map<std::uint64_t, SeenTail> tails;

  bool operator==(const SeenSession&) const = default;
};

using Seen = std::map<std::string, SeenSession>;

Seen seen_in(const StoreContents& contents) {
  Seen seen;
  for (const auto& [name, state] : contents) {
    SeenSession& session = seen[name];
    for (const LogEvent& event : state.events) session.events.push_back(*encode(event));
    session.head_sequence = state.events.size();
    session.stored_blocks = state.chain.size();
    session.n_tokens = state.n_tokens;
    for (const auto& [slot, tail] : state.tails) {
      session.tails[slot] = {tail.position, tail.sequence, tail.chain_key, tail.payload->size()};
    }
  }
  return seen;
}

Result<SeenSession> look_at(SessionStore& store, const SessionRecord& record) {
  SeenSession session;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<LogEvent> events, store.read_events(record.id));
  for (const LogEvent& event : events) session.events.push_back(*encode(event));
  session.head_sequence = record.head_sequence;
  session.stored_blocks = record.stored_blocks;
  session.n_tokens = record.head_tokens;
  for (std::uint64_t slot = 0; slot <= events.size() + 1; ++slot) {
    const Result<TailRecord> tail = store.find_tail(record.id, slot);
    if (tail.status().code() == StatusCode::kNotFound) continue;
    if (!tail.ok()) return tail.status();
    session.tails[slot] = {tail->position, tail->sequence, tail->chain_key, tail->payload_bytes};
  }
  return session;
}

Result<Seen> look_at(SessionStore& store) {
  Seen seen;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> records, store.list());
  for (const SessionRecord& record : records) {
    CAIRN_ASSIGN_OR_RETURN(seen[record.name], look_at(store, record));
  }
  return seen;
}

std::string describe(const Seen& seen) {
  std::string text;
  for (const auto& [name, session] : seen) {
    text += " [" + name + ": " + std::to_string(session.events.size()) + " events, head " +
            std::to_string(session.head_sequence) + ", " + std::to_string(session.stored_blocks) +
            " blocks, tails";
    for (const auto& [slot, tail] : session.tails) {
      text += " " + std::to_string(slot) + "@" + std::to_string(tail.position);
    }
    text += "]";
  }
  return text.empty() ? " nothing" : text;
}

// -- payloads --

std::string check_tails(SessionStore& store, const std::string& name, const SessionState& state) {
  const Result<SessionRecord> record = store.find_by_name(name);
  if (!record.ok()) return name + " by name: " + record.status().to_string();
  for (const auto& [slot, expected] : state.tails) {
    const Result<Tail> tail = store.get_tail(record->id, slot);
    if (!tail.ok()) return name + ": " + tail.status().to_string();
    if (!same_bytes(tail->payload(), *expected.payload)) return name + ": another tail";
  }
  return {};
}

std::string check_chain(SessionStore& store, const std::string& name, const SessionState& state) {
  for (const SharedBlock& block : state.chain) {
    const Result<Block> found = store.get_block(block->key, block->tokens);
    if (!found.ok()) return name + ": " + found.status().to_string();
  }
  return {};
}

}  // namespace

KvNamespace script_namespace(std::uint32_t salt) {
  return {"fingerprint", 1, "salt " + std::to_string(salt)};
}

// -- making steps --

SharedBlock Script::next_block(const SessionState& session, std::size_t n_bytes) {
  const auto depth = static_cast<std::uint32_t>(session.chain.size());
  const BlockKey parent =
      session.chain.empty() ? root_key(script_namespace(session.salt)) : session.chain.back()->key;
  const std::uint32_t seed =
      depth < kSharedDepth ? session.salt : 100 + static_cast<std::uint32_t>(blocks_.size());
  auto block = std::make_shared<const SampleBlock>(
      sample_block(parent, depth, shape_.seed * 1000 + seed, n_bytes + depth));
  return blocks_.emplace(block->key, block).first->second;
}

Step Script::random_commit(const ScriptShape& shape, const std::string& name,
                           std::mt19937& random) {
  SessionState state = contents_.back().at(name);
  Step step = {.session = name};
  const std::uint64_t first = state.events.size() + 1;
  const std::uint32_t content = shape.seed * 10'000 + static_cast<std::uint32_t>(steps_.size());
  step.events.push_back(user_event(first, "message " + std::to_string(content)));
  for (std::uint64_t i = 1; i <= random() % 4; ++i) {
    step.events.push_back(
        token_event(first + i, random_tokens(content + static_cast<std::uint32_t>(i), 1 + i * 7)));
  }
  // Some commits are large enough to be written past the log.
  const bool large = random() % 5 == 0;
  const std::size_t n_blocks = large ? 3 : random() % (shape.n_blocks_max + 1);
  for (std::size_t i = 0; i < n_blocks; ++i) {
    step.blocks.push_back(next_block(state, large ? kLargeBlockBytes : shape.block_bytes));
    state.chain.push_back(step.blocks.back());
  }
  const std::uint64_t last = step.events.back().sequence;
  if (random() % 2 == 0) {
    const std::size_t n_bytes = large ? 200'000 : shape.tail_bytes;
    step.tail = ScriptTail{.slot = random() % 3 == 0 ? last : kHeadTail,
                           .position = static_cast<std::int64_t>(state.chain.size() * kBlockTokens),
                           .chain_key = state.chain.empty() ? BlockKey{} : state.chain.back()->key,
                           .sequence = last,
                           .payload = std::make_shared<const Bytes>(
                               random_bytes(content, n_bytes + random() % (n_bytes + 1)))};
  }
  step.durability = random() % 3 == 0 ? Durability::kBuffered : Durability::kSynced;
  return step;
}

void Script::add(Step step) {
  StoreContents contents = contents_.back();
  add_to(step, contents);
  if (step.kind == Step::Kind::kCreate) {
    contents[step.session].salt = static_cast<std::uint32_t>(steps_.size()) % kSalts;
  }
  steps_.push_back(std::move(step));
  contents_.push_back(std::move(contents));
}

void Script::add_steps(const ScriptShape& shape) {
  std::mt19937 random(shape.seed);
  int n_sessions = 0;
  while (n_steps() < shape.n_steps) {
    const StoreContents& contents = contents_.back();
    const auto kind = static_cast<int>(random() % 16);
    if (contents.size() < 2 || (kind == 0 && contents.size() < 5)) {
      add({.kind = Step::Kind::kCreate, .session = name_of(++n_sessions)});
      continue;
    }
    const std::string name =
        std::next(contents.begin(), static_cast<std::ptrdiff_t>(random() % contents.size()))->first;
    const SessionState& session = contents.at(name);
    if (kind == 1 && contents.size() > 2) {
      add({.kind = Step::Kind::kRemove, .session = name});
    } else if (kind == 2 && session.tails.contains(kHeadTail)) {
      add({.kind = Step::Kind::kDropTail, .session = name, .durability = Durability::kBuffered});
    } else if (kind == 3 && shape.reopens) {
      add({.kind = Step::Kind::kReopen});
    } else {
      add(random_commit(shape, name, random));
    }
  }
}

Script::Script(const ScriptShape& shape) : shape_(shape) {
  contents_.emplace_back();
  add_steps(shape);
}

// -- doing them --

Status Script::run(SessionStore& store, int k) const {
  const Step& step = this->step(k);
  const auto in_contents = contents(k).find(step.session);
  const SessionState& after = in_contents == contents(k).end() ? kNothing : in_contents->second;
  CAIRN_ASSIGN_OR_RETURN(const std::uint32_t kv_namespace,
                         store.open_namespace(script_namespace(after.salt)));
  if (step.kind == Step::Kind::kCreate) {
    return store
        .create_session({.name = step.session,
                         .model_fingerprint = "fingerprint",
                         .kv_namespace = kv_namespace})
        .status();
  }
  CAIRN_ASSIGN_OR_RETURN(const SessionRecord record, store.find_by_name(step.session));
  if (step.kind == Step::Kind::kRemove) return store.remove_session(record.id);
  if (step.kind == Step::Kind::kDropTail) return store.drop_tail(record.id);

  Commit commit = {.session = record.id,
                   .events = step.events,
                   .kv_namespace = kv_namespace,
                   .record = updated(record, after),
                   .durability = step.durability};
  for (const SharedBlock& block : step.blocks) commit.blocks.push_back(block->view());
  if (step.tail) {
    commit.tail = NewTail{.slot = step.tail->slot,
                          .position = step.tail->position,
                          .chain_key = step.tail->chain_key,
                          .sequence = step.tail->sequence,
                          .payload = *step.tail->payload};
  }
  return store.commit(commit).status();
}

// -- looking --

std::optional<int> Script::find(SessionStore& store, int first, int last, std::string& why) const {
  const Result<Seen> seen = look_at(store);
  if (!seen.ok()) {
    why = seen.status().to_string();
    return std::nullopt;
  }
  int k = last;
  while (k >= first && seen_in(contents(k)) != *seen) --k;
  if (k < first) {
    why = "the store holds" + describe(*seen) + "; after step " + std::to_string(first) +
          " it would hold" + describe(seen_in(contents(first))) + "; after step " +
          std::to_string(last) + describe(seen_in(contents(last)));
    return std::nullopt;
  }
  for (const auto& [name, state] : contents(k)) {
    why = check_tails(store, name, state);
    if (why.empty()) why = check_chain(store, name, state);
    if (!why.empty()) return std::nullopt;
  }
  for (const auto& [key, block] : blocks_) {
    const Result<Block> found = store.get_block(key, block->tokens);
    if (found.status().code() == StatusCode::kNotFound) continue;
    if (!found.ok()) {
      why = found.status().to_string();
      return std::nullopt;
    }
    if (!same_bytes(found->payload(), block->payload)) {
      why = "a block with other bytes than were written";
      return std::nullopt;
    }
  }
  why.clear();
  return k;
}

}  // namespace cairn::test
