// Each step is short (one prefill chunk, one token), so several turns share the strand fairly; a
// cancel takes effect within one layer of it. Tokens reach the log in groups, at the latest
// kGroupInterval after they were sampled; a turn's end is synced, unless the session is buffered.
// What a synced session says is delivered after its group is on the disk.
#include "session/turn_state.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <thread>

#include "engine/runtime.h"
#include "engine/sampler.h"
#include "session/reuse_explanation.h"

namespace cairn::session {
namespace {

constexpr std::chrono::milliseconds kGroupInterval{50};
constexpr std::size_t kGroupTokens = 64;
// Each commit with blocks makes files of its own: blocks wait for others, but not for long.
constexpr std::int64_t kGroupBlocks = 16;
constexpr std::chrono::seconds kBlocksInterval{5};
constexpr std::int64_t kMeasuredRows = 32;      // of a prefill; fewer say little about its speed
constexpr std::int64_t kMeasuredBytes = 4096;   // of a restore, likewise
constexpr std::size_t kRedeliveredTokens = 64;  // of a resumed turn, in one step
// A longer wait is one for ever: the clock cannot count so far.
constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(24 * 365);

}  // namespace

TurnState::TurnState(std::shared_ptr<SessionState> session, SessionState::TurnInput input,
                     FileDescriptor wake)
    : session_(std::move(session)),
      input_(std::move(input)),
      wake_(std::move(wake)),
      parser_(session_->model()->tokenizer(), input_.parser) {}

Result<std::shared_ptr<TurnState>> TurnState::start(std::shared_ptr<SessionState> session,
                                                    SessionState::TurnInput input) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) {
    session->interrupt_turn();
    return Status(StatusCode::kIoError, "no file descriptor for the turn's wake-up",
                  "close descriptors or raise the limit, then resume the turn");
  }
  try {
    std::shared_ptr<TurnState> turn(new TurnState(session, std::move(input), std::move(wake)));
    turn->post_step();
    return turn;
  } catch (...) {  // out of memory: no step will end what the session takes for a running turn
    session->interrupt_turn();
    throw;
  }
}

// --- The host's side.

Result<Event> TurnState::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !queue_.empty() || end_delivered_ || finished_; };
  if (timeout.count() < 0 || timeout > kWaitMax) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, timeout, ready)) {
    return Status(StatusCode::kTimeout,
                  "no event within " + std::to_string(timeout.count()) + " ms");
  }
  if (queue_.empty() && !end_delivered_) {
    return Status(StatusCode::kOutOfMemory, "the turn stopped for want of memory",
                  "free memory, then resume the turn");
  }
  if (queue_.empty()) return Status(StatusCode::kNotFound, "the turn has ended");
  Event event = std::move(queue_.front());
  queue_.pop_front();
  end_delivered_ = event.kind == EventKind::kTurnEnd;
  if (queue_.empty()) {
    std::uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
  }
  if (paused_ && queue_.size() <= kMaxQueuedEvents / 2) go_on(std::move(lock));
  return event;
}

void TurnState::cancel() noexcept {
  cancelled_ = true;
  std::unique_lock lock(mutex_);
  if (paused_) go_on(std::move(lock));
}

Status TurnState::end_thinking() {
  if (session_->model()->think_end() < 0) {
    return {StatusCode::kUnsupported, "the model's tokenizer has no token that ends reasoning"};
  }
  end_thinking_ = true;
  return {};
}

