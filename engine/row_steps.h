// The two steps on rows that most terms of a layer share: normalise and rotate.
#ifndef CAIRN_ENGINE_ROW_STEPS_H_
#define CAIRN_ENGINE_ROW_STEPS_H_

#include <cstdint>
#include <span>

#include "engine/layer_context.h"

namespace cairn::engine {

// RMSNorm of x [rows, weight.cols] in place.
void norm_rows(const LayerContext& ctx, const kernels::Bf16View& weight, std::span<float> x);

enum class Rotation { kForward, kInverse };

// Rotates the last channels of every vector of x [rows, n_vectors, dim] at its row's position, in
// place. rows = positions.size().
void rotate_rows(const LayerContext& ctx, std::span<float> x, std::int64_t n_vectors,
                 std::int64_t dim, std::span<const std::int64_t> positions,
                 Rotation rotation = Rotation::kForward);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ROW_STEPS_H_
