// Rows of the KV cache and quantised activations: the three quantisers of spec/architecture.md
// section 3.4 and their packed layouts (section 10.1). A packed row is its payload followed by its
// scales:
//
//   kF32  dim x f32                                             4*dim bytes
//   kQ8   dim E4M3 codes, then dim/32 E8M0 scales               dim + dim/32         (window KV)
//   kQm4  dim/2 bytes of E2M1 pairs, then dim/32 E8M0 scales    dim/2 + dim/32       (index keys)
//   kQn4  dim/2 bytes of E2M1 pairs, then dim/16 E4M3 scales    dim/2 + dim/16       (main KV)
//
// Pairs: the low nibble is the even element. Decoding gives exactly the reference's
// quantise-dequantise value, so packed storage loses nothing.
#ifndef CAIRN_KERNELS_KV_ROW_H_
#define CAIRN_KERNELS_KV_ROW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"

namespace cairn::kernels {

enum class RowFormat : std::uint8_t { kF32 = 0, kQ8 = 1, kQm4 = 2, kQn4 = 3 };

// dim is a multiple of 32.
constexpr std::int64_t row_bytes(RowFormat format, std::int64_t dim) {
  switch (format) {
    case RowFormat::kF32:
      return 4 * dim;
    case RowFormat::kQ8:
      return dim + dim / 32;
    case RowFormat::kQm4:
      return dim / 2 + dim / 32;
    case RowFormat::kQn4:
      return dim / 2 + dim / 16;
  }
  return 0;
}

// x: [dim] f32 -> row: row_bytes(format, dim).
void encode_row(RowFormat format, const float* x, std::int64_t dim, std::byte* row);
// row -> x: [dim] f32, the dequantised values.
void decode_row(RowFormat format, const std::byte* row, std::int64_t dim, float* x);

using EncodeRowFn = void(RowFormat format, const float* x, std::int64_t dim, std::byte* row);

// Q8 with codes and scales apart, for matrix products.
struct QuantiseQ8Args {
  const float* x = nullptr;        // [n]
  std::int64_t n = 0;              // a multiple of 32
  std::uint8_t* codes = nullptr;   // [n]
  std::uint8_t* scales = nullptr;  // [n/32]
};
using QuantiseQ8Fn = void(Context&, const QuantiseQ8Args&);
QuantiseQ8Fn quantise_q8_scalar;

// The same on the caller's thread.
void quantise_q8(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_KV_ROW_H_
