// Scores of packed index keys in vectors; keys are the lanes.
//
// A few vectors of keys are transposed so that each 32-bit lane holds four channels of one key:
// their codes are turned into bytes 0..24 (twice the value, plus 12) once, by a byte shuffle, for
// all heads. A block of 32 channels is then eight byte products whose pairs add up exactly in 16
// bits, or in 32 where the machine sums four at a time; what the 12 adds is taken off at the
// start. Everything after that is the scalar version lane by lane.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/index_dot.h"
#include "kernels/index_select.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_scores_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using D8 = hn::Repartition<std::uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));
constexpr std::int64_t kVectors = 2, kKeys = kVectors * kN;  // keys of a tile
constexpr int kHeads = 4;                                    // heads at a time
constexpr int kWords = 8;                                    // of four channels, in a block of 32
constexpr int kShift = 12;                                   // makes doubled E2M1 values unsigned

// The eight partial sums of a block: byte products of four channels a lane, added up so that the
// lane's total is their sum. bytes: 0..24, weights: -12..12.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE VI add_products(VI sum, hn::Vec<D8> bytes, VI weights) {
  return VI{_mm512_dpbusd_epi32(sum.raw, bytes.raw, weights.raw)};
}
HWY_INLINE VI total(VI sum) { return sum; }
#elif HWY_TARGET == HWY_AVX2
HWY_INLINE VI add_products(VI sum, hn::Vec<D8> bytes, VI weights) {
  return VI{_mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(bytes.raw, weights.raw))};
}
HWY_INLINE VI total(VI sum) { return VI{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))}; }
#else
HWY_INLINE VI add_products(VI sum, hn::Vec<D8> bytes, VI weights) {
  const hn::Repartition<std::int16_t, DF> d16;
  const auto b = hn::BitCast(d16, bytes), w = hn::BitCast(d16, weights);
  const auto even = hn::Mul(hn::And(b, hn::Set(d16, 255)), hn::ShiftRight<8>(hn::ShiftLeft<8>(w)));
  const auto odd = hn::Mul(hn::ShiftRight<8>(b), hn::ShiftRight<8>(w));
  return hn::BitCast(DI(), hn::Add(hn::BitCast(d16, sum), hn::Add(even, odd)));
}
HWY_INLINE VI total(VI sum) {
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(sum)), hn::ShiftRight<16>(sum));
}
#endif

// The queries of a call: bytes of doubled values in the order of a tile's words, scales, and what
// the shift of the keys' bytes has to be taken off for.
struct Queries {
  explicit Queries(const IndexScoresArgs& a)
      : blocks(a.dim / 32),
        words(static_cast<std::size_t>(a.n_heads * blocks * kWords)),
        quarter_scales(static_cast<std::size_t>(a.n_heads * blocks)),
        shifts(quarter_scales.size()) {
    const auto* row = reinterpret_cast<const std::uint8_t*>(a.q);
    for (std::int64_t i = 0; i < a.n_heads * blocks; ++i) {
      const std::int64_t head = i / blocks, block = i % blocks;
      const std::uint8_t* query = row + head * row_bytes(RowFormat::kQm4, a.dim);
      std::int8_t twice[32], in_order[32];
      twice_of_block(query + block * 16, twice);
      std::int32_t sum = 0;
      for (int b = 0; b < 32; ++b) {
        in_order[b / 4 % 4 * 8 + b / 16 * 4 + b % 4] = twice[b];
        sum += twice[b];
      }
      std::memcpy(words.data() + i * kWords, in_order, 32);
      quarter_scales[static_cast<std::size_t>(i)] = 0.25f * e8m0_to_f32(query[a.dim / 2 + block]);
      shifts[static_cast<std::size_t>(i)] = shift_start(-kShift * sum);
    }
  }

  // A start of a lane's partial sums that totals `value`.
  static std::int32_t shift_start(std::int32_t value) {
    return HWY_TARGET == HWY_AVX3 ? value : value & 0xFFFF;
  }

  std::int64_t blocks;
  std::vector<std::int32_t> words;    // [heads, blocks, 8], four doubled values each
  std::vector<float> quarter_scales;  // [heads, blocks]
  std::vector<std::int32_t> shifts;   // [heads, blocks]
};

// Keys as lanes.
struct Tile {
  explicit Tile(std::int64_t dim)
      : blocks(dim / 32),
        words(static_cast<std::size_t>(dim / 8 * kKeys)),
        bytes(static_cast<std::size_t>(dim * kKeys)),
        scales(static_cast<std::size_t>(blocks * kKeys)) {}

