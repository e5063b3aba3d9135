// What the functions of one layer need besides their operands.
#ifndef CAIRN_ENGINE_LAYER_CONTEXT_H_
#define CAIRN_ENGINE_LAYER_CONTEXT_H_

#include <cstdint>

#include "engine/arithmetic.h"
#include "engine/model_config.h"
#include "engine/step_memory.h"
#include "kernels/kernels.h"

namespace cairn::engine {

struct LayerContext {
  const ModelConfig& config;
  const LayerPlan& plan;
  const kernels::KernelTable& k;
  kernels::Context& run;
  Arithmetic arithmetic;
  const float* frequencies;  // [rope_dim/2] of this layer
  StepMemory& memory;        // of what its functions return

  // Zeros.
  template <class T>
  StepVector<T> scratch(std::int64_t n) const {
    return StepVector<T>(static_cast<std::size_t>(n), &memory);
  }
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LAYER_CONTEXT_H_
