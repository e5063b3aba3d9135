// One open session: its log replayed into a conversation when first needed, and its live state. The
// log is the truth; everything else here can be rebuilt from it.
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
#include "engine/chat_template.h"
#include "engine/loaded_model.h"
#include "engine/output_constraint.h"
#include "engine/output_parser.h"
#include "session/conversation.h"
#include "session/live_sequence.h"
#include "session/prompt_comparison.h"
#include "session/store_state.h"

namespace cairn::session {

// How much of the live state a commit takes along.
enum class StateToStore {
  kNothing,
  kBlocks,  // new whole blocks
  kTail,    // those and the head's tail, if the live state allows
  // The same, and the tail stays for a while in a slot of its own (turn_tails.h):
  kPromptTail,  // where the turn began
  kEndTail,     // at the last event
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
                                                    const std::string& name,
                                                    const OpenOptions& options);

  const std::shared_ptr<engine::LoadedModel>& model() const { return model_; }
  const std::shared_ptr<StoreState>& store() const { return store_; }
  LiveSequence& live() { return live_; }

  // An interrupted turn is closed in the same commit: what it said stays in the conversation.
  Status append(const Message& message);
  Result<std::vector<Message>> messages() const;
  bool has_messages() const;
  Result<SyncReport> sync(const std::vector<Message>& messages, const SyncOptions& options);
  Result<TurnPlan> plan(const TurnOptions& options) const;
  Result<TurnPlan> plan_sync(const std::vector<Message>& messages, const TurnOptions& options,
                             const SyncOptions& sync_options) const;
  Result<std::int64_t> count_tokens(const std::vector<Message>& more,
                                    const TurnOptions& options) const;
  SessionInfo info() const;
  SessionDurability durability() const { return durability_; }

  // --- The tree (session_tree.cc), as cairn/session.h says.
  Result<std::uint64_t> mark(const std::string& name, bool keep_state);
  Result<std::vector<Mark>> marks() const;
  Status rewind(std::uint64_t event);
  // The fork's record; it is not open.
  Result<SessionRecord> fork(const std::string& name, std::uint64_t event) const;

  // What a turn needs to run. Marks the session as running a turn until end_turn() or
  // interrupt_turn(). begin writes the start to the log; resume takes the open turn from it.
  struct TurnInput {
    OpenTurn turn;
    std::uint64_t event = 0;      // of its start
    std::vector<TokenId> prompt;  // what the turn goes on with (started.begun) included
    // For the reuse report:
    PromptComparison comparison;     // with what the session computed before
    std::int64_t stored_blocks = 0;  // of the head's chain, when it was last committed
    bool other_model = false;        // what was said before is another model's
    double us_per_token = 0;         // of prefill, as measured before; 0 = it was not
    engine::OutputParserOptions parser;
    std::shared_ptr<engine::OutputConstraint> constraint;  // null = none
  };
  Result<TurnInput> begin_turn(const TurnOptions& options);
  Result<TurnInput> resume_turn();
  // The newest turn of the head's path, which has ended, as it was said. kNotFound: there is none, or
  // it has not ended.
  struct EndedTurn {
    TurnInput input;
    EndReason reason = EndReason::kStop;
  };
  Result<EndedTurn> ended_turn() const;

  // --- By the running turn, on the strand.

  // Puts tokens and as much of the state as `state` says into the store. Returns the bytes written.
  Result<std::int64_t> commit_progress(const std::vector<TokenId>& new_tokens, StateToStore state);
  // Ends the turn: tokens, the assistant's message, blocks and tail in one synced commit. After an
  // error the turn is still running. `speed`: as measured in the turn; 0 = it was not.
  struct Speed {
    double prefill_us_per_token = 0, restore_us_per_mib = 0;
  };
  Result<std::int64_t> end_turn(const std::vector<TokenId>& new_tokens, EndReason reason,
                                const engine::ParsedOutput& output, const Speed& speed);
  // The turn stops without an end; resume_turn() continues it.
  void interrupt_turn();
  // The live state has grown: others may have to make room for it.
  void note_live_use();

 private:
  // A commit in the making, and the head after it.
  struct Draft {
    Commit commit;
    SessionRecord record;    // before it, but for the model
    HeadState head;          // after its last event
    std::uint64_t last = 0;  // the event that the next one follows
  };

  SessionState(std::shared_ptr<engine::LoadedModel> model, std::shared_ptr<StoreState> store,
               SessionLease lease, KvNamespace kv_namespace);

  bool put_away() noexcept override;

  // All that follow need the session's mutex.
  const SessionRecord& record() const { return session_->record; }
  // Reads the log if nothing did.
  Result<const Conversation*> conversation() const;
  // With the open turn ended as far as the log has it.
  Result<Conversation> closed_conversation() const;
  Result<Conversation> conversation_at(const SessionLog& log, std::uint64_t event) const;
  // Counts what a record of format 1 lacks.
  void count_without_state();
  Status complete_record();

  Draft draft() const;
  // Appends to a draft as the next event of its path.
  void add_event(Draft& draft, EventBody body) const;
  Result<CommitReceipt> write(Draft& draft);
  void say_again(const std::vector<LogEvent>& events) noexcept;
  // Makes the draft's head that of the live state's stored blocks and the draft's own.
  void set_stored_chain(Draft& draft) const;
  // Writes the draft's events with so much of the live state. Where the disk has no room for state
  // the log goes on without it: state can be computed again. Returns the bytes written.
  Result<std::int64_t> write_with_state(Draft& draft, StateToStore state);
  // Adds the tail of the live state, which must be ready(), to the draft.
  void add_tail(Draft& draft, StateToStore state, LiveSequence::Payloads& payloads);
  // Writes new blocks in commits of their own until one commit holds the rest.
  Result<std::int64_t> write_surplus_blocks();
  Status check_not_running() const;
  // kContextFull if a prompt leaves no room for an answer within `limit` (0 = the model's) tokens.
  Status check_room(std::int64_t n_prompt_tokens, std::int64_t limit = 0) const;
  // At least the tokens that the message adds to a prompt; empty where that is not known without
  // the messages before it.
  std::optional<std::int64_t> tokens_at_most(const Message& message) const;
  // What SessionRecord::appended_tokens becomes with the messages; kContextFull where they leave no
  // room for an answer.
  Result<std::int64_t> appended_tokens_with(const std::vector<Message>& messages) const;

