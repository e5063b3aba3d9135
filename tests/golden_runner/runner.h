// The comparisons that cairn-golden makes. Each adds to `agreement` and fails only on what cannot
// be compared at all.
#ifndef CAIRN_TESTS_GOLDEN_RUNNER_RUNNER_H_
#define CAIRN_TESTS_GOLDEN_RUNNER_RUNNER_H_

#include <memory>

#include "cairn/engine.h"
#include "engine/loaded_model.h"
#include "tests/golden_runner/agreement.h"
#include "tests/golden_runner/case_file.h"

namespace cairn::golden {

using ModelPtr = std::shared_ptr<engine::LoadedModel>;

// A prompt and greedy decoding (short, long, mid): logits, selections, routing, Engram rows; and
// our own prefill against our own decode, bit for bit.
Status compare_end_to_end(const ModelPtr& model, const CaseFile& file, Agreement& agreement);
// Prompts of many lengths (edge).
Status compare_lengths(const ModelPtr& model, const CaseFile& file, Agreement& agreement);
// Bounded replay (replay).
Status compare_replay(const ModelPtr& model, const CaseFile& file, Agreement& agreement);
// Layer by layer: every term of every recorded layer from the golden inputs of that term.
Status compare_layers(const ModelPtr& model, const CaseFile& file, Agreement& agreement);

}  // namespace cairn::golden

#endif  // CAIRN_TESTS_GOLDEN_RUNNER_RUNNER_H_
