// One opened checkpoint: configuration, weights, tokenizer, tables. Immutable after load; const
// methods are safe from any thread. Shared by models, sessions and sequences.
#ifndef CAIRN_ENGINE_LOADED_MODEL_H_
#define CAIRN_ENGINE_LOADED_MODEL_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/engine.h"
#include "engine/activations.h"
#include "engine/arithmetic.h"
#include "engine/draft_schedule.h"
#include "engine/engram_tables.h"
#include "engine/layer_context.h"
#include "engine/model_config.h"
#include "engine/synthetic_weights.h"
#include "engine/tokenizer.h"
#include "engine/weights.h"
#include "engine/weights_loader.h"
#include "kernels/kernels.h"

namespace cairn::engine {

class RuntimeState;
struct ConstraintVocabulary;

class LoadedModel {
 public:
  static Result<std::shared_ptr<LoadedModel>> load(std::shared_ptr<RuntimeState> runtime,
                                                   const std::string& folder,
                                                   const ModelOptions& options);

  // A model of that shape with made-up weights, for measuring passes: without a tokenizer, a
  // vocabulary of its own or a fingerprint, so it is for sequences only. Same errors as
  // SyntheticWeights::create, and kInvalidArgument for options that load() refuses.
  static Result<std::shared_ptr<LoadedModel>> synthetic(std::shared_ptr<RuntimeState> runtime,
                                                        const ModelConfig& config,
                                                        const ModelOptions& options,
                                                        const SyntheticOptions& synthetic_options);
  // Instead of its own. Before its first pass.
  void use_kernels(const kernels::KernelTable& kernels) { kernels_ = kernels; }

  const std::shared_ptr<RuntimeState>& runtime() const { return runtime_; }
  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const SyntheticWeights* synthetic_weights() const { return synthetic_ ? &*synthetic_ : nullptr; }
  const EngramTables* engram() const { return engram_ ? &*engram_ : nullptr; }
  const ModelInfo& info() const { return info_; }
  const ModelOptions& options() const { return options_; }
  const Arithmetic& arithmetic() const { return arithmetic_; }
  const kernels::KernelTable& kernels() const { return kernels_; }

  // Scratch of passes. Strand only; one pass at a time uses it.
  Activations& activations() const { return *activations_; }

  // What the functions of layer `index` need. `run` is the calling thread's.
  LayerContext layer_context(int index, kernels::Context& run) const;
  // Of the draft stages: experts as they have them, a window with room for a block behind it.
  LayerContext draft_context(kernels::Context& run) const;
  bool has_drafts() const { return !weights_.draft.stages.empty(); }

  // What proposes drafts; empty: nothing does.
  const Propose& propose() const { return propose_; }
  // Instead of its own. Before its first pass.
  void use_drafts(Propose propose) { propose_ = std::move(propose); }
  // Drafts of one proposal, at most; 0 = nothing proposes, or none are wanted.
  std::int32_t max_drafts() const;
  // What passes took, and what became of drafts. Strand only.
  StepTimes& step_times() const { return step_times_; }
  DraftCalibration& draft_calibration() const { return draft_calibration_; }
  DraftGuard& draft_guard() const { return draft_guard_; }

  TokenId eos() const { return config_.eos_id; }
  TokenId think_end() const { return think_end_; }  // -1 if the tokenizer has none
  // What ends reasoning: that token, or the marker spelled out. Not empty.
  const std::vector<TokenId>& think_ending() const { return think_ending_; }
  // Ids that are never sampled: fillers, role markers, tool-era and image tokens, and ids the
  // tokenizer does not know (spec/prompt-format.md section 1.2).
  const std::vector<TokenId>& masked_ids() const { return masked_ids_; }

  // For constrained output; made when first asked for. Any thread; what it points to is used on the
  // strand, but for making constraints.
  Result<std::shared_ptr<ConstraintVocabulary>> constraint_vocabulary() const;

 private:
  LoadedModel() = default;
  static Result<std::shared_ptr<LoadedModel>> create(std::shared_ptr<RuntimeState> runtime,
                                                     const ModelOptions& options);
  // What follows from the configuration and the options alone.
  Status set_config(ModelConfig config);
  std::int64_t max_rows() const;  // of one pass
  void settle_drafts();           // once the weights are bound

  std::shared_ptr<RuntimeState> runtime_;
  ModelOptions options_;
  ModelConfig config_, draft_config_;
  LayerPlan draft_plan_;  // window only
  Arithmetic arithmetic_;
  std::optional<Checkpoint> checkpoint_;       // owns the memory weights_ points into
  std::optional<SyntheticWeights> synthetic_;  // or this
  Weights weights_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<EngramTables> engram_;
  kernels::KernelTable kernels_;
  std::vector<float> window_frequencies_, compressed_frequencies_;
  std::unique_ptr<Activations> activations_;
  Propose propose_;
  mutable StepTimes step_times_;
  mutable DraftCalibration draft_calibration_;
  mutable DraftGuard draft_guard_;
  ModelInfo info_;
  TokenId think_end_ = -1;
  std::vector<TokenId> think_ending_;
  std::vector<TokenId> masked_ids_;
  mutable std::mutex constraint_mutex_;  // guards what follows
  mutable std::shared_ptr<ConstraintVocabulary> constraint_vocabulary_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LOADED_MODEL_H_
