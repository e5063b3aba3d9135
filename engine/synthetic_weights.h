// Weights of any shape without a checkpoint, for measuring: random numbers of the magnitude of
// trained ones, allocated once and shared by as many tensors as do not fit.
#ifndef CAIRN_ENGINE_SYNTHETIC_WEIGHTS_H_
#define CAIRN_ENGINE_SYNTHETIC_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "cairn/status.h"
#include "engine/engram_tables.h"
#include "engine/model_config.h"
#include "engine/weights.h"
#include "kernels/page_buffer.h"

namespace cairn::engine {

struct SyntheticOptions {
  std::uint64_t seed = 1;
  std::int64_t max_bytes = std::int64_t{6} << 30;  // of memory for weights
};

// Owns what its views point into; moving keeps it in place.
//
// Tensors of one kind (FP4 codes, FP8 codes, scales, ...) lie one behind the other in a pool of
// that kind, which starts again from its beginning when it is full. So two layers may read the same
// memory, but a pass comes back to a byte only after it has read the whole pool: if pools are
// larger than the caches, it reads from memory what a checkpoint's pass would.
class SyntheticWeights {
 public:
  // Blocks: writes all the memory. kInvalidArgument if `max_bytes` is too little for the largest
  // tensors, kOutOfMemory. Engram tables are cut to the size of their pool.
  static Result<SyntheticWeights> create(const ModelConfig& config,
                                         const SyntheticOptions& options);

  const Weights& weights() const { return weights_; }
  // That address rows of the tables as they are here; every token a class of its own.
  const EngramTables& engram_tables() const { return engram_tables_; }
  std::int64_t allocated_bytes() const { return allocated_bytes_; }
  std::int64_t expert_pool_bytes() const { return expert_pool_bytes_; }  // FP4 codes among them

 private:
  SyntheticWeights() = default;

  std::vector<kernels::PageBuffer> memory_;
  Weights weights_;
  EngramTables engram_tables_;
  std::int64_t allocated_bytes_ = 0, expert_pool_bytes_ = 0;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SYNTHETIC_WEIGHTS_H_