void TurnState::go_on(std::unique_lock<std::mutex> lock) noexcept {
  paused_ = false;
  try {
    post_step();
  } catch (...) {  // out of memory; no step runs, so this thread may end the turn
    lock.unlock();
    give_up();
  }
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

void TurnState::post_step() {
  session_->model()->runtime()->post([self = shared_from_this()] { self->run_step(); });
}

void TurnState::run_step() noexcept {
  try {
    if (advance()) post_step();
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
  std::lock_guard lock(mutex_);
  finished_ = true;
  wake();
}

bool TurnState::advance() {
  try {
    const Status status = step();
    if (!status.ok()) stop(EndReason::kError, status);
  } catch (const std::bad_alloc&) {
    session_->live().distrust();
    stop(EndReason::kError, {StatusCode::kOutOfMemory, "out of memory in a step of the turn",
                             "free memory, then resume the turn"});
  } catch (const std::exception& e) {
    session_->live().distrust();
    stop(EndReason::kError, internal_error(std::string("a step of the turn failed: ") + e.what()));
  }
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kFinished) {
    finished_ = true;
    changed_.notify_all();
    return false;
  }
  paused_ = queue_.size() >= kMaxQueuedEvents && !cancelled_;
  return !paused_;
}

Status TurnState::step() {
  if (cancelled_) {
    CAIRN_RETURN_IF_ERROR(flush(StateToStore::kTail));
    stop(EndReason::kCancelled, {});
    return {};
  }
  switch (phase_) {
    case Phase::kRestore:
      return restore();
    case Phase::kRedeliver:
      return redeliver();
    case Phase::kPrefill:
      return prefill_chunk();
    case Phase::kDecode:
      return decode_token();
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
  Event started;
  started.kind = EventKind::kTurnStarted;
  started.reuse = usage_.reuse;
  emit(std::move(started));
  phase_ = Phase::kRedeliver;
  return {};
}

// In pieces, so that a long answer does not overrun the queue.
Status TurnState::redeliver() {
  const std::vector<TokenId>& begun = input_.turn.started.begun;
  const std::vector<TokenId>& tokens = input_.turn.tokens;
  const std::size_t n_tokens = begun.size() + tokens.size();
  const std::size_t end = std::min(n_tokens, n_redelivered_ + kRedeliveredTokens);
  std::vector<engine::OutputEvent> events;
  for (; n_redelivered_ < end; ++n_redelivered_) {
    const bool is_begun = n_redelivered_ < begun.size();
    parser_.push(is_begun ? begun[n_redelivered_] : tokens[n_redelivered_ - begun.size()], events);
  }
  emit_parsed(events, /*replayed=*/true);
  if (n_redelivered_ == n_tokens) phase_ = Phase::kPrefill;
  return {};
}

Status TurnState::prefill_chunk() {
  LiveSequence& live = session_->live();
  if (live.prefilling()) {
    const Clock::time_point start = Clock::now();
    if (!live.prefill_step(stop_requested_)) return {};  // the next step ends the turn
    usage_.prefill_ms += ms_since(start);
    session_->note_live_use();
    Event progress;
    progress.kind = EventKind::kPrefillProgress;
    progress.done = live.prefilling() ? live.sequence().prefill_next() : usage_.reuse.prompt_tokens;
    progress.total = usage_.reuse.prompt_tokens;
    emit(std::move(progress));
    if (live.prefilling()) {
      return state_that_is_due() == StateToStore::kNothing ? Status()
                                                           : flush(StateToStore::kBlocks);
    }
  }
  // The whole prompt is computed: from here a restart needs none of it again.
  if (usage_.reuse.prefilled + usage_.reuse.replayed > 0) {
    CAIRN_RETURN_IF_ERROR(flush(StateToStore::kTail));
  }
  phase_ = Phase::kDecode;
  decode_start_ = Clock::now();
  if (!input_.turn.tokens.empty() && input_.turn.tokens.back() == session_->model()->eos()) {
    return finish(EndReason::kStop);
  }
  return {};
}

Status TurnState::decode_token() {
  LiveSequence& live = session_->live();
  const engine::LoadedModel& model = *session_->model();
  const engine::Sequence& sequence = live.sequence();
  if (n_generated_ >= input_.turn.started.max_tokens ||
      sequence.position() >= model.info().max_context) {
    return finish(EndReason::kLength);
  }
  const bool ends_thinking = end_thinking_.exchange(false) && parser_.in_reasoning();
  const TokenId token =
      ends_thinking ? model.think_end()
                    : engine::sample(sequence.logits(), sequence.tokens(), model.masked_ids(),
                                     input_.turn.started.sampling, sequence.position());
  if (n_generated_ == usage_.resumed_tokens) usage_.first_token_ms = ms_since(created_);
  ++n_generated_;
  unlogged_.push_back(token);
  parser_.push(token, undelivered_);
  if (flush_is_due()) {
    CAIRN_RETURN_IF_ERROR(flush(live.tail_is_due() ? StateToStore::kTail : state_that_is_due()));
  }
  if (session_->durability() != SessionDurability::kSynced) emit_parsed(undelivered_, false);
  if (token == model.eos()) return finish(EndReason::kStop);
  if (n_generated_ < input_.turn.started.max_tokens &&
      sequence.position() < model.info().max_context) {
    const Status decoded = live.decode(token, stop_requested_);
    // A cancel is answered by the next step.
    if (!decoded.ok() && decoded.code() != StatusCode::kCancelled) return decoded;
  }
  return {};
}

bool TurnState::flush_is_due() const {
  return unlogged_.size() >= kGroupTokens || Clock::now() - last_flush_ >= kGroupInterval;
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
  unlogged_.clear();
  emit_parsed(undelivered_, /*replayed=*/false);
  last_flush_ = Clock::now();
  if (state != StateToStore::kNothing) {
    last_blocks_ = last_flush_;
    session_->note_live_use();
  }
  return {};
}

Status TurnState::finish(EndReason reason) {
  parser_.finish(/*complete=*/reason == EndReason::kStop, undelivered_);
  if (reason == EndReason::kStop && !parser_.output().tool_calls.empty()) {
    reason = EndReason::kToolCalls;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t bytes,
                         session_->end_turn(unlogged_, reason, parser_.output(), speed()));
  usage_.bytes_written += bytes;
  unlogged_.clear();
  emit_parsed(undelivered_, /*replayed=*/false);
  emit_end(reason, {});
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
  emit_end(reason, std::move(status));
}

void TurnState::emit_end(EndReason reason, Status status) {
  phase_ = Phase::kFinished;
  session_->live().rest();
  usage_.output_tokens = n_generated_;
  usage_.reasoning_tokens = parser_.output().reasoning_tokens;
  usage_.decode_ms = usage_.first_token_ms > 0 ? ms_since(decode_start_) : 0;
  usage_.context_used = static_cast<std::int64_t>(input_.prompt.size()) + n_generated_;
  usage_.context_size = session_->model()->info().max_context;
  session_->store()->store().counters().add_turn(usage_);
  Event usage;
  usage.kind = EventKind::kUsage;
  usage.usage = usage_;
  emit(std::move(usage));
  Event end;
  end.kind = EventKind::kTurnEnd;
  end.end_reason = reason;
  end.status = std::move(status);
  end.usage = usage_;
  emit(std::move(end));
}

void TurnState::emit(Event event) {
  event.sequence = next_sequence_++;
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(event));
  wake();
}

void TurnState::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  changed_.notify_all();
}

void TurnState::emit_parsed(std::vector<engine::OutputEvent>& events, bool replayed) {
  for (engine::OutputEvent& parsed : events) {
    Event event;
    event.kind = parsed.kind;
    event.replayed = replayed;
    event.block = parsed.block;
    event.block_kind = parsed.block_kind;
    event.bytes = std::move(parsed.bytes);
    event.tool_call = std::move(parsed.tool_call);
    event.malformed = parsed.malformed;
    emit(std::move(event));
  }
  events.clear();
}

double TurnState::ms_since(Clock::time_point start) const {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace cairn::session
