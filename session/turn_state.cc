// Each step is short (one prefill chunk, one token), so several turns share the strand fairly; a
// cancel takes effect within one layer of it, or at the end of a pass that is shared with others.
// Tokens reach the log in groups, at the latest kGroupInterval after they were sampled; a turn's
// end is synced, unless the session is buffered. What a synced session says is delivered after its
// group is on the disk.
#include "session/turn_state.h"

#include <algorithm>
#include <new>
#include <thread>

#include "engine/runtime.h"
#include "session/reuse_explanation.h"

namespace cairn::session {
namespace {

constexpr std::chrono::milliseconds kGroupInterval{50};
constexpr std::size_t kGroupTokens = 64;
// Each commit with blocks makes files of its own: blocks wait for others, but not for long.
constexpr std::int64_t kGroupBlocks = 16;
constexpr std::chrono::seconds kBlocksInterval{5};
constexpr std::int64_t kMeasuredRows = 32;     // of a prefill; fewer say little about its speed
constexpr std::int64_t kMeasuredBytes = 4096;  // of a restore, likewise
constexpr std::size_t kTokensReadBack = 1024;  // of a resumed turn, in one step

}  // namespace

TurnState::TurnState(std::shared_ptr<SessionState> session, SessionState::TurnInput input,
                     std::unique_ptr<TurnStream> stream)
    : session_(std::move(session)),
      input_(std::move(input)),
      stream_(std::move(stream)),
      parser_(session_->model()->tokenizer(), input_.parser) {
  if (input_.constraint != nullptr) constraint_.emplace(input_.constraint);
}

Result<std::shared_ptr<TurnState>> TurnState::start(std::shared_ptr<SessionState> session,
                                                    SessionState::TurnInput input,
                                                    std::uint64_t after) {
  try {
    auto stream = TurnStream::create(session->model(), input.parser, input.event);
    if (!stream.ok()) {
      session->interrupt_turn();
      return stream.status();
    }
    if (after > 0) (*stream)->attach(after);
    std::shared_ptr<TurnState> turn(new TurnState(session, std::move(input), std::move(*stream)));
    session->model()->runtime()->scheduler().add({turn, turn.get()},
                                                 turn->input_.turn.started.priority);
    return turn;
  } catch (...) {  // out of memory: no step will end what the session takes for a running turn
    session->interrupt_turn();
    throw;
  }
}

Result<std::shared_ptr<TurnState>> TurnState::ended(std::shared_ptr<SessionState> session,
                                                    SessionState::EndedTurn ended,
                                                    std::uint64_t after) {
  CAIRN_ASSIGN_OR_RETURN(
      auto stream, TurnStream::create(session->model(), ended.input.parser, ended.input.event));
  if (after > 0) stream->attach(after);
  ended.input.constraint = nullptr;
  std::shared_ptr<TurnState> turn(
      new TurnState(std::move(session), std::move(ended.input), std::move(stream)));
  turn->say_again(ended.reason);
  return turn;
}

void TurnState::say_again(EndReason reason) {
  const OpenTurn& turn = input_.turn;
  const bool complete = reason == EndReason::kStop || reason == EndReason::kToolCalls;
  usage_.resumed_tokens = n_generated_ = std::ssize(turn.tokens);
  usage_.reuse.detail = "the turn ended in an earlier run";
  Event started;
  started.kind = EventKind::kTurnStarted;
  started.reuse = usage_.reuse;
  std::vector<engine::OutputEvent> events;
  for (const auto* tokens : {&turn.started.begun, &turn.tokens}) {
    for (const TokenId token : *tokens) parser_.push(token, events);
  }
  parser_.finish(complete, events);
  stream_->start(std::move(started));
  stream_->say(turn.started.begun, /*replayed=*/true);
  stream_->say(turn.tokens, /*replayed=*/true);
  stream_->close(complete);
  complete_usage();
  say_end(reason, {});
  phase_ = Phase::kFinished;
  set_finished();
}

// --- The host's side.

Status TurnState::end_thinking() {
  if (session_->model()->think_end() < 0) {
    return {StatusCode::kUnsupported, "the model's tokenizer has no token that ends reasoning"};
  }
  end_thinking_ = true;
  return {};
}

void TurnState::wait_until_finished() noexcept {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_; });
  }
  // The last step's task still holds this turn. When a task behind it has run, the strand holds
  // nothing: what the caller drops is destroyed by the caller, not by the strand during exit().
  try {
    session_->model()->runtime()->drain();
  } catch (...) {  // no memory for a task; the strand's hold is short
    while (weak_from_this().use_count() > 1) std::this_thread::yield();
  }
}

