// Files -> mapped memory -> Weights. Validates every shard's header and every tensor's place, type
// and shape against what the configuration demands (spec/checkpoint.md section 4).
#ifndef CAIRN_ENGINE_WEIGHTS_LOADER_H_
#define CAIRN_ENGINE_WEIGHTS_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/status.h"
#include "engine/model_config.h"
#include "engine/safetensors.h"
#include "engine/weights.h"

namespace cairn::engine {

struct ExpectedTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  bool required_for_text = true;  // false: vision and draft stages, which text decoding can lack
};

// Every tensor of a checkpoint with this configuration, released naming.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

std::int64_t payload_bytes(const ExpectedTensor& tensor);
// Logical parameters: an FP4 byte holds two, a scale none.
std::int64_t parameter_count(const ExpectedTensor& tensor);

// A checkpoint folder's shards, mapped. Owns the memory that Weights point into; moving keeps it in
// place. Const methods are safe from any thread.
class Checkpoint {
 public:
  // Maps all shards (model.safetensors.index.json, or every *.safetensors without it) and checks
  // headers. kNotFound, kCorrupt, kIoError; the message names file and tensor.
  static Result<Checkpoint> open(const std::string& folder);
  // For reports: a shard that cannot be opened becomes a line in problems() instead of an error.
  static Result<Checkpoint> open_readable_part(const std::string& folder);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  // nullptr if absent. An optional leading "model." in file names is stripped.
  const TensorEntry* find(const std::string& name) const;
  std::int64_t total_bytes() const;  // payload of all tensors
  std::int64_t n_tensors() const;
  // All tensors by stripped name, ascending by name. The views end with the checkpoint.
  std::vector<std::pair<std::string_view, const TensorEntry*>> sorted_tensors() const;
  // Where the index file and the shards disagree, and shards that were not opened.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  static Result<Checkpoint> open_shards(const std::string& folder, bool skip_broken);
  Status add_file(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::vector<std::string> problems_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;  // stripped; into files_
};

// Differences between what is there and what is expected, one line each, tensor, expected and
// found named. Unexpected tensors are reported too.
std::vector<std::string> check_tensors(const ModelConfig& config, const Checkpoint& checkpoint);

// Binds the text backbone, and the draft stages if all of their tensors are there. Fails on the
// first wrong tensor (kCorrupt, all of them counted in the message) and on one that is not aligned
// for its type (kUnsupported). Missing vision or draft tensors are no error. The views end with the
// checkpoint.
Result<Weights> bind_weights(const ModelConfig& config, const Checkpoint& checkpoint);

// The same from any place, with the draft stages or without: `find` gives the tensor of a name,
// which is there and as expected_tensors() says.
using TensorLookup = std::function<const TensorEntry&(const std::string& name)>;
Weights bind_tensors(const ModelConfig& config, bool with_drafts, const TensorLookup& find);

// SHA-256 (hex) over what decides a KV cache's content: the configuration's values, the tensor
// directory and sampled payload bytes, tokenizer.json, engram_tables.json where there is one, and
// `extra` (numeric class, KV format). Reads config.json and tokenizer.json of `folder`. Never
// names of files or folders.
Result<std::string> model_fingerprint(const std::string& folder, const Checkpoint& checkpoint,
                                      const std::string& extra);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_WEIGHTS_LOADER_H_
