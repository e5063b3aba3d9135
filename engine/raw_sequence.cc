// A sequence for callers on any thread: each chunk is one task on the runtime's strand, where the
// caller waits for it, so turns of sessions run in between.
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <utility>

#include "cairn/raw.h"
#include "engine/loaded_model.h"
#include "engine/runtime.h"
#include "engine/sequence.h"

namespace cairn {
namespace engine {

class RawSequenceState {
 public:
  explicit RawSequenceState(std::shared_ptr<const LoadedModel> model)
      : model_(model), sequence_(std::move(model)) {}

  Status append(const std::vector<TokenId>& tokens) {
    std::lock_guard lock(mutex_);
    cancelled_ = false;
    if (tokens.empty()) return {};
    const std::int64_t n_after = sequence_.position() + static_cast<std::int64_t>(tokens.size());
    if (n_after > model_->info().max_context) {
      return {StatusCode::kContextFull,
              std::to_string(n_after) + " tokens do not fit the context of " +
                  std::to_string(model_->info().max_context),
              "append fewer tokens"};
    }
    Status status = on_strand([&] { return sequence_.start_prefill(tokens); });
    while (status.ok() && sequence_.prefilling()) status = on_strand([&] { return step(); });
    return status;
  }

  void cancel() noexcept { cancelled_ = true; }

  std::int64_t position() const {
    std::lock_guard lock(mutex_);
    return sequence_.position();
  }

  Result<std::vector<float>> logits() const {
    std::lock_guard lock(mutex_);
    if (!sequence_.ready() || sequence_.logits().empty()) {
      return Status(StatusCode::kNotFound, "there are no logits: the last tokens were not computed",
                    "append tokens");
    }
    return std::vector<float>(sequence_.logits().begin(), sequence_.logits().end());
  }

 private:
  Status step() {
    if (!cancelled_ && sequence_.prefill_step([this] { return cancelled_.load(); })) return {};
    sequence_.abandon_prefill();
    return {StatusCode::kCancelled, "the append was cancelled"};
  }

  // Runs `work` on the strand and waits for it. What it throws is the caller's.
  template <class Work>
  Status on_strand(Work work) {
    std::promise<Status> done;
    model_->runtime()->post([&] {
      try {
        done.set_value(work());
      } catch (...) {
        sequence_.abandon_prefill();
        done.set_exception(std::current_exception());
      }
    });
    return done.get_future().get();
  }

  const std::shared_ptr<const LoadedModel> model_;
  mutable std::mutex mutex_;  // guards the sequence; it is used by its holder and the strand's task
  Sequence sequence_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace engine

Result<RawSequence> RawSequence::create(const Model& model) {
  return RawSequence(std::make_shared<engine::RawSequenceState>(model.state()));
}

Status RawSequence::append(const std::vector<TokenId>& tokens) { return state_->append(tokens); }
void RawSequence::cancel() { state_->cancel(); }
std::int64_t RawSequence::position() const { return state_->position(); }
Result<std::vector<float>> RawSequence::logits() const { return state_->logits(); }

}  // namespace cairn
