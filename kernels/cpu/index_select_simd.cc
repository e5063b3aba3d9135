// The best k of many scores and the best blocks, in vectors.
//
// A threshold that some more than k scores should reach is guessed from a sample. One pass compares
// every score with it and keeps the positions of those that reach it; only among them is the k-th
// best value looked for. If they are too few, the guess was wrong and the next one is lower, down
// to all scores. So the result is exact whatever the sample, and costs about one reading.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/index_select.h"
#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_select_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));
constexpr std::int64_t kChunk = 16384;  // scores that one piece of a parallel pass looks at
constexpr std::int64_t kSample = 4096;
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Positions of scores >= threshold among [begin, end), ascending; returns how many. `out` has room
// for end - begin + kN.
std::int64_t positions_from(const float* scores, std::int64_t begin, std::int64_t end,
                            float threshold, std::int32_t* out) {
  const DF d;
  const DI di;
  const VF least = hn::Set(d, threshold);
  const std::int32_t* const start = out;
  std::int64_t i = begin;
  const auto keep = [&](std::int64_t at, hn::Mask<DF> reached) HWY_ATTR {
    const auto positions = hn::Iota(di, static_cast<std::int32_t>(at));
    out += hn::CompressStore(positions, hn::RebindMask(di, reached), di, out);
  };
  for (; i + 4 * kN <= end; i += 4 * kN) {
    const auto a = hn::Ge(hn::LoadU(d, scores + i), least);
    const auto b = hn::Ge(hn::LoadU(d, scores + i + kN), least);
    const auto c = hn::Ge(hn::LoadU(d, scores + i + 2 * kN), least);
    const auto e = hn::Ge(hn::LoadU(d, scores + i + 3 * kN), least);
    if (hn::AllFalse(d, hn::Or(hn::Or(a, b), hn::Or(c, e)))) continue;
    keep(i, a);
    keep(i + kN, b);
    keep(i + 2 * kN, c);
    keep(i + 3 * kN, e);
  }
  for (; i < end; ++i) {
    if (scores[i] >= threshold) *out++ = static_cast<std::int32_t>(i);
  }
  return out - start;
}

// Thresholds to try, from the most promising down to the lowest number.
class Thresholds {
 public:
  Thresholds(const float* scores, std::int64_t n, std::int64_t k) {
    if (n <= 2 * kSample) return;
    for (std::int64_t i = 0; i < kSample; ++i) {
      const float score = scores[i * n / kSample];
      if (score > kMinusInfinity) sample_.push_back(score);
    }
    const double expected =
        static_cast<double>(kSample) * static_cast<double>(k) / static_cast<double>(n);
    rank_ = expected + 3 * std::sqrt(expected) + 3;
  }
  float next() {
    if (rank_ >= static_cast<double>(sample_.size())) return kLowest;
    const auto nth = sample_.begin() + static_cast<std::ptrdiff_t>(rank_);
    std::nth_element(sample_.begin(), nth, sample_.end(), std::greater<>());
    rank_ *= 4;
    return *nth;
  }

 private:
  std::vector<float> sample_;
  double rank_ = 0;  // in the sample, of the next threshold
};

// The positions of the min(k, ..) best of scores[0..n), ascending.
std::vector<std::int32_t> best_positions(Context& context, const float* scores, std::int64_t n,
                                         std::int64_t k) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const std::int64_t room = kChunk + kN;
  const auto found =
      std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(chunks * room));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(chunks));
  Thresholds thresholds(scores, n, k);
  std::int64_t total = 0;
  for (float threshold = 0; total < k && threshold > kLowest;) {
    threshold = thresholds.next();
    context.parallel_for(chunks, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        counts[static_cast<std::size_t>(c)] = positions_from(
            scores, c * kChunk, std::min(n, (c + 1) * kChunk), threshold, found.get() + c * room);
      }
    });
    total = 0;
    for (const std::int64_t count : counts) total += count;
  }

  std::vector<std::int32_t> best;
  best.reserve(static_cast<std::size_t>(total));
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int32_t* from = found.get() + c * room;
    best.insert(best.end(), from, from + counts[static_cast<std::size_t>(c)]);
  }
  if (total <= k) return best;
  std::vector<float> values(best.size());
  for (std::size_t i = 0; i < best.size(); ++i) values[i] = scores[best[i]];
  std::nth_element(values.begin(), values.begin() + (k - 1), values.end(), std::greater<>());
  const float last = values[static_cast<std::size_t>(k - 1)];
  std::int64_t ties = k;  // of those equal to the k-th best the first ones
  for (const std::int32_t i : best) ties -= scores[i] > last;
  std::erase_if(
      best, [&](std::int32_t i) { return scores[i] < last || (scores[i] == last && ties-- <= 0); });
  return best;
}

void top_k(Context& context, const TopKArgs& a) {
  const std::vector<std::int32_t> best = best_positions(context, a.scores, a.n, a.k);
  std::fill(std::copy(best.begin(), best.end(), a.out), a.out + a.k, -1);
}

// NaN to -infinity.
HWY_INLINE VF number(VF x) {
  return hn::IfThenElse(hn::Eq(x, x), x, hn::Set(DF(), kMinusInfinity));
}

// The best of each of `n` whole blocks of eight scores.
void best_of_eights(const float* scores, std::int64_t n, float* best) {
  const DF d;
  constexpr std::int64_t kGroup = 4 * kN;  // blocks
  HWY_ALIGN float halves[4 * kGroup];
  std::int64_t block = 0;
  for (; block + kGroup <= n; block += kGroup) {
    const hn::FixedTag<float, 4> d4;
    const auto lowest = hn::Set(d4, kMinusInfinity);
    const auto load = [&](const float* from) HWY_ATTR {
      const auto x = hn::LoadU(d4, from);
      return hn::IfThenElse(hn::Eq(x, x), x, lowest);
    };
    const float* from = scores + 8 * block;
    for (std::int64_t i = 0; i < kGroup; ++i, from += 8) {
      hn::Store(hn::Max(load(from), load(from + 4)), d4, halves + 4 * i);
    }
    for (std::int64_t i = 0; i < kGroup; i += kN) {
      VF a, b, c, e;
      hn::LoadInterleaved4(d, halves + 4 * i, a, b, c, e);
      hn::StoreU(hn::Max(hn::Max(a, b), hn::Max(c, e)), d, best + block + i);
    }
  }
  for (; block < n; ++block) {
    best[block] = kMinusInfinity;
    for (std::int64_t i = 8 * block; i < 8 * block + 8; ++i) {
      best[block] = std::max(best[block], scores[i]);
    }
  }
}

void candidate_blocks(Context& context, const CandidateBlocksArgs& a) {
  if (a.block_size != 8 || a.n == 0) return candidate_blocks_scalar(context, a);
  const std::int64_t whole = a.n / 8, n_blocks = (a.n + 7) / 8;
  const auto best = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n_blocks));
  context.parallel_for(whole, 4096, [&](std::int64_t begin, std::int64_t end) {
    best_of_eights(a.scores + 8 * begin, end - begin, best.get() + begin);
  });
  best[static_cast<std::size_t>(n_blocks - 1)] = std::numeric_limits<float>::infinity();
  std::fill(a.kept, a.kept + n_blocks, std::uint8_t{0});
  for (const std::int32_t block : best_positions(context, best.get(), n_blocks, a.top_blocks)) {
    a.kept[block] = 1;
  }
}

}  // namespace

void use_index_select(KernelTable& table) {
  table.top_k = top_k;
  table.candidate_blocks = candidate_blocks;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_index_select(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_index_select, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
