// Attention of each query over a list of KV rows, with one sink per head; key = value = the row
// (spec/architecture.md section 7.5).
#ifndef CAIRN_KERNELS_SPARSE_ATTENTION_H_
#define CAIRN_KERNELS_SPARSE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/context.h"
#include "kernels/kv_row.h"

namespace cairn::kernels {

// A table of packed rows, in pages of as many rows each; or in one.
struct KvRows {
  const std::byte* const* pages = nullptr;  // the bytes of each page
  RowFormat format = RowFormat::kF32;
  std::int64_t rows_per_page = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;  // of the first row in every page, bytes

  // Row i, where a row has `bytes` = row_bytes(format, dim).
  const std::byte* row(std::int64_t i, std::int64_t bytes) const {
    return pages[i / rows_per_page] + offset + i % rows_per_page * bytes;
  }
};

// The list of query t is window_slots[t] followed by main_rows[t]; -1 is an empty place. Evaluated
// as an online softmax over blocks of 64 places of that list (empty ones included), running maximum
// from -1e30, f32 accumulation: logits are sums of 16 lanes (cpu/attention_order.h), values add in
// the order of the list. With round_bf16 probabilities are rounded to bf16 for the value sum only,
// and so is the output. Probabilities below 2^-64 of the running maximum count as 0. Products are
// rounded before they are added, which changes nothing where they are exact: bf16 queries with rows
// as the quantisers make them.
struct SparseAttentionArgs {
  const float* q = nullptr;  // [rows, n_heads, head_dim]
  std::int64_t rows = 0, n_heads = 0, head_dim = 0;
  KvRows window;
  const std::int32_t* window_slots = nullptr;  // [rows, n_window]
  std::int64_t n_window = 0;
  KvRows main;
  const std::int32_t* main_rows = nullptr;  // [rows, n_main]; may be null when n_main = 0
  std::int64_t n_main = 0;
  const float* sink = nullptr;  // [n_heads], not scaled
  float scale = 0;              // head_dim^-0.5
  float* out = nullptr;         // [rows, n_heads, head_dim], must not alias q
  bool round_bf16 = false;
};
using SparseAttentionFn = void(Context&, const SparseAttentionArgs&);
SparseAttentionFn sparse_attention_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_SPARSE_ATTENTION_H_