// --- The strand's side.

engine::Job::Next TurnState::next() const noexcept {
  if (phase_ == Phase::kFinished) return Next::kNothing;
  if (cancelled_ || out_of_time()) return Next::kEnd;
  return phase_ == Phase::kDecode ? Next::kDecode : Next::kStep;
}

void TurnState::step() noexcept {
  run([this] { return next_piece(); });
}

bool TurnState::begin_decode(engine::DecodeRow& row) noexcept {
  std::optional<engine::DecodeRow> begun;
  run([&] { return say_next(begun); });
  if (!begun || phase_ == Phase::kFinished) return false;
  row = std::move(*begun);
  return true;
}

void TurnState::end_decode(const engine::DecodeRow& row) noexcept {
  run([&] {
    const Status status = session_->live().decoded(row);
    // A cancel is answered by the next step.
    if (status.code() == StatusCode::kCancelled) return Status();
    CAIRN_RETURN_IF_ERROR(status);
    if (!row.drafts.empty()) return say_drafts(row);
    note_round(row, 0);
    return Status();
  });
}

void TurnState::run(const std::function<Status()>& part) noexcept {
  try {
    run_or_stop(part);
    if (phase_ == Phase::kFinished) set_finished();
  } catch (...) {
    give_up();
  }
}

// There is not even memory to say so: the turn stops without its last events. Who polls wakes up
// and is told by next().
void TurnState::give_up() noexcept {
  session_->live().distrust();
  session_->interrupt_turn();
  phase_ = Phase::kFinished;
  stream_->fail();
  set_finished();
}

