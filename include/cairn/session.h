// Store, Session, Turn, Event: durable agent sessions.
//
// A host appends messages to a session (which only touches the log), starts a turn, and pulls
// events until the turn ends. Everything acknowledged is in the store: a process that dies at any
// instant is continued by opening the same session again.
//
// Threads: Store and Session are safe from any thread; calls on one session are serialised, and
// while a turn runs its session refuses appends with kBusy. A Turn has one reader; `cancel` and
// `wake_fd` may be called from any thread.
#ifndef CAIRN_SESSION_H_
#define CAIRN_SESSION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "cairn/message.h"
#include "cairn/sampling.h"
#include "cairn/status.h"

namespace cairn {

namespace session {
class StoreState;
class SessionState;
class TurnState;
}  // namespace session

struct StoreOptions {
  bool create_if_missing = true;
};

struct SessionInfo {
  std::string id;    // 32 hex digits
  std::string name;  // unique in the store
  std::string model_fingerprint;
  std::int64_t created_ms = 0, used_ms = 0;  // Unix time
  std::int64_t n_events = 0;                 // entries of the log
  std::int64_t n_tokens = 0;                 // tokens of the head, as of the last commit
  bool turn_open = false;                    // the last turn was interrupted
};

struct StoreStats {
  std::int64_t bytes_on_disk = 0;  // allocated blocks of every file of the store
  std::int64_t n_sessions = 0, n_blocks = 0, n_tails = 0;
};

// One directory, one owner process.
class Store {
 public:
  // Fails with kBusy (message has the owner's pid), kCorrupt, kUnsupported (made by a newer
  // version), kNotFound (missing and not to be created), kIoError.
  static Result<Store> open(const Runtime& runtime, const std::string& directory,
                            const StoreOptions& options = {});

  // Works without a model. Newest use first.
  Result<std::vector<SessionInfo>> list() const;
  Result<StoreStats> stats() const;
  // Removes a session's log and tail. Fails with kNotFound, kBusy while it is open.
  Status remove(const std::string& name);

  const std::shared_ptr<session::StoreState>& state() const { return state_; }

 private:
  explicit Store(std::shared_ptr<session::StoreState> state) : state_(std::move(state)) {}
  std::shared_ptr<session::StoreState> state_;
};

// What a restore may do where the exact state is not stored (spec/architecture.md section 12).
enum class RestorePolicy : std::int32_t {
  kExact = 0,    // recompute as deep as needed: results equal an uninterrupted run bit for bit
  kBounded = 1,  // SWA bounded replay of one window: faster, approximate, said so in the report
};

struct SessionOptions {
  RestorePolicy restore = RestorePolicy::kExact;
  bool thinking = false;     // prompt mode: thinking or chat
  std::int32_t effort = 75;  // 1..100, thinking mode only
};

enum class MissCause : std::int32_t {
  kNone = 0,               // everything known was reused
  kNewTokens = 1,          // the rest of the prompt was never computed
  kPromptChanged = 2,      // the prompt differs from the stored one before its end
  kNotStored = 3,          // a prefix was computed once but is not in the store
  kCorrupt = 4,            // a stored block or tail failed its check and was dropped
  kReplayNeeded = 5,       // tokens were restored, their window state had to be recomputed
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
  double restore_ms = 0;
};

struct TurnUsage {
  ReuseReport reuse;
  std::int64_t output_tokens = 0, reasoning_tokens = 0, resumed_tokens = 0;
  std::int64_t context_used = 0, context_size = 0;
  double queued_ms = 0, prefill_ms = 0, first_token_ms = 0, decode_ms = 0;
  std::int64_t bytes_written = 0;  // handed to the store by this turn
};

enum class EventKind : std::int32_t {
  kTurnStarted = 0,      // reuse is filled
  kPrefillProgress = 1,  // done, total
  kBlockBegin = 2,       // block, block_kind; for tool calls also tool_call.id and .name
  kBlockBytes = 3,       // block, bytes: whole UTF-8 characters; arguments as JSON text
  kBlockEnd = 4,         // block; for tool calls tool_call is complete and `malformed` judged
  kUsage = 5,            // usage
  kTurnEnd = 6,          // end_reason, status; the last event
};
enum class BlockKind : std::int32_t { kReasoning = 0, kText = 1, kToolCall = 2 };
enum class EndReason : std::int32_t {
  kStop = 0,       // the model ended its message
  kToolCalls = 1,  // the model ended its message with tool calls
  kLength = 2,     // max_tokens or the context was reached
  kCancelled = 3,
  kError = 4,  // see status
};

struct Event {
  EventKind kind = EventKind::kTurnEnd;
  std::uint64_t sequence = 0;  // 0, 1, 2, ... within the turn
  bool replayed = false;       // rebuilt from the log by resume_turn: the host may have seen it
  std::int32_t block = -1;
  BlockKind block_kind = BlockKind::kText;
  std::string bytes;
  ToolCall tool_call;
  bool malformed = false;
  std::int64_t done = 0, total = 0;
  ReuseReport reuse;
  TurnUsage usage;
  EndReason end_reason = EndReason::kStop;
  Status status;
};

struct TurnOptions {
  SamplingParams sampling = {};
  std::int32_t max_tokens = 4096;  // of this turn
};

class Turn {
 public:
  // The next event, waiting at most `timeout` (negative = for ever). kTimeout if none came;
  // kNotFound after kTurnEnd was delivered.
  Result<Event> next(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));
  // Stops the turn within one step. Idempotent, any thread. What was delivered is kept.
  void cancel();
  // Readable while an event waits. Owned by the turn; for poll() only.
  int wake_fd() const;

  const std::shared_ptr<session::TurnState>& state() const { return state_; }
  explicit Turn(std::shared_ptr<session::TurnState> state);
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) noexcept;
  ~Turn();  // cancels a running turn and waits for its current step

 private:
  std::shared_ptr<session::TurnState> state_;
};

class Session {
 public:
  // `name` is the host's handle on the session: 1..200 bytes of UTF-8.
  // create: kAlreadyExists. open: kNotFound, kModelMismatch, kBusy if open elsewhere in the process.
  static Result<Session> create(const Model& model, const Store& store, const std::string& name,
                                const SessionOptions& options = {});
  static Result<Session> open(const Model& model, const Store& store, const std::string& name);

  // Appends a message to the log; does not run the model. Synced to disk when it returns. An
  // interrupted turn is closed by it and keeps what it said. kBusy while a turn runs, kContextFull
  // (with both numbers) if the prompt would leave no room for an answer, kUnsupported for images;
  // then nothing is logged.
  Status append(const Message& message);
  // Appends one message given as JSON in the OpenAI chat shape.
  Status append_json(std::string_view json);

  // Starts the model's answer to what was appended. One turn at a time.
  Result<Turn> start_turn(const TurnOptions& options = {});
  // Continues the turn that a crash or a cancel interrupted, with its own options: re-delivers the
  // events of what is in the log (marked `replayed`), then goes on. kNotFound if there is none.
  Result<Turn> resume_turn();

  // The conversation so far, open turn excluded.
  Result<std::vector<Message>> messages() const;
  SessionInfo info() const;

  const std::shared_ptr<session::SessionState>& state() const { return state_; }

 private:
  explicit Session(std::shared_ptr<session::SessionState> state) : state_(std::move(state)) {}
  std::shared_ptr<session::SessionState> state_;
};

}  // namespace cairn

#endif  // CAIRN_SESSION_H_
