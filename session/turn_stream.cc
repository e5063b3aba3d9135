// The strand makes the first events ready as it says tokens, so that wake_fd() is right; a reader
// who lags makes the others itself.
#include "session/turn_stream.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

namespace cairn::session {
namespace {

// A longer wait is one for ever: the clock cannot count so far.
constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(24 * 365);

Status no_memory_for_events() {
  return {StatusCode::kOutOfMemory, "no memory for the turn's next event",
          "free memory and read on: nothing is lost"};
}

Event public_event(engine::OutputEvent& parsed) {
  Event event;
  event.kind = parsed.kind;
  event.block = parsed.block;
  event.block_kind = parsed.block_kind;
  event.bytes = std::move(parsed.bytes);
  event.tool_call = std::move(parsed.tool_call);
  event.malformed = parsed.malformed;
  return event;
}

}  // namespace

TurnStream::TurnStream(std::shared_ptr<const engine::LoadedModel> model,
                       engine::OutputParserOptions parser, std::uint64_t turn, FileDescriptor wake)
    : model_(std::move(model)),
      parser_options_(std::move(parser)),
      turn_(turn),
      wake_(std::move(wake)) {
  begin_reading(0);
}

Result<std::unique_ptr<TurnStream>> TurnStream::create(
    std::shared_ptr<const engine::LoadedModel> model, engine::OutputParserOptions parser,
    std::uint64_t turn) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.ok()) {
    return Status(StatusCode::kIoError, "no file descriptor for the turn's wake-up",
                  "close descriptors or raise the limit, then resume the turn");
  }
  return std::unique_ptr<TurnStream>(
      new TurnStream(std::move(model), std::move(parser), turn, std::move(wake)));
}

// --- The turn's side.

void TurnStream::start(Event started) {
  const std::lock_guard lock(mutex_);
  started.sequence = EventNumber::of(turn_, 0, 0);
  started_ = std::move(started);
  fill();
}

void TurnStream::say(std::span<const TokenId> tokens, bool replayed) {
  const std::lock_guard lock(mutex_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (replayed) n_replayed_ = tokens_.size();
  fill();
}

void TurnStream::add(Event event) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(place_tokens_, tokens_.size()) != tokens_.size()) {
    next_place_ = EventNumber::kRun;
  }
  if (next_place_ == EventNumber::kUsage) return;  // so many without a token: a later one says more
  event.sequence = EventNumber::of(turn_, tokens_.size(), next_place_++);
  std::erase_if(markers_, [&](const Marker& old) { return old.event.kind == event.kind; });
  markers_.push_back({tokens_.size(), std::move(event)});
  fill();
}

void TurnStream::close(bool complete) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  complete_ = complete;
  fill();
}

void TurnStream::end(Event usage, Event end) {
  const std::lock_guard lock(mutex_);
  const std::size_t n_tokens = tokens_.size() + (closed_ ? 1 : 0);
  usage.sequence = EventNumber::of(turn_, n_tokens, EventNumber::kUsage);
  end.sequence = EventNumber::of(turn_, n_tokens, EventNumber::kEnd);
  usage_ = std::move(usage);
  end_ = std::move(end);
  fill();
}

void TurnStream::fail() noexcept {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  wake();
}

// --- The reader's side.

std::uint64_t TurnStream::reader() const {
  const std::lock_guard lock(mutex_);
  return reader_;
}

Result<Event> TurnStream::next(std::uint64_t reader, std::chrono::milliseconds timeout) try {
  std::unique_lock lock(mutex_);
  if (is_behind_) {
    fill();
    is_behind_ = false;
  }
  const auto is_ready = [&] {
    return !ready_.empty() || reader != reader_ || end_delivered_ || failed_;
  };
  if (timeout.count() < 0 || timeout > kWaitMax) {
    changed_.wait(lock, is_ready);
  } else if (!changed_.wait_for(lock, timeout, is_ready)) {
    return Status(StatusCode::kTimeout,
                  "no event within " + std::to_string(timeout.count()) + " ms");
  }
  if (reader != reader_) {
    return Status(StatusCode::kBusy, "the turn was given up, or another reader has attached");
  }
  if (ready_.empty()) fill();  // the strand had no memory for it
  if (ready_.empty() && end_delivered_) return Status(StatusCode::kNotFound, "the turn has ended");
  if (ready_.empty()) {
    return Status(StatusCode::kOutOfMemory, "the turn stopped for want of memory",
                  "free memory, then resume the turn");
  }
  Event event = std::move(ready_.front());
  ready_.pop_front();
  end_delivered_ = event.kind == EventKind::kTurnEnd;
  if (ready_.empty()) fill_if_possible();
  if (ready_.empty() && !failed_) quiet();
  return event;
} catch (const std::bad_alloc&) {
  return no_memory_for_events();
}

