// Checkpoints of any shape with random weights, in the released layout: what the golden checkpoints
// cannot vary.
#ifndef CAIRN_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_
#define CAIRN_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "cairn/status.h"

namespace cairn::test {

// Writes config.json (the text), one shard with every tensor it demands for text, and a copy of
// `tokenizer_json` into `folder`. The same seed gives the same bytes.
Status write_random_checkpoint(const std::string& folder, const std::string& config_json,
                               const std::string& tokenizer_json, std::uint64_t seed);

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_
