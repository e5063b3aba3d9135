// A chunk of known tokens through the layers (spec/architecture.md sections 5.1 and 11). Prefill
// and decode are the same pass with different row counts.
#ifndef CAIRN_ENGINE_FORWARD_H_
#define CAIRN_ENGINE_FORWARD_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "engine/kv_cache.h"
#include "engine/loaded_model.h"
#include "engine/pass_plan.h"

namespace cairn::engine {

struct ForwardInput {
  std::span<const TokenId> tokens;           // of the whole sequence, position 0 on
  const std::vector<std::int32_t>& classes;  // their Engram classes; empty without Engram
  std::int64_t first = 0, n = 0;             // the chunk: positions first .. first+n-1
};

// Every stream of a row starts as its token's embedding; the first collapse takes stream 0. Writes
// a.h and a.pre of the chunk's rows.
void embed(const LoadedModel& model, const ForwardInput& input, Activations& a);

// Whether to stop, asked before every layer of a chunk; empty = never.
using StopRequested = std::function<bool()>;

// Appends to `cache` what `plan` asks of these rows, and to `logits` one row of vocab_size f32 for
// every chunk position from plan.logits_from on. n <= a.max_rows. False: it was asked to stop, and
// the layers until then have changed `cache`.
bool forward(const LoadedModel& model, kernels::Context& run, const PassPlan& plan,
             const ForwardInput& input, Activations& a, KvCache& cache, std::vector<float>& logits,
             const StopRequested& stop_requested);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_FORWARD_H_
