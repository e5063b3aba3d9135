// Session, Turn, Event: durable agent sessions. Their store is in cairn/store.h.
//
// A host appends messages to a session (which only touches the log), starts a turn, and pulls
// events until the turn ends. Everything acknowledged is in the store: a process that dies at any
// instant is continued by opening the same session again.
//
// Threads: Store and Session are safe from any thread; calls on one session are serialised, and
// while a turn runs its session refuses appends with kBusy. A Turn has one reader; `cancel`,
// `acknowledge` and `wake_fd` may be called from any thread.
#ifndef CAIRN_SESSION_H_
#define CAIRN_SESSION_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/engine.h"
#include "cairn/message.h"
#include "cairn/sampling.h"
#include "cairn/status.h"
#include "cairn/store.h"

namespace cairn {

namespace session {
class SessionHandle;
class SessionState;
class TurnState;
}  // namespace session

// What a restore may do where the exact state is not stored (spec/architecture.md section 12).
enum class RestorePolicy : std::int32_t {
  kExact = 0,    // recompute as deep as needed: results equal an uninterrupted run bit for bit
  kBounded = 1,  // SWA bounded replay of one window: faster, approximate, said so in the report
};

// When what a session writes is safe. Everything written survives the death of the process; this is
// about the death of the machine.
enum class SessionDurability : std::int32_t {
  kGrouped = 0,   // appends, turn starts and turn ends are synced; tokens in between as time allows
  kSynced = 1,    // tokens too: they are delivered after the sync of their group (50 ms)
  kBuffered = 2,  // nothing waits for the disk: the last seconds may be lost, never the order
};

struct SessionOptions {
  RestorePolicy restore = RestorePolicy::kExact;
  bool thinking = false;     // prompt mode: thinking or chat
  std::int32_t effort = 75;  // 1..100, thinking mode only
  SessionDurability durability = SessionDurability::kGrouped;
  // Sessions with different salts share no blocks, in memory or on disk. Any bytes, at most 1024.
  std::string salt = {};
};

struct OpenOptions {
  // Go on with another model than the session was made with: what was said before is read as text
  // from then on, and the stored state is of no use. Otherwise that is kModelMismatch.
  bool allow_other_model = false;
};

// A place in a session's log to come back to. A turn whose prompt no longer shows the reasoning of
// earlier answers, because the format drops it, sets one named "reasoning kept".
struct Mark {
  std::uint64_t event = 0;  // names the place
  std::string name;         // as given to Session::mark; empty for the end of a rewound branch
  std::int64_t time_ms = 0;
  std::int64_t n_tokens = 0;  // of the head there, as far as computed
  bool has_state = false;     // its exact state is stored: going there needs no replay
  bool rewound = false;       // the end of a branch that a rewind left
};

// Where a prompt parts from the one that its session computed before.
struct PromptDifference {
  std::int32_t message = -1;  // index in the prompt's conversation; -1 = no difference, or in what
                              // the format itself begins with
  std::int64_t byte = -1;     // offset in what the prompt shows of this message
  std::string stored, given;  // from there on: at most 40 bytes, whole characters
  std::string tool;           // kToolsChanged: the first tool that differs
};

// Where the state for a turn's prompt came from. Token counts add up:
// prompt = from_memory + from_disk + prefilled. `replayed` tokens are among the reused ones: their
// global KV was reused, their windows recomputed.
struct ReuseReport {
  std::int64_t prompt_tokens = 0;
  std::int64_t from_memory = 0;
  std::int64_t from_disk = 0;
  std::int64_t replayed = 0;
  std::int64_t prefilled = 0;
  bool exact = true;           // false: bounded replay took part, now or earlier in this session
  bool tail_restored = false;  // the head's exact state came from a stored tail
  MissCause cause = MissCause::kNone;
  std::int64_t first_difference = -1;  // token index where prompt and stored tokens part; -1 = none
  std::string detail;                  // one sentence for a person
  std::int64_t bytes_read = 0;         // of blocks and tails, from disk
  double restore_ms = 0;
  PromptDifference difference;    // where first_difference is
  // Of what is prefilled: tokens of messages whose state this session had computed before, and how
  // long they take by the session's measured speed (0 = not measured).
  std::int64_t lost_tokens = 0;
  double lost_ms = 0;
};

// Rounds of drafts (ModelOptions::drafts): each verifies a proposal and says what of it is right.
struct DraftReport {
  std::int64_t rounds = 0;             // with a proposal of one token at least
  std::int64_t proposed = 0;           // tokens, in all rounds
  std::int64_t accepted = 0;           // of these: said by the turn, in the pass that verified them
  // Rounds by how many of their tokens were accepted.
  std::array<std::int64_t, kMaxDrafts + 1> rounds_by_accepted{};
  double draft_ms = 0;   // proposing
  double verify_ms = 0;  // in the passes of these rounds
  // Steps without a proposal, since drafts had not paid of late (or to measure a single step).
  std::int64_t withheld = 0;
};

struct TurnUsage {
  ReuseReport reuse;
  std::int64_t output_tokens = 0, reasoning_tokens = 0, resumed_tokens = 0;
  std::int64_t context_used = 0, context_size = 0;
  double queued_ms = 0, prefill_ms = 0, first_token_ms = 0, decode_ms = 0;
  std::int64_t bytes_written = 0;  // handed to the store by this turn
  DraftReport drafts;
};

enum class EventKind : std::int32_t {
  kTurnStarted = 0,      // reuse is filled
  kPrefillProgress = 1,  // done, total, reused, remaining_ms; a newer one replaces one not yet read
  kBlockBegin = 2,       // block, block_kind; for tool calls also tool_call.id and .name
  kBlockBytes = 3,       // block, bytes: whole UTF-8 characters; arguments as JSON text
  kBlockEnd = 4,         // block; for tool calls tool_call is complete and `malformed` judged
  kUsage = 5,            // usage
  kTurnEnd = 6,          // end_reason, status; the last event
  kDurable = 7,          // done: so many output tokens, and what they said, survive the process
};
enum class BlockKind : std::int32_t { kReasoning = 0, kText = 1, kToolCall = 2 };
enum class EndReason : std::int32_t {
  kStop = 0,       // the model ended its message
  kToolCalls = 1,  // the model ended its message with tool calls
  kLength = 2,     // max_tokens or the context was reached
  kCancelled = 3,
  kError = 4,         // see status
  kContextLimit = 5,  // TurnLimits::context_tokens was reached
  kTimeLimit = 6,     // as if cancelled: resume_turn goes on, with as much time again
  kCallLimit = 7,     // the model began one call more than TurnLimits::tool_calls
  kStopString = 8,    // one of TurnLimits::stop was said; Event::bytes has it
};

// Numbers of events rise within the session and are never used for anything else in it. Those of
// the blocks follow from the log: the same tokens of the same turn give the same events with the same
// numbers, for every reader and in every process (a crash may take unlogged tokens with it; an exact
// session samples the same ones again). Where progress, durable marks, usage and end stand in between
// is up to one run of the turn. They leave gaps.
struct Event {
  EventKind kind = EventKind::kTurnEnd;
  std::uint64_t sequence = 0;
  bool replayed = false;  // was said before this reader came, or in an earlier run of the turn
  std::int32_t block = -1;
  BlockKind block_kind = BlockKind::kText;
  std::string bytes;
  ToolCall tool_call;
  bool malformed = false;
  // Progress in tokens of the prompt: of `total`, `done` are there, `reused` of them from the start.
  std::int64_t done = 0, total = 0, reused = 0;
  double remaining_ms = -1;  // of the prefill, estimated from its speed so far; -1 = not known
  ReuseReport reuse;
  TurnUsage usage;
  EndReason end_reason = EndReason::kStop;
  Status status;
};

enum class ThinkingMode : std::int32_t {
  kAsSession = 0,
  kOff = 1,  // chat prompt
  kOn = 2,   // thinking prompt
};

// Which turns go first where several sessions run (engine/DESIGN.md "Several sequences"). None
// starves: a waiting turn of any priority gets its share.
enum class TurnPriority : std::int32_t {
  kInteractive = 0,  // a person waits
  kAgent = 1,        // half as often
  kBackground = 2,   // an eighth as often
};

// Ends of a turn besides max_tokens. 0 = no limit.
struct TurnLimits {
  std::int32_t reasoning_tokens = 0;  // then the reasoning is ended and the answer begins
  std::int64_t context_tokens = 0;    // prompt and answer; a prompt as long is kContextFull
  std::int32_t tool_calls = 0;
  std::chrono::milliseconds time{0};  // from the start of the turn on
  // The answer's text ends before the first of these, which is never delivered. At most 16 of at
  // most 256 bytes of UTF-8. Reasoning and arguments of calls are not looked at. What was sampled
  // stays in the prompt of later turns.
  std::vector<std::string> stop = {};
};

// Whether a turn calls tools. kRequired and kNamed: the message is calls, without text before them.
enum class ToolChoice : std::int32_t {
  kAuto = 0,      // as the model likes
  kNone = 1,      // never
  kRequired = 2,  // one or more calls of declared tools
  kNamed = 3,     // one call of OutputRules::tool_name
};

// What a turn's message has to be: tokens that cannot lead to it are never sampled. Reasoning stays
// free. Everything in a schema has to be supported (engine/json_schema.h lists what is): otherwise
// the turn does not start, and the error names the keyword and its place. A turn that a limit ends
// may end in the middle.
struct OutputRules {
  // Calls are well-formed and name declared tools, and their arguments meet the tool's schema.
  // Implied by the other rules. Properties that a tool's schema does not list are allowed where it
  // says so with `additionalProperties`.
  bool constrain_tools = false;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name = {};  // for kNamed; qualified where the tool has a namespace
  // The whole text is JSON that meets this JSON Schema (draft 2020-12); where tools are declared and
  // may be called, the message is that or calls. Empty = any text.
  std::string response_format_json = {};