std::uint64_t TurnStream::attach(std::uint64_t after) {
  const std::lock_guard lock(mutex_);
  begin_reading(std::max(after, acknowledged_));
  n_replayed_ = tokens_.size();
  fill();
  changed_.notify_all();
  return reader_;
}

void TurnStream::begin_reading(std::uint64_t after) {
  cursor_.reset();
  ++reader_;
  is_read_ = true;
  after_ = after;
  ready_.clear();
  has_started_ = has_ended_ = end_delivered_ = is_behind_ = false;
  quiet();
}

bool TurnStream::detach(std::uint64_t reader) {
  const std::lock_guard lock(mutex_);
  if (reader != reader_) return false;
  ++reader_;
  is_read_ = false;
  ready_.clear();
  quiet();
  changed_.notify_all();
  return true;
}

void TurnStream::acknowledge(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  acknowledged_ = std::max(acknowledged_, sequence);
}

// --- Making events.

void TurnStream::fill() {
  if (!is_read_ || (!started_ && !end_)) return;  // it may end before it starts
  try {
    if (!cursor_) {
      cursor_.emplace(Cursor{engine::OutputParser(model_->tokenizer(), parser_options_)});
    }
    while (ready_.size() < kMaxReadyEvents && fill_step()) {
    }
  } catch (...) {  // in the middle of a token
    cursor_.reset();
    parsed_.clear();
    throw;
  }
  if (!ready_.empty()) wake();
}

// For who holds an event already, which must not be lost: the next reader tries again.
void TurnStream::fill_if_possible() noexcept {
  try {
    fill();
    is_behind_ = false;
  } catch (...) {
    is_behind_ = true;
    wake();
  }
}

bool TurnStream::fill_step() {
  Cursor& cursor = *cursor_;
  if (started_ && !has_started_) {
    ready_.push_back(*started_);
    has_started_ = true;
  } else if (!markers_.empty() && markers_.front().n_tokens <= cursor.n_tokens) {
    ready_.push_back(markers_.front().event);
    markers_.pop_front();
  } else if (cursor.n_tokens < tokens_.size()) {
    cursor.parser.push(tokens_[cursor.n_tokens++], parsed_);
    add_parsed(cursor.n_tokens, cursor.n_tokens <= n_replayed_);
  } else if (closed_ && !cursor.closed) {
    cursor.closed = true;
    cursor.parser.finish(complete_, parsed_);
    add_parsed(tokens_.size() + 1, false);
  } else if (end_ && !has_ended_) {
    ready_.insert(ready_.end(), {*usage_, *end_});  // both or none
    has_ended_ = true;
  } else {
    return false;
  }
  return true;
}

void TurnStream::add_parsed(std::size_t n_tokens, bool replayed) {
  std::uint64_t place = 0;
  for (engine::OutputEvent& parsed : parsed_) {
    const std::uint64_t sequence = EventNumber::of(turn_, n_tokens, place++);
    if (sequence <= after_) continue;
    ready_.push_back(public_event(parsed));
    ready_.back().replayed = replayed;
    ready_.back().sequence = after_ = sequence;
  }
  parsed_.clear();
}

void TurnStream::wake() noexcept {
  if (!std::exchange(is_awake_, true)) {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }
  changed_.notify_all();
}

void TurnStream::quiet() noexcept {
  if (!std::exchange(is_awake_, false)) return;
  std::uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof count);
}

}  // namespace cairn::session
