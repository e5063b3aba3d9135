// Which rows a pass runs through which part of which layer. One plan covers a full pass, the
// shrinking halo of the decoder half, and every replay of spec/architecture.md section 12: they
// differ only in where each layer starts.
#ifndef CAIRN_ENGINE_PASS_PLAN_H_
#define CAIRN_ENGINE_PASS_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/model_config.h"

namespace cairn::engine {

// Absolute positions. Rows from `output_from` on get the layer's output; window KV is computed from
// `window_from` on, global KV (KV source layers) from `global_from` on.
struct LayerRows {
  std::int64_t global_from = 0, window_from = 0, output_from = 0;
  bool reset_window = false;  // forget the layer's window before its first row
};

struct PassPlan {
  std::int64_t begin = 0, end = 0;  // positions run through the embedding
  std::vector<LayerRows> layers;
  std::int64_t logits_from = 0;  // first position whose logits are wanted
  bool exact = true;             // windows and logits at `end` equal a full pass from position 0
};

// How the decoder half is run over a prompt.
enum class DecoderPass {
  kHalo,  // exact: the last window + (layers above) * (window - 1) rows of each layer
  kFull,  // every row through every layer, as the reference
  // Bounded: the last window of rows, nothing before them visible. Where the rows before the new
  // ones are live in the windows they are kept, and the pass is exact.
  kReplay,
  kReplayFirstLayerFull,  // bounded, but the first decoder layer keeps its whole window
};

// What a sequence holds when a pass starts.
struct LiveState {
  std::int64_t global_end = 0;   // global KV exists below this position
  bool encoder_windows = false;  // windows of the encoder half are those at global_end
  bool decoder_windows = false;  // and of the decoder half
};

struct PlanRequest {
  LiveState live;
  std::int64_t end = 0;  // > live.global_end, or equal to recompute windows only
  DecoderPass decoder = DecoderPass::kHalo;
  bool bounded_restore = false;   // windows that are missing may come from a replay of one window
  std::int64_t logits_from = -1;  // first row whose logits are wanted; -1 = the last row only
};

PassPlan make_plan(const ModelConfig& config, const PlanRequest& request);
// The same into a plan that was used before: takes no memory.
void make_plan(const ModelConfig& config, const PlanRequest& request, PassPlan& plan);

// All its rows take part in everything, on windows that are live, and get logits.
bool is_plain_decode(const PassPlan& plan);

// Rows of layer `layer` (decoder half) that an exact pass needs: window + (layers
// above)*(window-1).
std::int64_t halo_rows(const ModelConfig& config, int layer);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_PASS_PLAN_H_