  // The session's tails on the path to `event`, each state once, the one with the most tokens
  // first.
  Result<std::vector<TailRecord>> tails_before(const SessionLog& log, std::uint64_t event) const;
  Result<HeadState> head_at(const SessionLog& log, std::uint64_t event) const;
  Result<HeadState> counted_head(const SessionLog& log, std::uint64_t event) const;
  // Lets the draft go back to `event`, 0 = before the first; the next event follows that one.
  Status add_move(Draft& draft, const SessionLog& log, std::uint64_t event, bool by_sync) const;
  Status write_move(Draft& draft);
  // Makes the draft's head one of this session's model; `conversation` is that of the draft's head.
  Status add_model_change(Draft& draft, Conversation conversation) const;
  Status change_model(std::uint32_t kv_namespace);

  // --- Prompts (session_prompts.cc).

  struct PromptMode {
    bool thinking = false;
    int effort = 0;
  };
  // A turn's, given what its options or its start say; by default that of the session.
  PromptMode mode_of(ThinkingMode thinking = ThinkingMode::kAsSession,
                     std::int32_t effort = 0) const;
  PromptMode mode_of(const TurnStarted& started) const;
  Result<std::vector<engine::PromptSegment>> segments(const std::vector<Message>& messages,
                                                      const PromptMode& mode) const;
  // In the session's mode.
  Result<std::vector<TokenId>> render(const std::vector<Message>& messages) const;
  // Where a turn begins: its prompt, of which `begun` are the tokens of the message that it goes on
  // with, and what its parser has to know.
  struct TurnPrompt {
    std::vector<TokenId> tokens, begun;
    engine::OutputParserOptions parser;
  };
  Result<TurnPrompt> turn_prompt(std::vector<Message> messages, const TurnStarted& started) const;
  TurnStarted turn_started(const TurnOptions& options) const;
  // What the turn's rules make of its output; null without rules. Fails where a rule cannot be
  // followed, or where the message that the turn goes on with has broken one already.
  Result<std::shared_ptr<engine::OutputConstraint>> constraint(
      const TurnStarted& started, const engine::OutputParserOptions& parser);
  Status check_turn(const std::vector<Message>& messages, const TurnOptions& options) const;

  // A conversation's open turn as far as the log has it; there must be one.
  TurnEnded end_of_open_turn(const Conversation& conversation) const;
  TurnEnded end_of_turn_of_other_model(const Conversation& conversation) const;

  // --- Sync and plans (session_sync.cc).

  // A conversation whose last turn may be what a prompt is compared with.
  struct KnownConversation {
    Conversation conversation;
    HeadMove move = HeadMove::kNone;  // it was left by
  };
  // What a sync comes to, before anything of it is written.
  struct SyncDraft {
    SyncReport report;
    bool moves = false;       // the head goes back, or to another branch:
    std::uint64_t place = 0;  // here
    std::vector<Message> appended;
    std::vector<Message> after;            // the conversation then
    std::vector<KnownConversation> known;  // that its prompt is compared with
  };
  Status check_history(const std::vector<Message>& messages) const;
  Result<SyncDraft> draft_sync(const std::vector<Message>& messages,
                               const SyncOptions& options) const;
  // The conversations at the ends of branches that a rewind or a sync left.
  Result<std::vector<Conversation>> branches(const SessionLog& log) const;
  Status describe_sync(const PromptMode& mode, SyncDraft& draft) const;
  Status write_sync(const SyncDraft& sync);
  Result<RestorePlan> plan_restore(const std::vector<TokenId>& prompt) const;
  Result<TurnPlan> plan_turn(const Conversation& said, const std::vector<KnownConversation>& known,
                             const TurnOptions& options) const;

  // --- What was computed before (session_reuse.cc).

  // What the input says for the reuse report of a turn that begins.
  Status add_known(const Conversation& said, const PromptMode& mode, TurnInput& input) const;
  // The conversation itself and those that it was moved away from since its last turn.
  Result<std::vector<KnownConversation>> known_conversations(Conversation said) const;
  // With the one of them that has most in common. Nothing known: nothing in common.
  Result<PromptComparison> compare(const std::vector<Message>& messages, const PromptMode& mode,
                                   const std::vector<KnownConversation>& known) const;
  bool is_of_other_model(const std::vector<Message>& messages,
                         const std::vector<KnownConversation>& known) const;
  Result<engine::RenderedPrompt> known_prompt(const Conversation& conversation) const;
  Message answer(const engine::ParsedOutput& output) const;

  std::shared_ptr<engine::LoadedModel> model_;
  std::shared_ptr<StoreState> store_;
  SessionLease lease_;
  std::shared_ptr<OpenSession> session_;  // its mutex guards the record and conversation_
  SessionDurability durability_;
  LiveSequence live_;
  bool live_is_of_head_ = true;  // no rewind since the last turn; under the session's mutex

  mutable std::optional<Conversation> conversation_;  // empty: the log was not read yet

  // Of the newest turn with rules: the next one mostly has the same.
  engine::OutputConstraintOptions constraint_options_;
  std::shared_ptr<engine::OutputConstraint> constraint_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_STATE_H_
