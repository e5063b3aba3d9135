// One layer of the network; reads like spec/architecture.md section 5.1.
#ifndef CAIRN_ENGINE_LAYER_H_
#define CAIRN_ENGINE_LAYER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "engine/attention.h"
#include "engine/chunk.h"
#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

// Runs layer `index` over the chunk's rows that `rows` asks for: a.h and a.pre in and out.
void layer(const LayerContext& ctx, const LayerWeights& w, int index, const ActiveRows& rows,
           const Chunk& chunk, Activations& a);

// Of a layer's rows, the first that anything in the layer reads; what enters it is there from this
// one on.
std::int64_t first_read_row(const LayerPlan& plan, const ActiveRows& rows);

// Runs a draft stage over the rows of a block: a.h and a.pre in and out, from row 0
// (spec/dspark.md section 4).
void draft_layer(const LayerContext& ctx, const LayerWeights& w, const DraftBlock& block,
                 Activations& a);

// Coefficients of one sublayer for `n` rows: h [n, hc, dim] -> pre, post [n, hc], comb [n, hc, hc].
void mix(const LayerContext& ctx, const HyperConnectionWeights& w, const float* h, std::int64_t n,
         float* pre, float* post, float* comb);
// normed = rms_norm(sum of streams weighted by `pre`); `collapsed` keeps the sum. [n, dim] each.
void collapse_and_norm(const LayerContext& ctx, const float* h, const float* pre,
                       const Bf16View& norm, std::int64_t n, float* collapsed, float* normed);
// h <- post * y + comb^T h for `n` rows.
void expand(const LayerContext& ctx, const float* y, const float* post, const float* comb,
            std::int64_t n, float* h);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LAYER_H_