  bool operator==(const OutputRules&) const = default;
};

struct TurnOptions {
  SamplingParams sampling = {};
  std::int32_t max_tokens = 4096;  // of this turn
  // Mode and effort of this turn's prompt. The format says both in its first tokens: a turn that
  // changes them reuses nothing, and the turn after it may. Turn::end_thinking costs no prefix.
  ThinkingMode thinking = ThinkingMode::kAsSession;
  std::int32_t effort = 0;  // 1..100; 0 = the session's
  // Goes on with the last message, which is the assistant's, instead of answering: one that a
  // limit or a cancel cut off, or one that the host began. The message grows; what it says already
  // is delivered first, marked `replayed`.
  bool continue_answer = false;
  TurnLimits limits = {};
  TurnPriority priority = TurnPriority::kInteractive;
  OutputRules output = {};
};

// --- Histories that come back from a client (Session::sync).

struct SyncOptions {
  // Lines of system messages, and text blocks of the user's, that begin so: ContentBlock::is_volatile.
  std::vector<std::string> volatile_lines = {};
};

// By what a given message was found in the session.
enum class SyncMatch : std::int32_t {
  kNone = 0,       // it was not: nothing stored is like it
  kEqual = 1,      // it says what the stored one says
  kEvent = 2,      // assistant: by Message::event
  kCallIds = 3,    // assistant: by ids and arguments of its tool calls
  kArguments = 4,  // assistant: by names and arguments of its tool calls; ids are others
  kText = 5,       // assistant: by its visible text
};

struct SyncedMessage {
  SyncMatch match = SyncMatch::kNone;
  std::uint64_t event = 0;  // of the stored message that it is; 0 = none
  bool appended = false;    // it was written to the log by this sync
};

struct SyncReport {
  std::vector<SyncedMessage> messages;  // as given
  std::int64_t n_kept = 0;              // given messages that stand in the log already
  std::int64_t n_appended = 0;          // given messages that were written to it
  std::int64_t n_left = 0;              // stored messages that are not part of the conversation now
  bool forked = false;                  // the session went back; what it left stays as a branch
  std::uint64_t forked_at = 0;          // the event it went back to; 0 = before the first
  std::int64_t prompt_tokens = 0;       // of the conversation, as the next turn would render it
  std::int64_t common_tokens = 0;       // of these, before the first that differs from what was there
  MissCause cause = MissCause::kNone;   // of the difference
  std::string detail;                   // one sentence for a person
  PromptDifference difference;
};

// What a turn would cost.
struct TurnPlan {
  ReuseReport reuse;              // as its report would be; restore_ms is an estimate
  double prefill_ms = 0;          // estimate from the session's measured speed; 0 = not measured
  std::int64_t memory_bytes = 0;  // of live state while it runs, shared pages included
  SyncReport sync;                // of plan_sync
};

// "system", "tools", "evicted", ...: as the command-line program and the JSON below spell causes.
const char* miss_cause_name(MissCause cause);
// Everything that the reports say, as one JSON object; members are named like the fields.
std::string to_json(const SyncReport& report);
std::string to_json(const TurnPlan& plan);

// The messages of a request body: an object of the Chat Completions, Anthropic Messages or
// Responses shape, or an array of chat messages. Tools stand on the first system message, which is
// inserted if need be. Fields that say nothing to the model are ignored. kInvalidArgument names the
// field.
Result<std::vector<Message>> parse_request(std::string_view json);

class EventRange;

class Turn {
 public:
  // The next event, waiting at most `timeout` (negative = for ever). kTimeout if none came;
  // kNotFound after kTurnEnd was delivered, kBusy once another reader has attached. The turn does
  // not wait for its reader.
  Result<Event> next(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));
  // The events that are left, waiting for each: for (const Event& event : turn.events()). If next()
  // fails, the last one is a kTurnEnd with that status.
  EventRange events();
  // Events up to this number need not be delivered again to a reader that attaches.
  void acknowledge(std::uint64_t sequence);
  // Gives the turn up without stopping it: Session::attach_turn() reads on. It is stopped, and can be
  // resumed, when the last handle of its session is dropped. This handle reads nothing any more.
  void detach();
  // Stops the turn within one step. Idempotent, any thread. What was delivered is kept.
  void cancel();
  // Ends the reasoning at the next token, so that the answer begins. Does nothing where the model
  // is not reasoning (any more). The end is a token of the log: a resumed turn has it. Any thread.
  // kUnsupported if the tokenizer has no such token.
  Status end_thinking();
  // Readable while an event waits. Owned by the turn; for poll() only.
  int wake_fd() const;

