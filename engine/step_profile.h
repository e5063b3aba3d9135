// Where a step's time goes: a kernel table that counts every call's time, bytes and operations by
// the part of the model that it belongs to.
#ifndef CAIRN_ENGINE_STEP_PROFILE_H_
#define CAIRN_ENGINE_STEP_PROFILE_H_

#include <array>
#include <cstdint>

#include "engine/model_config.h"
#include "kernels/kernels.h"

namespace cairn::engine {

enum class StepPart {
  kExperts,    // routed
  kDense,      // projections of attention, shared expert
  kAttention,  // over window and selected entries, compression of new ones
  kIndexer,    // its projections, scores of all visible entries, selection
  kStreams,    // hyper-connections and norms
  kRouter,
  kEngram,
  kHead,
  kCount
};
const char* step_part_name(StepPart part);

struct PartCost {
  double seconds = 0;
  double bytes = 0;  // of weights, KV rows and streams that are read
  double multiply_adds = 0;
  std::int64_t n_calls = 0;
};

// One at a time in a process: kernels are plain functions. Not thread-safe; to be used by the
// thread that runs the passes.
class StepProfile {
 public:
  // `kernels`: what runs; `config`: which product belongs to which part follows from its shape.
  StepProfile(const kernels::KernelTable& kernels, const ModelConfig& config);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // The same kernels, counting. To be called while this lives only.
  const kernels::KernelTable& counting_kernels() const { return counting_; }
  void reset() { parts_ = {}; }
  const PartCost& part(StepPart part) const { return parts_[static_cast<std::size_t>(part)]; }
  PartCost total() const;

  // For the counting kernels.
  static StepProfile& active() { return *active_; }
  const kernels::KernelTable& inner() const { return inner_; }
  const ModelConfig& config() const { return config_; }
  void add(StepPart part, const PartCost& cost);

 private:
  static StepProfile* active_;
  kernels::KernelTable inner_, counting_;
  ModelConfig config_;
  std::array<PartCost, static_cast<std::size_t>(StepPart::kCount)> parts_ = {};
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_STEP_PROFILE_H_
