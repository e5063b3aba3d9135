// A running turn: restore, prefill, decode, in steps on the runtime's strand, between those of
// other turns as the scheduler picks them. What it says goes into its stream.
#ifndef CAIRN_SESSION_TURN_STATE_H_
#define CAIRN_SESSION_TURN_STATE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cairn/session.h"
#include "engine/draft.h"
#include "engine/output_parser.h"
#include "engine/scheduler.h"
#include "session/session_state.h"
#include "session/turn_stream.h"

namespace cairn::session {

class TurnState final : public std::enable_shared_from_this<TurnState>, private engine::Job {
 public:
  // `after`: the reader has the events up to this number. Fails with kIoError if there is no
  // descriptor for wake_fd().
  static Result<std::shared_ptr<TurnState>> start(std::shared_ptr<SessionState> session,
                                                  SessionState::TurnInput input,
                                                  std::uint64_t after = 0);

  // A turn that ended in an earlier run of the process, for its events to be read again. Of how it
  // was computed the log knows nothing.
  static Result<std::shared_ptr<TurnState>> ended(std::shared_ptr<SessionState> session,
                                                  SessionState::EndedTurn ended,
                                                  std::uint64_t after);

  // Any thread.
  TurnStream& stream() { return *stream_; }
  void cancel() noexcept { cancelled_ = true; }
  Status end_thinking();
  // Until the last step is done and the strand has let go of the turn. Not from the strand.
  void wait_until_finished() noexcept;

 private:
  enum class Phase { kRestore, kReadBack, kPrefill, kDecode, kFinished };
  using Clock = std::chrono::steady_clock;

  TurnState(std::shared_ptr<SessionState> session, SessionState::TurnInput input,
            std::unique_ptr<TurnStream> stream);

  // --- On the strand, called by the scheduler.
  Next next() const noexcept override;
  void step() noexcept override;
  const engine::LoadedModel* model() const noexcept override { return session_->model().get(); }
  bool begin_decode(engine::DecodeRow& row) noexcept override;
  void end_decode(const engine::DecodeRow& row) noexcept override;

  // --- On the strand.
  // Part of a step, which stops the turn if it fails. Catches what packages throw.
  void run(const std::function<Status()>& part) noexcept;
  void run_or_stop(const std::function<Status()>& part);
  void give_up() noexcept;
  void set_finished() noexcept;
  Status next_piece();  // of the phase
  Status restore();
  Status read_back();
  Status prefill_chunk();
  // What is said next, and the row that it makes, if there is another token to come.
  Status say_next(std::optional<engine::DecodeRow>& row);
  Status say(TokenId token);
  Status flush_if_due();
  // Gives the row drafts of what is said after it.
  Status propose(engine::DecodeRow& row);
  void leave_out_what_rules_forbid();
  // Says what was verified and would be said without drafts, too.
  Status say_drafts(const engine::DecodeRow& row);
  void note_round(const engine::DecodeRow& row, std::int64_t n_accepted);
  std::optional<EndReason> parser_stop() const;
  // The reason for the turn to end before another token.
  std::optional<EndReason> reached_limit() const;
  // What is said whatever the logits are: by a limit, or because the host wants it.
  std::optional<TokenId> token_by_limit() const;
  std::optional<TokenId> token_by_host();
  // After `tokens`, from the logits there.
  Result<TokenId> sampled_token(std::span<const float> logits, std::span<const TokenId> tokens);
  Result<TokenId> next_token();
  Status flush(StateToStore state);
  StateToStore state_that_is_due() const;
  Status finish(EndReason reason);
  void stop(EndReason reason, Status status);  // without an end in the log: resumable
  void end_stream(EndReason reason, Status status);
  void complete_usage();
  // The last two events.
  void say_end(EndReason reason, Status status);
  void say_again(EndReason reason);
  void report_progress();
  void report_durable();
  bool out_of_time() const;
  double ms_since(Clock::time_point start) const;
  SessionState::Speed speed() const;  // of this turn; 0 = it had too little to do
  bool flush_is_due() const;

  const std::shared_ptr<SessionState> session_;
  const SessionState::TurnInput input_;
  const std::unique_ptr<TurnStream> stream_;
  engine::OutputParser parser_;  // of all tokens; readers have their own
  std::optional<engine::ConstraintState> constraint_;
  Phase phase_ = Phase::kRestore;
  bool restoring_ = false;         // the restore has begun
  std::vector<TokenId> unlogged_;  // generated, not yet in the log
  bool is_forced_ = false;         // the newest token is the host's
  std::optional<TokenId> drawn_;   // sampled already, to be said next
  engine::DraftProposal proposal_;
  std::vector<double> survival_;  // of its drafts
  std::int64_t n_generated_ = 0;                 // of the whole turn, resumed ones included
  std::size_t n_read_back_ = 0;                  // of the begun and the resumed ones
  std::int64_t begun_reasoning_ = 0;             // tokens of what it goes on with
  double restore_ms_ = 0;                        // in the steps of the restore so far
  std::int64_t rows_done_ = 0, rows_total_ = 0;  // of the prefill, replay included
  TurnUsage usage_;
  Clock::time_point created_ = Clock::now(), last_flush_ = created_, decode_start_ = created_;
  Clock::time_point last_blocks_ = created_;  // put into the store

  std::atomic<bool> cancelled_ = false, end_thinking_ = false;
  const engine::StopRequested stop_requested_ = [this] { return cancelled_ || out_of_time(); };

  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;  // no step will run any more; under mutex_
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TURN_STATE_H_
