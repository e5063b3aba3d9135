// The part of NumPy's random generator from which the Engram multipliers come (spec/engram.md
// section 5): numpy.random.default_rng(seed).integers(0, bound), bit for bit.
#ifndef CAIRN_ENGINE_NUMPY_RANDOM_H_
#define CAIRN_ENGINE_NUMPY_RANDOM_H_

#include <cstdint>

namespace cairn::engine {

__extension__ typedef unsigned __int128 Uint128;

// PCG64 (128-bit state, XSL-RR output) seeded by SeedSequence.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint64_t seed);

  std::uint64_t next();
  // Uniform in [0, bound) by Lemire's method. `bound` must exceed 2^32: below, NumPy draws 32 bits
  // at a time, which nothing here needs.
  std::uint64_t below(std::uint64_t bound);

 private:
  void step();

  Uint128 state_ = 0;
  Uint128 increment_ = 0;  // odd
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_NUMPY_RANDOM_H_
