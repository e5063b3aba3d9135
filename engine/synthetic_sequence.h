// Sequences of any length without computing them, for measuring: random KV in valid packed rows.
#ifndef CAIRN_ENGINE_SYNTHETIC_SEQUENCE_H_
#define CAIRN_ENGINE_SYNTHETIC_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/status.h"
#include "engine/kv_page.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace cairn::engine {

// Global KV of `n_blocks` blocks, to be shared by sequences of any length up to that. Scores of
// random keys are spread like those of a trained model's: no two rows are equal.
std::vector<KvPagePtr> synthetic_pages(const LoadedModel& model, std::int64_t n_blocks,
                                       std::uint64_t seed);

// A sequence that is ready at the end of those blocks: random tokens, windows and logits.
Result<std::unique_ptr<Sequence>> synthetic_sequence(std::shared_ptr<const LoadedModel> model,
                                                     std::span<const KvPagePtr> pages,
                                                     std::uint64_t seed);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SYNTHETIC_SEQUENCE_H_
