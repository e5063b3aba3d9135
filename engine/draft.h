// Draft stages: from what the last layers saw to a guess at the next tokens (spec/dspark.md
// sections 2 to 4).
#ifndef CAIRN_ENGINE_DRAFT_H_
#define CAIRN_ENGINE_DRAFT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "engine/chunk.h"
#include "engine/loaded_model.h"

namespace cairn::engine {

// What the stages say about the tokens after an anchor, which is itself not among them.
struct DraftProposal {
  std::vector<TokenId> tokens;    // [block] the most likely one, given those before
  std::vector<float> confidence;  // [block] whether it is accepted if those before are; a logit
  std::vector<float> logits;      // [block, vocab]
};

// The place of layer `layer` among those that the stages look at, -1 if they do not.
int draft_target(const ModelConfig& config, int layer);

// Keeps what enters target layer `target` in rows from `from` on: the mean of their streams.
void keep_tap(const LayerContext& ctx, int target, std::int64_t from, const Chunk& chunk,
              Activations& a);

// Appends the stages' keys of the chunk's rows from `from` on, whose taps are there, to the rings
// of their caches: as many as a ring holds.
void append_draft_keys(const LoadedModel& model, kernels::Context& run, std::int64_t from,
                       const Chunk& chunk, Activations& a);

// Guesses the tokens after `anchor`, the token chosen for position `position`, which is the end of
// `cache`. The model has drafts. Changes the activations alone.
void propose_drafts(const LoadedModel& model, kernels::Context& run, const KvCache& cache,
                    std::int64_t position, TokenId anchor, Activations& a, DraftProposal& out);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_DRAFT_H_
