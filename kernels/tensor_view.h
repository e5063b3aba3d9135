// Typed views of weights as they lie in a checkpoint: pointer, shape, format. Views never own.
#ifndef CAIRN_KERNELS_TENSOR_VIEW_H_
#define CAIRN_KERNELS_TENSOR_VIEW_H_

#include <cstdint>

namespace cairn::kernels {

// bf16 bit patterns; conversions in number_formats.h. Not an arithmetic type on purpose.
struct Bf16 {
  std::uint16_t bits;
};

// A vector or matrix of unquantised numbers, row-major. data may be null (absent).
struct Bf16View {
  const Bf16* data = nullptr;  // [rows, cols]
  std::int64_t rows = 0, cols = 0;
};
struct F32View {
  const float* data = nullptr;  // [rows, cols]
  std::int64_t rows = 0, cols = 0;
};

// FP8 E4M3 matrix with one E8M0 scale per 32x32 tile (spec/architecture.md section 3.2).
struct Fp8View {
  const std::uint8_t* codes = nullptr;   // [rows, cols]
  const std::uint8_t* scales = nullptr;  // [ceil(rows/32), cols/32]
  std::int64_t rows = 0, cols = 0;       // cols is a multiple of 32
};

// FP4 E2M1 matrix, two codes a byte (low nibble = even column), one E8M0 scale per row and 32
// columns.
struct Fp4View {
  const std::uint8_t* codes = nullptr;   // [rows, cols/2]
  const std::uint8_t* scales = nullptr;  // [rows, cols/32]
  std::int64_t rows = 0, cols = 0;       // logical columns, a multiple of 32
};

// FP8 E4M3 table with one E8M0 scale per row and 32 columns (the Engram tables).
struct Fp8RowView {
  const std::uint8_t* codes = nullptr;   // [rows, cols]
  const std::uint8_t* scales = nullptr;  // [rows, cols/32]
  std::int64_t rows = 0, cols = 0;
};

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_TENSOR_VIEW_H_
