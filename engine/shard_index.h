// model.safetensors.index.json: which shard holds which tensor.
#ifndef CAIRN_ENGINE_SHARD_INDEX_H_
#define CAIRN_ENGINE_SHARD_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

inline constexpr char kShardIndexName[] = "model.safetensors.index.json";

struct ShardIndex {
  std::map<std::string, std::string> file_of;  // tensor name -> shard file name, no folder
  std::optional<std::int64_t> total_size;      // payload bytes of all tensors, where stated

  std::vector<std::string> files() const;  // distinct, ascending
};

// kNotFound if there is none, kCorrupt for malformed JSON or a shard name that is not a plain
// *.safetensors file name (a name cannot lead out of the folder).
Result<ShardIndex> read_shard_index(const std::string& path);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SHARD_INDEX_H_
