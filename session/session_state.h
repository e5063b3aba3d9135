// One open session: its log replayed into a conversation, and its live state. The log is the truth;
// everything else here can be rebuilt from it.
#ifndef CAIRN_SESSION_SESSION_STATE_H_
#define CAIRN_SESSION_SESSION_STATE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/session.h"
#include "engine/loaded_model.h"
#include "engine/output_parser.h"
#include "session/live_sequence.h"
#include "session/store_state.h"

namespace cairn::session {

// A turn that has begun and not ended: running now, or interrupted by a crash or a cancel.
struct OpenTurn {
  TurnStarted started;
  std::vector<TokenId> tokens;  // in the log
};

// How much of the live state a commit takes along.
enum class StateToStore {
  kNothing,
  kBlocks,  // new whole blocks
  kTail,    // those and the tail, if the live state allows
};

// Safe from any thread but for live(), which is the strand's. While a turn runs it alone writes the
// session's log.
class SessionState final : private LiveHolder {
 public:
  ~SessionState();
  static Result<std::shared_ptr<SessionState>> create(std::shared_ptr<engine::LoadedModel> model,
                                                      std::shared_ptr<StoreState> store,
                                                      const std::string& name,
                                                      const SessionOptions& options);
  static Result<std::shared_ptr<SessionState>> open(std::shared_ptr<engine::LoadedModel> model,
                                                    std::shared_ptr<StoreState> store,
                                                    const std::string& name);

  const std::shared_ptr<engine::LoadedModel>& model() const { return model_; }
  LiveSequence& live() { return live_; }

  // An interrupted turn is closed in the same commit: what it said stays in the conversation.
  Status append(const Message& message);
  std::vector<Message> messages() const;
  std::size_t n_messages() const;
  SessionInfo info() const;

  // What a turn needs to run. Marks the session as running a turn until end_turn() or
  // interrupt_turn(). begin writes the start to the log; resume takes the open turn from it.
  struct TurnInput {
    OpenTurn turn;
    std::vector<TokenId> prompt;
    std::vector<TokenId> known;  // prompt and answer of the turn before, for the reuse report
    engine::OutputParserOptions parser;
  };
  Result<TurnInput> begin_turn(const TurnOptions& options);
  Result<TurnInput> resume_turn();

  // --- By the running turn, on the strand.

  // Puts tokens and as much of the state as `state` says into the store. Returns the bytes written.
  Result<std::int64_t> commit_progress(const std::vector<TokenId>& new_tokens, StateToStore state);
  // Ends the turn: tokens, the assistant's message, blocks and tail in one synced commit. After an
  // error the turn is still running.
  Result<std::int64_t> end_turn(const std::vector<TokenId>& new_tokens, EndReason reason,
                                const engine::ParsedOutput& output);
  // The turn stops without an end; resume_turn() continues it.
  void interrupt_turn();
  // The live state has grown: others may have to make room for it.
  void note_live_use();

 private:
  SessionState(std::shared_ptr<engine::LoadedModel> model, std::shared_ptr<StoreState> store,
               SessionLease lease, SessionRecord record, KvNamespace kv_namespace);

  bool put_away() noexcept override;

  Status load_log();
  void apply(const EventBody& body);
  // Appends to a commit; sequences follow the record's.
  void add_event(Commit& commit, EventBody body);
  Result<CommitReceipt> write(Commit& commit);
  // Writes the commit's events with so much of the live state. Where the disk has no room for state
  // the log goes on without it: state can be computed again. Returns the bytes written.
  Result<std::int64_t> write_with_state(Commit& commit, StateToStore state);
  // Writes new blocks in commits of their own until one commit holds the rest.
  Result<std::int64_t> write_surplus_blocks();
  TurnEnded end_of_open_turn() const;  // as the log has it so far; there must be one
  Status check_not_running() const;
  Status check_fits(const Message& message) const;
  Status check_room(std::int64_t n_prompt_tokens) const;

  Result<std::vector<TokenId>> render(const std::vector<Message>& messages) const;
  std::vector<TokenId> known_tokens() const;
  engine::OutputParserOptions parser_options(std::uint64_t turn) const;
  Message answer(const engine::ParsedOutput& output, std::vector<TokenId> tokens) const;

  std::shared_ptr<engine::LoadedModel> model_;
  std::shared_ptr<StoreState> store_;
  SessionLease lease_;
  LiveSequence live_;

  mutable std::mutex mutex_;  // guards what follows
  SessionRecord record_;
  std::vector<Message> messages_;
  std::optional<OpenTurn> open_turn_;
  std::uint64_t n_turns_ = 0;
  bool running_ = false;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_STATE_H_