void TurnState::set_finished() noexcept {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void TurnState::run_or_stop(const std::function<Status()>& part) {
  try {
    const Status status = part();
    if (!status.ok()) stop(EndReason::kError, status);
  } catch (const std::bad_alloc&) {
    session_->live().distrust();
    stop(EndReason::kError, {StatusCode::kOutOfMemory, "out of memory in a step of the turn",
                             "free memory, then resume the turn"});
  } catch (const std::exception& e) {
    session_->live().distrust();
    stop(EndReason::kError, internal_error(std::string("a step of the turn failed: ") + e.what()));
  }
}

Status TurnState::next_piece() {
  if (cancelled_ || out_of_time()) {
    CAIRN_RETURN_IF_ERROR(flush(StateToStore::kTail));
    stop(cancelled_ ? EndReason::kCancelled : EndReason::kTimeLimit, {});
    return {};
  }
  switch (phase_) {
    case Phase::kRestore:
      return restore();
    case Phase::kReadBack:
      return read_back();
    case Phase::kPrefill:
      return prefill_chunk();
    case Phase::kDecode:
    case Phase::kFinished:
      break;
  }
  return {};
}

Status TurnState::restore() {
  const Clock::time_point start = Clock::now();
  LiveSequence& live = session_->live();
  if (!restoring_) {
    restoring_ = true;
    usage_.queued_ms = ms_since(created_);
    std::vector<TokenId> target = input_.prompt;
    target.insert(target.end(), input_.turn.tokens.begin(), input_.turn.tokens.end());
    live.start_restore(std::move(target));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::optional<ReuseReport> reuse, live.restore_step());
  restore_ms_ += ms_since(start);
  if (!reuse) return {};
  session_->note_live_use();
  usage_.reuse = *reuse;
  usage_.reuse.restore_ms = restore_ms_;
  explain_reuse(input_, live.n_blocks_found(), usage_.reuse);
  usage_.resumed_tokens = n_generated_ = static_cast<std::int64_t>(input_.turn.tokens.size());
  rows_total_ = usage_.reuse.prefilled + usage_.reuse.replayed;
  Event started;
  started.kind = EventKind::kTurnStarted;
  started.reuse = usage_.reuse;
  stream_->start(std::move(started));
  stream_->say(input_.turn.started.begun, /*replayed=*/true);
  stream_->say(input_.turn.tokens, /*replayed=*/true);
  phase_ = Phase::kReadBack;
  return {};
}

// In pieces, so that a long answer does not keep others waiting.
Status TurnState::read_back() {
  const std::vector<TokenId>& begun = input_.turn.started.begun;
  const std::vector<TokenId>& tokens = input_.turn.tokens;
  const std::size_t n_tokens = begun.size() + tokens.size();
  const std::size_t end = std::min(n_tokens, n_read_back_ + kTokensReadBack);
  std::vector<engine::OutputEvent> events;
  for (; n_read_back_ < end; ++n_read_back_) {
    const bool is_begun = n_read_back_ < begun.size();
    const TokenId token = is_begun ? begun[n_read_back_] : tokens[n_read_back_ - begun.size()];
    parser_.push(token, events);
    if (constraint_) CAIRN_RETURN_IF_ERROR(constraint_->advance(token));
    if (is_begun) begun_reasoning_ = parser_.output().reasoning_tokens;
  }
  if (n_read_back_ == n_tokens) phase_ = Phase::kPrefill;
  return {};
}

Status TurnState::prefill_chunk() {
  LiveSequence& live = session_->live();
  if (live.prefilling()) {
    if (rows_done_ == 0) report_progress();
    const std::int64_t first = live.sequence().prefill_next();
    const Clock::time_point start = Clock::now();
    if (!live.prefill_step(stop_requested_)) return {};  // the next step ends the turn
    usage_.prefill_ms += ms_since(start);
    rows_done_ =
        live.prefilling() ? rows_done_ + live.sequence().prefill_next() - first : rows_total_;
    session_->note_live_use();
    report_progress();
    if (live.prefilling()) {
      return state_that_is_due() == StateToStore::kNothing ? Status()
                                                           : flush(StateToStore::kBlocks);
    }
  }
  // The whole prompt is computed: from here a restart needs none of it again.
  if (rows_total_ > 0) {
    const bool at_begin = input_.turn.tokens.empty();
    CAIRN_RETURN_IF_ERROR(flush(at_begin ? StateToStore::kPromptTail : StateToStore::kTail));
  }
  phase_ = Phase::kDecode;
  decode_start_ = Clock::now();
  if (!input_.turn.tokens.empty() && input_.turn.tokens.back() == session_->model()->eos()) {
    return finish(EndReason::kStop);
  }
  return {};
}

void TurnState::report_progress() {
  const ReuseReport& reuse = usage_.reuse;
  Event progress;
  progress.kind = EventKind::kPrefillProgress;
  progress.total = reuse.prompt_tokens;
  progress.reused = reuse.prompt_tokens - reuse.prefilled;
  progress.done = std::max(progress.reused, progress.reused + rows_done_ - reuse.replayed);
  const double us_per_row = rows_done_ > 0
                                ? usage_.prefill_ms * 1000 / static_cast<double>(rows_done_)
                                : input_.us_per_token;
  if (us_per_row > 0) {
    progress.remaining_ms = us_per_row * static_cast<double>(rows_total_ - rows_done_) / 1000;
  }
  stream_->add(std::move(progress));
}

Status TurnState::flush_if_due() {
  if (!flush_is_due()) return {};
  return flush(session_->live().tail_is_due() ? StateToStore::kTail : state_that_is_due());
}

// What the host asked for is in the log before anything is said after it.
bool TurnState::flush_is_due() const {
  return is_forced_ || unlogged_.size() >= kGroupTokens ||
         Clock::now() - last_flush_ >= kGroupInterval;
}

StateToStore TurnState::state_that_is_due() const {
  const std::int64_t n_blocks = session_->live().n_new_blocks();
  const bool due =
      n_blocks >= kGroupBlocks || (n_blocks > 0 && Clock::now() - last_blocks_ >= kBlocksInterval);
  return due ? StateToStore::kBlocks : StateToStore::kNothing;
}

Status TurnState::flush(StateToStore state) {
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t bytes, session_->commit_progress(unlogged_, state));
  usage_.bytes_written += bytes;
  const bool has_tokens = !unlogged_.empty();
  if (session_->durability() == SessionDurability::kSynced) {
    stream_->say(unlogged_, /*replayed=*/false);
  }
  unlogged_.clear();
  is_forced_ = false;
  if (has_tokens) report_durable();
  last_flush_ = Clock::now();
  if (state != StateToStore::kNothing) {
    last_blocks_ = last_flush_;
    session_->note_live_use();
  }
  return {};
}

