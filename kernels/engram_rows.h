// Engram: row addresses from token classes, gathering of rows, gated update of the streams
// (spec/architecture.md section 6, spec/engram.md sections 6 and 8).
#ifndef CAIRN_KERNELS_ENGRAM_ROWS_H_
#define CAIRN_KERNELS_ENGRAM_ROWS_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor_view.h"

namespace cairn::kernels {

inline constexpr std::int32_t kDeadClass = -1;  // a position inside an image span

// Row ids of positions `first .. first+rows-1`. Positions before `classes` do not exist: the
// sequence starts there.
struct EngramHashArgs {
  const std::int32_t* classes = nullptr;  // [first+rows], class per position or kDeadClass
  std::int64_t first = 0, rows = 0;
  std::int32_t pad_class = 0;
  int max_ngram = 0, n_heads = 0;
  const std::uint64_t* multipliers = nullptr;  // [max_ngram]
  const std::uint64_t* primes = nullptr;       // [(max_ngram-1)*n_heads], order-major
  const std::uint64_t* offsets = nullptr;      // same
  std::int64_t* ids = nullptr;                 // [rows, (max_ngram-1)*n_heads]
};
using EngramHashFn = void(Context&, const EngramHashArgs&);

struct EngramGatherArgs {
  Fp8RowView table;
  const std::int64_t* ids = nullptr;  // [rows, n_columns]
  std::int64_t rows = 0, n_columns = 0;
  float* out = nullptr;  // [rows, n_columns * table.cols]
  bool round_bf16 = false;
};
using EngramGatherFn = void(Context&, const EngramGatherArgs&);

// h[s] += gate[s] * value, gate from the normalised product of stream and key.
struct EngramUpdateArgs {
  const float* kv = nullptr;  // [rows, n_streams+1, dim]: one key per stream, then the value
  std::int64_t rows = 0, n_streams = 0, dim = 0;
  const Bf16* q_weight = nullptr;  // [n_streams, dim]
  const Bf16* k_weight = nullptr;  // [n_streams, dim]
  float eps = 0;
  float* h = nullptr;     // [rows, n_streams, dim], updated in place
  float* gate = nullptr;  // [rows, n_streams]; written
  bool round_bf16 = false;
};
using EngramUpdateFn = void(Context&, const EngramUpdateArgs&);

EngramHashFn engram_hash_scalar;
EngramGatherFn engram_gather_scalar;
EngramUpdateFn engram_update_scalar;

// sigmoid(sign(s) * sqrt(max(|s|, 1e-6)))
float engram_gate(float s);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_ENGRAM_ROWS_H_