  // rows: kKeys keys.
  void load(const std::byte* const* rows) {
    transpose(rows);
    const D8 d8;
    const auto table = hn::LoadDup128(d8, kShiftedCodes);
    const auto nibble = hn::Set(d8, 15);
    const std::int64_t n = static_cast<std::int64_t>(words.size());
    std::uint8_t* out = bytes.data();
    for (std::int64_t i = 0; i < n; i += kKeys, out += 8 * kKeys) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        const auto pairs =
            hn::BitCast(d8, hn::LoadU(DU(), words.data() + static_cast<std::size_t>(i + v * kN)));
        const auto high = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(DU(), pairs)));
        hn::StoreU(hn::TableLookupBytes(table, hn::And(pairs, nibble)), d8, out + 4 * v * kN);
        hn::StoreU(hn::TableLookupBytes(table, hn::And(high, nibble)), d8,
                   out + 4 * (kKeys + v * kN));
      }
    }
    load_scales(rows);
  }

  void load_scales(const std::byte* const* rows) {
    const DU du;
    for (std::int64_t block = 0; block < blocks; ++block) {
      HWY_ALIGN std::uint32_t scale[kKeys];
      for (std::int64_t key = 0; key < kKeys; ++key) {
        scale[key] = std::to_integer<std::uint32_t>(rows[key][16 * blocks + block]);
      }
      for (std::int64_t v = 0; v < kKeys; v += kN) {
        // e8m0_to_f32: the exponent, but for the two ends.
        const auto code = hn::Load(du, scale + v);
        auto bits = hn::ShiftLeft<23>(code);
        bits = hn::IfThenElse(hn::Eq(code, hn::Zero(du)), hn::Set(du, 0x00400000u), bits);
        bits = hn::IfThenElse(hn::Eq(code, hn::Set(du, 255u)), hn::Set(du, 0x7FC00000u), bits);
        hn::StoreU(hn::BitCast(DF(), bits), DF(),
                   scales.data() + static_cast<std::size_t>(block * kKeys + v));
      }
    }
  }

  // words[i][key] = the i-th four bytes of a key.
  void transpose(const std::byte* const* rows) {
    const hn::FixedTag<std::uint32_t, 4> d;
    const hn::FixedTag<std::uint64_t, 2> d64;
    const auto load = [&](const std::byte* from) HWY_ATTR {
      return hn::BitCast(d, hn::LoadU(hn::FixedTag<std::uint8_t, 16>(),
                                      reinterpret_cast<const std::uint8_t*>(from)));
    };
    for (std::int64_t key = 0; key < kKeys; key += 4) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        const auto a = load(rows[key] + 16 * block), b = load(rows[key + 1] + 16 * block);
        const auto c = load(rows[key + 2] + 16 * block), e = load(rows[key + 3] + 16 * block);
        const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
        const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
        const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
        const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
        std::uint32_t* out = words.data() + 4 * block * kKeys + key;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, out);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, out + kKeys);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, out + 2 * kKeys);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, out + 3 * kKeys);
      }
    }
  }

  HWY_ALIGN static constexpr std::uint8_t kShiftedCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                               12, 11, 10, 9,  8,  6,  4,  0};
  std::int64_t blocks;
  std::vector<std::uint32_t> words;  // [dim/8, kKeys]
  std::vector<std::uint8_t> bytes;   // [dim/4, kKeys, 4]: even channels of four bytes, then odd
  std::vector<float> scales;         // [blocks, kKeys]
};

// round_to_bf16 but for NaN whose lower half is all ones, which arithmetic does not make.
HWY_INLINE VF round_number(VF x) {
  const DU d;
  const auto bits = hn::BitCast(d, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
  return hn::BitCast(
      DF(), hn::And(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu))), hn::Set(d, 0xFFFF0000u)));
}

