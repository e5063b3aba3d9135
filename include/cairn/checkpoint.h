// Looks at a checkpoint without loading it: what `cairn info` prints.
#ifndef CAIRN_CHECKPOINT_H_
#define CAIRN_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "cairn/status.h"

namespace cairn {

struct LayerSummary {
  std::int32_t layer = 0;
  std::string half;  // "encoder" or "decoder"
  std::int32_t ratio = 0;
  std::string mode;  // "window", "full", "reindex" or "reuse"
  std::int32_t kv_source = -1, index_source = -1;  // -1 = none
  bool engram = false, writes_candidates = false, uses_candidates = false;
};

struct CheckpointReport {
  ModelInfo model;  // fingerprint is empty
  std::vector<LayerSummary> layers;
  std::int32_t n_draft_stages = 0;
  bool has_vision = false;
  std::int64_t parameters = 0;  // logical, from the expected tensors; FP4 counts two a byte, scales none
  std::int64_t tensors_expected = 0, bytes_expected = 0;
  bool weights_checked = false;  // false for a lone config.json
  std::int64_t tensors_found = 0, bytes_found = 0;
  // One line each, naming tensor, expected and found. Empty = nothing wrong.
  std::vector<std::string> problems;
};

// `path`: a checkpoint folder or a config.json. Fails only if the configuration itself cannot be
// read or is not of this family; what is wrong with the weights is in `problems`.
Result<CheckpointReport> inspect_checkpoint(const std::string& path);

}  // namespace cairn

#endif  // CAIRN_CHECKPOINT_H_
