#include "kernels/kv_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

float absolute_max(const float* x, std::int64_t n, float floor) {
  float amax = floor;
  for (std::int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

void put_pair(std::uint8_t* pairs, std::int64_t i, std::uint8_t even, std::uint8_t odd) {
  pairs[i / 2] = static_cast<std::uint8_t>(even | (odd << 4));
}

// MXFP4: group of 32, E8M0 scale rounded up, so nothing clips.
void quantise_qm4(const float* x, std::int64_t n, std::uint8_t* pairs, std::uint8_t* scales) {
  constexpr float kFloor = 6.0f * 0x1p-126f;
  for (std::int64_t g = 0; g < n; g += 32) {
    const std::uint8_t scale = ceil_power_of_two_e8m0(absolute_max(x + g, 32, kFloor) * kInverse6);
    const float s = e8m0_to_f32(scale);
    scales[g / 32] = scale;
    for (std::int64_t i = g; i < g + 32; i += 2) {
      put_pair(pairs, i, to_e2m1(x[i] / s), to_e2m1(x[i + 1] / s));
    }
  }
}

// NVFP4 without a global scale: group of 16, E4M3 scale by true division, which may round down and
// clip slightly.
void quantise_qn4(const float* x, std::int64_t n, std::uint8_t* pairs, std::uint8_t* scales) {
  constexpr float kFloor = 6.0f * 0x1p-9f;
  for (std::int64_t g = 0; g < n; g += 16) {
    const std::uint8_t scale = to_e4m3(absolute_max(x + g, 16, kFloor) / 6.0f);
    const float s = e4m3_to_f32(scale);
    scales[g / 16] = scale;
    for (std::int64_t i = g; i < g + 16; i += 2) {
      put_pair(pairs, i, to_e2m1(x[i] / s), to_e2m1(x[i + 1] / s));
    }
  }
}

}  // namespace

void quantise_q8(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int64_t g = 0; g < n; g += 32) {
    const std::uint8_t scale = ceil_power_of_two_e8m0(absolute_max(x + g, 32, 1e-4f) * kInverse448);
    const float s = e8m0_to_f32(scale);
    scales[g / 32] = scale;
    for (std::int64_t i = g; i < g + 32; ++i) codes[i] = to_e4m3(x[i] / s);
  }
}

void quantise_q8_scalar(Context&, const QuantiseQ8Args& a) {
  quantise_q8(a.x, a.n, a.codes, a.scales);
}

void encode_row(RowFormat format, const float* x, std::int64_t dim, std::byte* row) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(row);
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(row, x, static_cast<std::size_t>(4 * dim));
      return;
    case RowFormat::kQ8:
      quantise_q8(x, dim, bytes, bytes + dim);
      return;
    case RowFormat::kQm4:
      quantise_qm4(x, dim, bytes, bytes + dim / 2);
      return;
    case RowFormat::kQn4:
      quantise_qn4(x, dim, bytes, bytes + dim / 2);
      return;
  }
}

void decode_row(RowFormat format, const std::byte* row, std::int64_t dim, float* x) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
  const std::uint8_t* half = bytes + dim / 2;
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(x, row, static_cast<std::size_t>(4 * dim));
      return;
    case RowFormat::kQ8:
      for (std::int64_t i = 0; i < dim; ++i) {
        x[i] = e4m3_to_f32(bytes[i]) * e8m0_to_f32(bytes[dim + i / 32]);
      }
      return;
    case RowFormat::kQm4:
      for (std::int64_t i = 0; i < dim; ++i) {
        x[i] = e2m1_to_f32(static_cast<std::uint8_t>(bytes[i / 2] >> (4 * (i & 1)))) *
               e8m0_to_f32(half[i / 32]);
      }
      return;
    case RowFormat::kQn4:
      for (std::int64_t i = 0; i < dim; ++i) {
        x[i] = e2m1_to_f32(static_cast<std::uint8_t>(bytes[i / 2] >> (4 * (i & 1)))) *
               e4m3_to_f32(half[i / 16]);
      }
      return;
  }
}

}  // namespace cairn::kernels
