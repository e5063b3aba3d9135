// Counts are signed 64-bit where they are computed with; containers want std::size_t.
#ifndef CAIRN_KERNELS_SIZES_H_
#define CAIRN_KERNELS_SIZES_H_

#include <cstddef>
#include <cstdint>

namespace cairn::kernels {

inline std::size_t usize(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_SIZES_H_
