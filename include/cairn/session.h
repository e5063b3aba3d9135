// Session, Turn, Event: durable agent sessions. Their store is in cairn/store.h.
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
#include "cairn/store.h"

namespace cairn {

namespace session {
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

// A place in a session's log to come back to.
struct Mark {
  std::uint64_t event = 0;  // names the place
  std::string name;         // as given to Session::mark; empty for the end of a rewound branch
  std::int64_t time_ms = 0;
  std::int64_t n_tokens = 0;  // of the head there, as far as computed
  bool has_state = false;     // its exact state is stored: going there needs no replay
  bool rewound = false;       // the end of a branch that a rewind left
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
  // create: kAlreadyExists. open: kNotFound, kModelMismatch, kBusy if open elsewhere in the
  // process.
  static Result<Session> create(const Model& model, const Store& store, const std::string& name,
                                const SessionOptions& options = {});
  // Opening reads the session's record, not its history.
  static Result<Session> open(const Model& model, const Store& store, const std::string& name,
                              const OpenOptions& options = {});

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
  SessionInfo info() const;

  const std::shared_ptr<session::SessionState>& state() const { return state_; }

 private:
  explicit Session(std::shared_ptr<session::SessionState> state) : state_(std::move(state)) {}
  std::shared_ptr<session::SessionState> state_;
};

}  // namespace cairn

#endif  // CAIRN_SESSION_H_
