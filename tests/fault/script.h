// A deterministic life of a store, step by step, and what the store holds after each step: the
// oracle of the fault tests. A step is acknowledged as a whole; after any fault the store must be
// in the state after some step that the fault allows.
#ifndef CAIRN_TESTS_FAULT_SCRIPT_H_
#define CAIRN_TESTS_FAULT_SCRIPT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/session_store.h"
#include "tests/session/store_samples.h"

namespace cairn::test {

using SharedBlock = std::shared_ptr<const SampleBlock>;

struct ScriptTail {
  std::uint64_t slot = session::kHeadTail;
  std::int64_t position = 0;
  session::BlockKey chain_key{};
  std::uint64_t sequence = 0;
  std::shared_ptr<const Bytes> payload;
};

// A session as it must be found.
struct SessionState {
  std::vector<session::LogEvent> events;
  std::vector<SharedBlock> chain;
  std::map<std::uint64_t, ScriptTail> tails;  // by slot
  std::int64_t n_tokens = 0;
  std::uint32_t salt = 0;
};

using StoreContents = std::map<std::string, SessionState>;  // by name

struct Step {
  enum class Kind : std::uint8_t { kCreate, kCommit, kDropTail, kRemove, kReopen };
  Kind kind = Kind::kCommit;
  std::string session = {};
  std::vector<session::LogEvent> events = {};
  std::vector<SharedBlock> blocks = {};
  std::optional<ScriptTail> tail = {};
  session::Durability durability = session::Durability::kSynced;
};

struct ScriptShape {
  std::uint32_t seed = 1;
  int n_steps = 40;
  std::size_t block_bytes = 3000;
  std::size_t n_blocks_max = 2;  // of one commit, the large ones apart
  std::size_t tail_bytes = 20'000;
  bool reopens = true;  // close and open in between
};

class Script {
 public:
  explicit Script(const ScriptShape& shape);

  int n_steps() const { return static_cast<int>(steps_.size()); }
  const Step& step(int k) const { return steps_[static_cast<std::size_t>(k - 1)]; }  // k from 1
  // After k steps, 0 = nothing was done.
  const StoreContents& contents(int k) const { return contents_[static_cast<std::size_t>(k)]; }
  // Every block that any step stores, with its namespace's salt.
  const std::map<session::BlockKey, SharedBlock>& blocks() const { return blocks_; }

  // Does step k (not kReopen) on a store in the state after k - 1.
  Status run(session::SessionStore& store, int k) const;

  // The greatest k in first..last whose contents are those of the store, blocks included. If there
  // is none, `why` says how the store differs from the contents after the nearest step. Reads
  // everything that can be read.
  std::optional<int> find(session::SessionStore& store, int first, int last,
                          std::string& why) const;

 private:
  SharedBlock next_block(const SessionState& session, std::size_t n_bytes);
  void add_steps(const ScriptShape& shape);
  Step random_commit(const ScriptShape& shape, const std::string& name, std::mt19937& random);
  void add(Step step);

  ScriptShape shape_;
  std::vector<Step> steps_;
  std::vector<StoreContents> contents_;
  std::map<session::BlockKey, SharedBlock> blocks_;
};

// The namespace of a session with this salt.
session::KvNamespace script_namespace(std::uint32_t salt);

}  // namespace cairn::test

#endif  // CAIRN_TESTS_FAULT_SCRIPT_H_
