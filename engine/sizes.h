// Counts are signed 64-bit where they are computed with; containers want std::size_t.
#ifndef CAIRN_ENGINE_SIZES_H_
#define CAIRN_ENGINE_SIZES_H_

#include <cstddef>
#include <cstdint>

namespace cairn::engine {

inline std::size_t usize(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SIZES_H_
