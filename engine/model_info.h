// What the outside may know about a model's shape and sizes.
#ifndef CAIRN_ENGINE_MODEL_INFO_H_
#define CAIRN_ENGINE_MODEL_INFO_H_

#include "cairn/engine.h"
#include "engine/model_config.h"

namespace cairn::engine {

// Everything that follows from a validated configuration. KV sizes are those of
// spec/architecture.md section 10; weight_bytes is the payload of all expected tensors; fingerprint
// stays empty.
ModelInfo describe_model(const ModelConfig& config);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_MODEL_INFO_H_
