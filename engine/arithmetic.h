// Where numbers are rounded and what is quantised: the three arithmetic modes as data, so that one
// code path serves them all (spec/architecture.md section 14).
#ifndef CAIRN_ENGINE_ARITHMETIC_H_
#define CAIRN_ENGINE_ARITHMETIC_H_

#include "cairn/engine.h"
#include "kernels/kv_row.h"

namespace cairn::engine {

struct Arithmetic {
  bool round_bf16 = true;           // round where the reference stores bf16, index scores included
  bool quantise_activations = true; // Q8 before FP8 and FP4 products
  kernels::RowFormat window_format = kernels::RowFormat::kQ8;
  kernels::RowFormat main_format = kernels::RowFormat::kQn4;
  kernels::RowFormat index_format = kernels::RowFormat::kQm4;
};

inline Arithmetic arithmetic_of(Numerics numerics) {
  switch (numerics) {
    case Numerics::kReference: return {};
    case Numerics::kF32Cache: return {.round_bf16 = false, .quantise_activations = false};
    case Numerics::kF32: break;
  }
  return {.round_bf16 = false,
          .quantise_activations = false,
          .window_format = kernels::RowFormat::kF32,
          .main_format = kernels::RowFormat::kF32,
          .index_format = kernels::RowFormat::kF32};
}

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ARITHMETIC_H_
