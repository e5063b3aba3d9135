// The events of one turn between the strand, which says tokens, and a reader, who may be slow, go
// away, and come back.
#ifndef CAIRN_SESSION_TURN_STREAM_H_
#define CAIRN_SESSION_TURN_STREAM_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cairn/session.h"
#include "engine/loaded_model.h"
#include "engine/output_parser.h"
#include "session/file_descriptor.h"

namespace cairn::session {

// A number is the turn's (the log sequence of its start), then how many tokens were said, then the
// place among the events there: those of the blocks follow from the tokens, kRun and above are of
// one run of the turn.
struct EventNumber {
  static constexpr std::uint64_t kTokenBits = 22, kPlaceBits = 10;
  static constexpr std::uint64_t kRun = 512, kUsage = 1022, kEnd = 1023;
  static std::uint64_t of(std::uint64_t turn, std::size_t n_tokens, std::uint64_t place) {
    return (((turn << kTokenBits) + n_tokens) << kPlaceBits) + place;
  }
};

// Events that are ready for a reader, at most; what follows is kept as tokens.
inline constexpr std::size_t kMaxReadyEvents = 64;

// Keeps tokens, not events: a reader's events are made from them by a parser of its own as it
// reads. So memory is bounded, and whoever attaches gets the same events. Safe from any thread.
class TurnStream {
 public:
  // `turn`: the log sequence of its start. kIoError: no descriptor for wake_fd().
  static Result<std::unique_ptr<TurnStream>> create(
      std::shared_ptr<const engine::LoadedModel> model, engine::OutputParserOptions parser,
      std::uint64_t turn);

  // --- By the turn.

  // The first event.
  void start(Event started);
  // `replayed`: an earlier run of the turn has said them.
  void say(std::span<const TokenId> tokens, bool replayed);
  // Progress or a durable mark. It replaces an older one of its kind that nobody has read.
  void add(Event event);
  // Closes the blocks: the turn is not going to say more, in no run. `complete`: the model said so.
  void close(bool complete);
  // The last two events.
  void end(Event usage, Event end);
  // There is no memory for an end. Throws nothing.
  void fail() noexcept;

  // --- By its readers. One reads at a time; the first is number 1.

  std::uint64_t reader() const;
  // kOutOfMemory loses nothing: it can be called again.
  Result<Event> next(std::uint64_t reader, std::chrono::milliseconds timeout);
  // A new reader, who is to have blocks' events above `after` that were not acknowledged.
  std::uint64_t attach(std::uint64_t after);
  // False: another reader has attached. Otherwise nobody reads from here on.
  bool detach(std::uint64_t reader);
  void acknowledge(std::uint64_t sequence);
  int wake_fd() const { return wake_.get(); }

 private:
  // What waits between tokens.
  struct Marker {
    std::size_t n_tokens = 0;  // said before it
    Event event;
  };
  // How far the blocks' events of the reader are made.
  struct Cursor {
    engine::OutputParser parser;
    std::size_t n_tokens = 0;
    bool closed = false;
  };

  TurnStream(std::shared_ptr<const engine::LoadedModel> model, engine::OutputParserOptions parser,
             std::uint64_t turn, FileDescriptor wake);

  // All that follow need mutex_.
  void begin_reading(std::uint64_t after);
  // Makes events ready until there are enough or no more, and wakes who waits for them.
  void fill();
  void fill_if_possible() noexcept;
  bool fill_step();
  void add_parsed(std::size_t n_tokens, bool replayed);
  void wake() noexcept;
  void quiet() noexcept;  // wake_ is not readable

  const std::shared_ptr<const engine::LoadedModel> model_;
  const engine::OutputParserOptions parser_options_;
  const std::uint64_t turn_;
  const FileDescriptor wake_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;

  std::optional<Event> started_;
  std::vector<TokenId> tokens_;
  std::size_t n_replayed_ = 0;  // of tokens_: said before this run, or before the reader came
  std::deque<Marker> markers_;
  std::uint64_t next_place_ = EventNumber::kRun;  // of a marker at place_tokens_
  std::size_t place_tokens_ = 0;
  bool closed_ = false, complete_ = false, failed_ = false;
  std::optional<Event> usage_, end_;

  std::uint64_t reader_ = 0;
  bool is_read_ = true;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t after_ = 0;       // of the blocks' events made ready the last
  std::optional<Cursor> cursor_;  // empty: to be made anew, skipping what is not above after_
  bool has_started_ = false, has_ended_ = false;  // for this reader
  std::vector<engine::OutputEvent> parsed_;
  std::deque<Event> ready_;
  bool is_behind_ = false;      // there was no memory to make the next events ready
  bool is_awake_ = false;       // wake_ is readable
  bool end_delivered_ = false;  // to this reader
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TURN_STREAM_H_