// Adds n_heads heads' terms to sums.
template <bool kRounded, int n_heads>
HWY_INLINE void add_heads(const Queries& q, const Tile& tile, const float* w, std::int64_t head,
                          VF (&sums)[kVectors]) {
  const DF d;
  const DI di;
  const D8 d8;
  VF dots[n_heads][kVectors];
  for (auto& dot : dots) {
    for (VF& v : dot) v = hn::Zero(d);
  }
  for (std::int64_t block = 0; block < tile.blocks; ++block) {
    VI partial[n_heads][kVectors];
    const std::int64_t at = head * tile.blocks + block;
    for (int h = 0; h < n_heads; ++h) {
      const VI start = hn::Set(di, q.shifts[static_cast<std::size_t>(at + h * tile.blocks)]);
      for (VI& v : partial[h]) v = start;
    }
    const std::int32_t* words = q.words.data() + at * kWords;
    const std::uint8_t* bytes = tile.bytes.data() + block * 32 * kKeys;
#pragma GCC unroll 1  // unrolled, GCC 12 spills every product
    for (int word = 0; word < kWords; ++word, bytes += 4 * kKeys) {
      hn::Vec<D8> keys[kVectors];
      for (int v = 0; v < kVectors; ++v) keys[v] = hn::LoadU(d8, bytes + 4 * v * kN);
      for (int h = 0; h < n_heads; ++h) {
        const VI query = hn::Set(di, words[h * tile.blocks * kWords + word]);
        for (int v = 0; v < kVectors; ++v) {
          partial[h][v] = add_products(partial[h][v], keys[v], query);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const VF key_scale = hn::LoadU(d, tile.scales.data() + block * kKeys + v * kN);
      for (int h = 0; h < n_heads; ++h) {
        const VF scale =
            hn::Set(d, q.quarter_scales[static_cast<std::size_t>(at + h * tile.blocks)]);
        const VF integer = hn::ConvertTo(d, total(partial[h][v]));
        dots[h][v] = hn::Add(dots[h][v], hn::Mul(hn::Mul(integer, scale), key_scale));
      }
    }
  }
  for (int h = 0; h < n_heads; ++h) {
    const VF weight = hn::Set(d, w[head + h]);
    for (int v = 0; v < kVectors; ++v) {
      VF dot = hn::IfThenElseZero(hn::Gt(dots[h][v], hn::Zero(d)), dots[h][v]);
      if constexpr (kRounded) dot = round_number(dot);
      VF term = hn::Mul(dot, weight);
      if constexpr (kRounded) term = round_number(term);
      sums[v] = hn::Add(sums[v], term);
    }
  }
}

template <bool kRounded>
void score_tile(const IndexScoresArgs& a, const Queries& q, const Tile& tile, float* scores) {
  const DF d;
  VF sums[kVectors];
  for (VF& v : sums) v = hn::Zero(d);
  std::int64_t head = 0;
  for (; head + kHeads <= a.n_heads; head += kHeads) {
    add_heads<kRounded, kHeads>(q, tile, a.w, head, sums);
  }
  for (; head < a.n_heads; ++head) add_heads<kRounded, 1>(q, tile, a.w, head, sums);
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(kRounded ? round_to_bf16(d, sums[v]) : sums[v], d, scores + v * kN);
  }
}

// Finds rows of ascending numbers without a division for each.
class RowCursor {
 public:
  RowCursor(const KvRows& table, std::int64_t bytes) : table_(table), bytes_(bytes) {}
  const std::byte* row(std::int64_t i) {
    if (i >= end_) {
      const std::int64_t page = i / table_.rows_per_page;
      first_ = page * table_.rows_per_page;
      end_ = table_.rows_per_page > std::numeric_limits<std::int64_t>::max() - first_
                 ? std::numeric_limits<std::int64_t>::max()
                 : first_ + table_.rows_per_page;
      start_ = table_.pages[page] + table_.offset;
    }
    return start_ + (i - first_) * bytes_;
  }

 private:
  const KvRows& table_;
  std::int64_t bytes_, first_ = 0, end_ = 0;
  const std::byte* start_ = nullptr;
};

void score_range(const IndexScoresArgs& a, const Queries& q, std::int64_t begin, std::int64_t end) {
  Tile tile(a.dim);
  RowCursor rows(a.keys, row_bytes(a.keys.format, a.dim));
  const std::byte* keys[kKeys];
  std::int64_t entries[kKeys], n = 0;
  const auto flush = [&] {
    for (std::int64_t i = n; i < kKeys; ++i) keys[i] = keys[0];
    tile.load(keys);
    float scores[kKeys];
    a.round_bf16 ? score_tile<true>(a, q, tile, scores) : score_tile<false>(a, q, tile, scores);
    for (std::int64_t i = 0; i < n; ++i) a.scores[entries[i]] = scores[i];
    n = 0;
  };
  for (std::int64_t j = begin; j < end; ++j) {
    if (a.kept && !a.kept[j / a.block_size]) {
      a.scores[j] = -std::numeric_limits<float>::infinity();
      continue;
    }
    keys[n] = rows.row(j);
    entries[n++] = j;
    if (n == kKeys) flush();
  }
  if (n > 0) flush();
}

void index_scores(Context& context, const IndexScoresArgs& a) {
  if (a.keys.format != RowFormat::kQm4) return index_scores_scalar(context, a);
  const Queries q(a);
  context.parallel_for(a.n_visible, 256, [&](std::int64_t begin, std::int64_t end) {
    score_range(a, q, begin, end);
  });
}

}  // namespace

void use_index_scores(KernelTable& table) { table.index_scores = index_scores; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_index_scores(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_index_scores, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