  const std::shared_ptr<session::TurnState>& state() const { return state_; }
  explicit Turn(std::shared_ptr<session::TurnState> state,
                std::weak_ptr<session::SessionHandle> session = {});
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) noexcept;
  // Cancels a running turn and waits for its current step, unless another reader has attached.
  ~Turn();

 private:
  void finish() noexcept;

  std::shared_ptr<session::TurnState> state_;
  std::weak_ptr<session::SessionHandle> session_;
  std::uint64_t reader_ = 0;  // of the turn's stream
};

// An input range over the events of a turn, which must outlive it.
class EventRange {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;

    const Event& operator*() const { return range_->event_; }
    const Event* operator->() const { return &range_->event_; }
    Iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { range_->advance(); }
    bool operator==(std::default_sentinel_t) const { return range_->at_end_; }

   private:
    friend class EventRange;
    explicit Iterator(EventRange& range) : range_(&range) {}
    EventRange* range_;
  };

  explicit EventRange(Turn& turn) : turn_(&turn) {}
  Iterator begin() {
    advance();
    return Iterator(*this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  void advance();

  Turn* turn_;
  Event event_;
  bool begun_ = false, failed_ = false, at_end_ = false;
};

class Session {
 public:
  // `name` is the host's handle on the session: 1..200 bytes of UTF-8.
  // create: kAlreadyExists. open: kNotFound, kModelMismatch, kBusy if open elsewhere in the
  // process.
  static Result<Session> create(const Model& model, const Store& store, const std::string& name,
                                const SessionOptions& options = {});
  // Opening reads the session's record, not its history.
  static Result<Session> open(const Model& model, const Store& store, const std::string& name,
                              const OpenOptions& options = {});

  // Appends a message to the log; does not run the model. Synced to disk when it returns. An
  // interrupted turn is closed by it and keeps what it said. kBusy while a turn runs, kContextFull
  // (with both numbers) if the prompt would leave no room for an answer, kUnsupported for images,
  // kInvalidArgument for the result of a call that is not pending (which are is said); then nothing
  // is logged.
  Status append(const Message& message);
  // Appends one message given as JSON in the OpenAI chat shape.
  Status append_json(std::string_view json);

  // Starts the model's answer to what was appended. One turn at a time.
  Result<Turn> start_turn(const TurnOptions& options = {});
  // Continues the turn that a crash or a cancel interrupted, with its own options: re-delivers the
  // events of what is in the log (marked `replayed`) after number `after`, then goes on. kNotFound if
  // there is none.
  Result<Turn> resume_turn(std::uint64_t after = 0);
  // The last turn that was started here, for a new reader: it gets kTurnStarted, the blocks' events
  // that are numbered above `after` and were not acknowledged, and what follows. The turn may have
  // ended, in an earlier process too: then its report of reuse is empty. Who read it until then gets
  // kBusy. kNotFound if there is no turn, or it was interrupted: resume_turn() goes on with it.
  Result<Turn> attach_turn(std::uint64_t after = 0);

  // --- The tree. All O(1) in the log's length; kBusy while a turn runs.

  // Names the present place. Returns the event that stands for it. `keep_state`: the exact state is
  // kept too, as far as it is stored (one tail on disk until the mark is collected).
  Result<std::uint64_t> mark(const std::string& name = "", bool keep_state = false);
  // Marks and ends of rewound branches, oldest first. Reads the log.
  Result<std::vector<Mark>> marks() const;
  // Goes back to a mark, or to any other event of the session: what came after it stays in the log
  // as a branch until it is collected, and is not part of the conversation. kNotFound.
  Status rewind(std::uint64_t event);
  // A new session that begins as this one is at `event` (0 = now). It shares text and blocks with
  // this one, which may be removed without harm. kNotFound, kAlreadyExists.
  Result<Session> fork(const std::string& name, std::uint64_t event = 0) const;

  // The conversation so far, open turn excluded.
  Result<std::vector<Message>> messages() const;

  // --- Without running the model.

  // Tokens of the prompt that start_turn(options) would compute if `more` were appended before.
  Result<std::int64_t> count_tokens(const std::vector<Message>& more = {},
                                    const TurnOptions& options = {}) const;
  // What start_turn(options) would reuse, and what it would cost. kBusy while a turn runs.
  Result<TurnPlan> plan(const TurnOptions& options = {}) const;
  // The same for sync() before start_turn(); changes nothing.
  Result<TurnPlan> plan_sync(const std::vector<Message>& messages, const TurnOptions& options = {},
                             const SyncOptions& sync_options = {}) const;

  // --- For clients that send the whole conversation with each request.

  // Makes the conversation `messages`, doing as little as possible: finds the stored message that
  // each is, however the client has written it, goes back or to another branch where something
  // earlier has changed, and appends the rest. Assistant messages that are found keep the tokens
  // that the model sampled. One commit; an interrupted turn is closed. Fails like append.
  Result<SyncReport> sync(const std::vector<Message>& messages, const SyncOptions& options = {});
  SessionInfo info() const;

  const std::shared_ptr<session::SessionState>& state() const;

 private:
  explicit Session(std::shared_ptr<session::SessionState> state);
  std::shared_ptr<session::SessionHandle> handle_;
};

}  // namespace cairn

#endif  // CAIRN_SESSION_H_