void TurnState::report_durable() {
  Event durable;
  durable.kind = EventKind::kDurable;
  durable.done = n_generated_;
  stream_->add(std::move(durable));
}

Status TurnState::finish(EndReason reason) {
  const bool complete = reason == EndReason::kStop;
  std::vector<engine::OutputEvent> events;
  parser_.finish(complete, events);
  if (const auto stopped = parser_stop()) {  // what was held back to the last
    reason = *stopped;
  } else if (complete && !parser_.output().tool_calls.empty()) {
    reason = EndReason::kToolCalls;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t bytes,
                         session_->end_turn(unlogged_, reason, parser_.output(), speed()));
  usage_.bytes_written += bytes;
  if (session_->durability() == SessionDurability::kSynced) {
    stream_->say(unlogged_, /*replayed=*/false);
  }
  unlogged_.clear();
  stream_->close(complete);
  end_stream(reason, {});
  return {};
}

SessionState::Speed TurnState::speed() const {
  const ReuseReport& reuse = usage_.reuse;
  const std::int64_t n_rows = reuse.prefilled + reuse.replayed;
  SessionState::Speed speed;
  if (n_rows >= kMeasuredRows) {
    speed.prefill_us_per_token = usage_.prefill_ms * 1000 / static_cast<double>(n_rows);
  }
  if (reuse.bytes_read >= kMeasuredBytes) {
    speed.restore_us_per_mib =
        reuse.restore_ms * 1000 * 1024 * 1024 / static_cast<double>(reuse.bytes_read);
  }
  return speed;
}

void TurnState::stop(EndReason reason, Status status) {
  session_->live().abandon();
  session_->interrupt_turn();
  end_stream(reason, std::move(status));
}

void TurnState::end_stream(EndReason reason, Status status) {
  phase_ = Phase::kFinished;
  session_->live().rest();
  usage_.decode_ms = usage_.first_token_ms > 0 ? ms_since(decode_start_) : 0;
  complete_usage();
  session_->store()->store().counters().add_turn(usage_);
  say_end(reason, std::move(status));
}

void TurnState::complete_usage() {
  usage_.output_tokens = n_generated_;
  usage_.reasoning_tokens = parser_.output().reasoning_tokens;
  usage_.context_used = static_cast<std::int64_t>(input_.prompt.size()) + n_generated_;
  usage_.context_size = session_->model()->info().max_context;
}

void TurnState::say_end(EndReason reason, Status status) {
  Event usage;
  usage.kind = EventKind::kUsage;
  usage.usage = usage_;
  Event end;
  end.kind = EventKind::kTurnEnd;
  end.end_reason = reason;
  end.status = std::move(status);
  end.usage = usage_;
  if (reason == EndReason::kStopString) end.bytes = parser_.stop_string();
  stream_->end(std::move(usage), std::move(end));
}

bool TurnState::out_of_time() const {
  const std::chrono::milliseconds limit = input_.turn.started.limits.time;
  return limit.count() > 0 && Clock::now() - created_ >= limit;
}

double TurnState::ms_since(Clock::time_point start) const {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace cairn::session
