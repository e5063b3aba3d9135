// What the index's dot products are made of, in the scalar version and those for vectors.
#ifndef CAIRN_KERNELS_CPU_INDEX_DOT_H_
#define CAIRN_KERNELS_CPU_INDEX_DOT_H_

#include <cstdint>

namespace cairn::kernels {

// Twice the value of an E2M1 code.
inline constexpr std::int8_t kTwiceE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

// Twice the values of 32 channels in 16 bytes of pairs, even channels first and then the odd ones:
// a dot product does not care, and nibbles need not be put in order.
inline void twice_of_block(const std::uint8_t* pairs, std::int8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = kTwiceE2m1[pairs[i] & 15];
    out[16 + i] = kTwiceE2m1[pairs[i] >> 4];
  }
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_INDEX_DOT_H_
