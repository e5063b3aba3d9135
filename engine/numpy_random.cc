// SeedSequence mixes the seed into a pool of four words with O'Neill's seed_seq_fe hash and draws
// the generator's 256 bits from it; PCG64 is her 128-bit generator with the XSL-RR output function.
// Constants are NumPy's (numpy/random/bit_generator.pyx, src/pcg64).
#include "engine/numpy_random.h"

#include <array>
#include <bit>
#include <cstddef>

namespace cairn::engine {
namespace {

constexpr std::size_t kPoolWords = 4;
constexpr Uint128 kPcgMultiplier =
    (Uint128{2549297995355413924u} << 64) | Uint128{4865540595714422341u};

// A hash whose multiplier changes at each use.
class RollingHash {
 public:
  RollingHash(std::uint32_t start, std::uint32_t factor) : constant_(start), factor_(factor) {}
  std::uint32_t operator()(std::uint32_t word) {
    word ^= constant_;
    constant_ *= factor_;
    word *= constant_;
    return word ^ (word >> 16);
  }

 private:
  std::uint32_t constant_;
  std::uint32_t factor_;
};

std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t word = 0xCA01F9DDu * x - 0x4973F715u * y;
  return word ^ (word >> 16);
}

using Pool = std::array<std::uint32_t, kPoolWords>;

// The seed's 32-bit words, low first, fill the pool; a seed below 2^128 leaves none over.
Pool seed_pool(std::uint64_t seed) {
  RollingHash hash(0x43B0D7E5u, 0x931E8875u);
  const Pool words = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0,
                      0};
  Pool pool;
  for (std::size_t i = 0; i < kPoolWords; ++i) pool[i] = hash(words[i]);
  for (std::size_t from = 0; from < kPoolWords; ++from) {
    for (std::size_t to = 0; to < kPoolWords; ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  return pool;
}

std::array<std::uint64_t, 4> generator_words(const Pool& pool) {
  RollingHash hash(0x8B51F9DDu, 0x58F38DEDu);
  std::array<std::uint64_t, 4> out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t low = hash(pool[(2 * i) % kPoolWords]);
    const std::uint64_t high = hash(pool[(2 * i + 1) % kPoolWords]);
    out[i] = low | (high << 32);
  }
  return out;
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint64_t seed) {
  const auto words = generator_words(seed_pool(seed));
  const Uint128 start = (Uint128{words[0]} << 64) | words[1];
  const Uint128 stream = (Uint128{words[2]} << 64) | words[3];
  increment_ = (stream << 1) | 1;
  step();
  state_ += start;
  step();
}

void NumpyRandom::step() { state_ = state_ * kPcgMultiplier + increment_; }

std::uint64_t NumpyRandom::next() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  const auto low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint64_t NumpyRandom::below(std::uint64_t bound) {
  Uint128 product = Uint128{next()} * bound;
  // Low halves under 2^64 mod bound belong to values that would come up once too often.
  const std::uint64_t threshold = (0 - bound) % bound;
  while (static_cast<std::uint64_t>(product) < threshold) product = Uint128{next()} * bound;
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace cairn::engine
