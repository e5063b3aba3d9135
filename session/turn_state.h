// A running turn: restore, prefill, decode, as a chain of steps on the runtime's strand, and the
// queue of events between it and the host.
#ifndef CAIRN_SESSION_TURN_STATE_H_
#define CAIRN_SESSION_TURN_STATE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cairn/session.h"
#include "engine/output_parser.h"
#include "session/file_descriptor.h"
#include "session/session_state.h"

namespace cairn::session {

// Events between the strand and the reader. When the reader is this far behind, the turn waits.
inline constexpr std::size_t kMaxQueuedEvents = 1024;

class TurnState : public std::enable_shared_from_this<TurnState> {
 public:
  // Fails with kIoError if there is no descriptor for wake_fd().
  static Result<std::shared_ptr<TurnState>> start(std::shared_ptr<SessionState> session,
                                                  SessionState::TurnInput input);

  // Any thread; one reader.
  Result<Event> next(std::chrono::milliseconds timeout);
  void cancel() noexcept;
  Status end_thinking();
  int wake_fd() const { return wake_.get(); }
  // Until the last step is done and the strand has let go of the turn. Not from the strand.
  void wait_until_finished() noexcept;

 private:
  enum class Phase { kRestore, kRedeliver, kPrefill, kDecode, kFinished };
  using Clock = std::chrono::steady_clock;

  TurnState(std::shared_ptr<SessionState> session, SessionState::TurnInput input,
            FileDescriptor wake);

  void go_on(std::unique_lock<std::mutex> lock) noexcept;  // a paused turn

  // --- On the strand.
  void post_step();
  void run_step() noexcept;
  bool advance();  // one step; true: another is to be posted. Catches what packages throw.
  void give_up() noexcept;
  Status step();  // one phase's next piece
  Status restore();
  Status redeliver();
  Status prefill_chunk();
  Status decode_token();
  Status flush(StateToStore state);
  StateToStore state_that_is_due() const;
  Status finish(EndReason reason);
  void stop(EndReason reason, Status status);  // without an end in the log: resumable
  void emit(Event event);
  void wake() noexcept;  // whoever waits in next() or polls; under mutex_
  // Leaves `events` empty.
  void emit_parsed(std::vector<engine::OutputEvent>& events, bool replayed);
  void emit_end(EndReason reason, Status status);
  double ms_since(Clock::time_point start) const;
  SessionState::Speed speed() const;  // of this turn; 0 = it had too little to do
  bool flush_is_due() const;

  const std::shared_ptr<SessionState> session_;
  const SessionState::TurnInput input_;
  const FileDescriptor wake_;
  engine::OutputParser parser_;
  Phase phase_ = Phase::kRestore;
  bool restoring_ = false;                        // the restore has begun
  std::vector<TokenId> unlogged_;                 // generated, not yet in the log
  std::vector<engine::OutputEvent> undelivered_;  // of these tokens, where the log comes first
  std::int64_t n_generated_ = 0;                  // of the whole turn, resumed ones included
  std::size_t n_redelivered_ = 0;                 // of the begun and the resumed ones
  double restore_ms_ = 0;                         // in the steps of the restore so far
  TurnUsage usage_;
  Clock::time_point created_ = Clock::now(), last_flush_ = created_, decode_start_ = created_;
  Clock::time_point last_blocks_ = created_;  // put into the store
  std::uint64_t next_sequence_ = 0;

  std::atomic<bool> cancelled_ = false, end_thinking_ = false;
  const engine::StopRequested stop_requested_ = [this] { return cancelled_.load(); };

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Event> queue_;
  bool paused_ = false;  // no step is posted: the queue is full
  bool end_delivered_ = false;
  bool finished_ = false;  // no step will run any more
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TURN_STATE_H_
