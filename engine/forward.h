// Known tokens through the layers (spec/architecture.md sections 5.1 and 11): a chunk of one
// sequence, or a few tokens each of several. Prefill and decode are the same pass with different
// rows.
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

// Rows of one sequence: positions first .. first+n-1.
struct ForwardInput {
  std::span<const TokenId> tokens;           // of the whole sequence, position 0 on
  const std::vector<std::int32_t>& classes;  // their Engram classes; empty without Engram
  std::int64_t first = 0, n = 0;
  const PassPlan& plan;
  KvCache& cache;              // appended to as `plan` asks
  std::vector<float>& logits;  // one row of vocab_size f32 is appended for every position of these
                               // from plan.logits_from on
};

// Every stream of a row starts as its token's embedding; the first collapse takes stream 0. Writes
// a.h and a.pre from row `row` on.
void embed(const LoadedModel& model, std::span<const TokenId> tokens, std::int64_t row,
           Activations& a);

// Whether to stop, asked before every layer of a pass; empty = never.
using StopRequested = std::function<bool()>;

// One input, or several of which each is a plain decode (is_plain_decode). At most a.max_rows rows.
// False: it was asked to stop, and the layers until then have changed the caches.
bool forward(const LoadedModel& model, kernels::Context& run, std::span<const ForwardInput> inputs,
             Activations& a, const StopRequested& stop_requested);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_FORWARD_H_
