// RawSequence: tokens in, logits out, for tests, benchmarks and research. Nothing is stored and no
// prompt format is applied. Unstable: may change in any version; products use cairn/session.h.
#ifndef CAIRN_RAW_H_
#define CAIRN_RAW_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/engine.h"
#include "cairn/status.h"

namespace cairn {

namespace engine {
class RawSequenceState;
}  // namespace engine

// A live timeline of one model: a cheap handle on shared state, which keeps its model alive.
// Threads: any; calls wait for each other. Its steps share the runtime with the turns of sessions.
class RawSequence {
 public:
  static Result<RawSequence> create(const Model& model);

  // Computes `tokens` after those there are. Blocks until it is done. kInvalidArgument (an id out of
  // range), kContextFull; then nothing has changed. kCancelled: by cancel(); finished chunks of
  // `prefill_chunk` tokens stay, see position().
  Status append(const std::vector<TokenId>& tokens);
  // Ends an append() that runs in another thread, within one layer.
  void cancel();

  // Tokens computed so far.
  std::int64_t position() const;
  // [vocab_size] f32 of the next token, before any sampling. kNotFound: nothing was computed, or the
  // last append was cancelled.
  Result<std::vector<float>> logits() const;

 private:
  explicit RawSequence(std::shared_ptr<engine::RawSequenceState> state) : state_(std::move(state)) {}
  std::shared_ptr<engine::RawSequenceState> state_;
};

}  // namespace cairn

#endif  // CAIRN_RAW_H_
