// Sparse attention for vectors: the scalar definition's sums, several heads and places at a time.
//
// A block of 64 list places is decoded once into a tile of f32 rows that stays in cache (135 KB at
// head_dim 512) and serves every head: logits as 16-lane dot products of a few heads with a few
// rows in registers, the softmax with heads as lanes, then the weighted sum of rows with channels
// as lanes. Nothing of the list is unpacked but that tile.
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/cpu/attention_order.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"
#include "kernels/sparse_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse_attention_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/decode_row_simd.h"
#include "kernels/cpu/exponential_simd.h"
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));
constexpr std::int64_t kParts = kDotLanes / kN;  // vectors of one sum's lanes
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
constexpr int kDotHeads = kParts == 1 ? 4 : kParts == 2 ? 2 : 1;
constexpr int kDotPlaces = kParts == 1 ? 4 : 3;
constexpr std::int64_t kPlacesInL1 = 8;  // rows that stay in L1 while all queries pass
constexpr int kSumHeads = kManyRegisters ? 8 : 6;
constexpr std::int64_t kSumVectors = 2;

// Scratch of one thread: what a block of places needs, for `heads` heads.
struct Scratch {
  Scratch(std::int64_t head_dim, std::int64_t n_heads)
      : row_stride(head_dim + kN * 2),  // not a multiple of a page: rows fall into different sets
        heads((n_heads + kN - 1) / kN * kN) {
    const std::int64_t floats =
        kBlockPlaces * (row_stride + heads) + 4 * kPlacesInL1 * heads + 3 * heads;
    memory = hwy::AllocateAligned<float>(static_cast<std::size_t>(floats));
    if (!memory) throw std::bad_alloc();
    tile = memory.get();
    weights = tile + kBlockPlaces * row_stride;
    partial = weights + kBlockPlaces * heads;
    largest = partial + 4 * kPlacesInL1 * heads;
    shrink = largest + heads;
    denominator = shrink + heads;
    std::fill_n(partial, 4 * kPlacesInL1 * heads, 0.0f);  // heads beyond n_heads stay 0
  }
  std::int64_t row_stride, heads;
  hwy::AlignedFreeUniquePtr<float[]> memory;
  float* tile;         // [64, row_stride], the block's present rows
  float* weights;      // [64, heads], logits and then probabilities
  float* partial;      // [kPlacesInL1, heads, 4], dot products up to a sum of four
  float* largest;      // [heads]
  float* shrink;       // [heads]
  float* denominator;  // [heads]
};

template <bool kExact>
HWY_INLINE VF multiply_add(VF a, VF b, VF sum) {
  if constexpr (kExact) return hn::MulAdd(a, b, sum);
  return hn::Add(sum, hn::Mul(a, b));
}

// The 16 lanes of a sum to four: lane l + lane l+8, then l + l+4.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_four(D d, const V* lanes, float* out) {
  const hn::FixedTag<float, 4> d4;
  constexpr std::size_t kWidth = hn::MaxLanes(D());
  if constexpr (kWidth == 16) {
    const hn::Half<D> d8;
    const auto eight = hn::Add(hn::LowerHalf(d8, lanes[0]), hn::UpperHalf(d8, lanes[0]));
    hn::StoreU(hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight)), d4, out);
  } else if constexpr (kWidth == 8) {
    const V eight = hn::Add(lanes[0], lanes[1]);
    hn::StoreU(hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight)), d4, out);
  } else {
    static_assert(kWidth == 4);
    hn::StoreU(hn::Add(hn::Add(lanes[0], lanes[2]), hn::Add(lanes[1], lanes[3])), d, out);
  }
}

// Dot products of kHeads queries and kPlaces rows, to [place][head][4].
template <bool kExact, int kHeads, int kPlaces>
HWY_NOINLINE void dot_tile(const float* HWY_RESTRICT q, std::int64_t dim, const Scratch& s,
                           const float* HWY_RESTRICT rows, float* HWY_RESTRICT partial) {
  const DF d;
  VF sums[kHeads][kPlaces][kParts];
  for (auto& head : sums) {
    for (auto& place : head) {
      for (VF& part : place) part = hn::Zero(d);
    }
  }
  for (std::int64_t k = 0; k < dim; k += kDotLanes) {
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t at = k + part * kN;
      VF query[kHeads];
      for (int h = 0; h < kHeads; ++h) query[h] = hn::LoadU(d, q + h * dim + at);
      for (int p = 0; p < kPlaces; ++p) {
        const VF row = hn::Load(d, rows + p * s.row_stride + at);
        for (int h = 0; h < kHeads; ++h) {
          sums[h][p][part] = multiply_add<kExact>(query[h], row, sums[h][p][part]);
        }
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kPlaces; ++p) store_four(DF(), sums[h][p], partial + (p * s.heads + h) * 4);
  }
}

template <bool kExact, int kPlaces>
void dot_heads(const float* q, std::int64_t n_heads, std::int64_t dim, const Scratch& s,
               const float* rows, float* partial) {
  std::int64_t h = 0;
  for (; h + kDotHeads <= n_heads; h += kDotHeads) {
    dot_tile<kExact, kDotHeads, kPlaces>(q + h * dim, dim, s, rows, partial + h * 4);
  }
  for (; h < n_heads; ++h) {
    dot_tile<kExact, 1, kPlaces>(q + h * dim, dim, s, rows, partial + h * 4);
  }
}

// Logits [n, heads] of the tile's n rows.
template <bool kExact>
void score_block(const SparseAttentionArgs& a, const float* q, std::int64_t n_heads, std::int64_t n,
                 const Scratch& s) {
  const DF d;
  for (std::int64_t first = 0; first < n; first += kPlacesInL1) {
    const std::int64_t group = std::min(kPlacesInL1, n - first);
    // Few queries at a time, so that they stay in L1 for all rows of the group.
    for (std::int64_t h = 0; h < n_heads; h += kDotHeads) {
      const std::int64_t heads = std::min<std::int64_t>(kDotHeads, n_heads - h);
      for (std::int64_t p = 0; p < group;) {
        const float* rows = s.tile + (first + p) * s.row_stride;
        float* partial = s.partial + (p * s.heads + h) * 4;
        const float* query = q + h * a.head_dim;
        if (group - p >= kDotPlaces) {
          dot_heads<kExact, kDotPlaces>(query, heads, a.head_dim, s, rows, partial);
          p += kDotPlaces;
        } else if (group - p >= 2) {
          dot_heads<kExact, 2>(query, heads, a.head_dim, s, rows, partial);
          p += 2;
        } else {
          dot_heads<kExact, 1>(query, heads, a.head_dim, s, rows, partial);
          p += 1;
        }
      }
    }
    const VF scale = hn::Set(d, a.scale);
    for (std::int64_t p = 0; p < group; ++p) {
      for (std::int64_t h = 0; h < s.heads; h += kN) {
        VF l0, l1, l2, l3;
        hn::LoadInterleaved4(d, s.partial + (p * s.heads + h) * 4, l0, l1, l2, l3);
        const VF dot = hn::Add(hn::Add(l0, l2), hn::Add(l1, l3));
        hn::Store(hn::Mul(dot, scale), d, s.weights + (first + p) * s.heads + h);
      }
    }
  }
}

// Logits to probabilities relative to the running maximum; heads are the lanes.
void soften_block(bool round_bf16, std::int64_t n, const Scratch& s) {
  const DF d;
  const VF smallest = hn::Set(d, kSmallestWeight);
  for (std::int64_t h = 0; h < s.heads; h += kN) {
    const VF before = hn::Load(d, s.largest + h);
    VF largest = before;
    for (std::int64_t i = 0; i < n; ++i) {
      const VF logit = hn::Load(d, s.weights + i * s.heads + h);
      largest = hn::IfThenElse(hn::Lt(largest, logit), logit, largest);
    }
    const VF shrink = exp_lanes(d, hn::Sub(before, largest));
    VF sum = hn::Zero(d);
    for (std::int64_t i = 0; i < n; ++i) {
      float* at = s.weights + i * s.heads + h;
      VF p = exp_lanes(d, hn::Sub(hn::Load(d, at), largest));
      p = hn::IfThenElse(hn::Lt(p, smallest), hn::Zero(d), p);
      sum = hn::Add(sum, p);
      hn::Store(round_bf16 ? round_to_bf16(d, p) : p, d, at);
    }
    hn::Store(largest, d, s.largest + h);
    hn::Store(shrink, d, s.shrink + h);
    const VF denominator = hn::Load(d, s.denominator + h);
    hn::Store(hn::Add(hn::Mul(denominator, shrink), sum), d, s.denominator + h);
  }
}

// out[h][c..] = out[h][c..] * shrink[h] + sum over rows of weight * value, for kHeads heads.
template <bool kExact, int kHeads>
HWY_NOINLINE void sum_tile(const Scratch& s, std::int64_t n, std::int64_t dim, std::int64_t head,
                           std::int64_t channel, float* HWY_RESTRICT out) {
  const DF d;
  VF sums[kHeads][kSumVectors];
  for (int h = 0; h < kHeads; ++h) {
    const VF shrink = hn::Set(d, s.shrink[head + h]);
    for (int v = 0; v < kSumVectors; ++v) {
      sums[h][v] = hn::Mul(hn::LoadU(d, out + h * dim + channel + v * kN), shrink);
    }
  }
  const float* HWY_RESTRICT weights = s.weights + head;
  const float* HWY_RESTRICT tile = s.tile + channel;
  for (std::int64_t i = 0; i < n; ++i, weights += s.heads, tile += s.row_stride) {
    VF value[kSumVectors];
    for (int v = 0; v < kSumVectors; ++v) value[v] = hn::Load(d, tile + v * kN);
    for (int h = 0; h < kHeads; ++h) {
      const VF weight = hn::Set(d, weights[h]);
      for (int v = 0; v < kSumVectors; ++v) {
        sums[h][v] = multiply_add<kExact>(weight, value[v], sums[h][v]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kSumVectors; ++v) {
      hn::StoreU(sums[h][v], d, out + h * dim + channel + v * kN);
    }
  }
}

template <bool kExact>
void sum_block(const Scratch& s, std::int64_t n, std::int64_t dim, std::int64_t n_heads,
               float* out) {
  for (std::int64_t c = 0; c < dim; c += kSumVectors * kN) {
    std::int64_t h = 0;
    for (; h + kSumHeads <= n_heads; h += kSumHeads) {
      sum_tile<kExact, kSumHeads>(s, n, dim, h, c, out + h * dim);
    }
    for (; h + 2 <= n_heads; h += 2) sum_tile<kExact, 2>(s, n, dim, h, c, out + h * dim);
    for (; h < n_heads; ++h) sum_tile<kExact, 1>(s, n, dim, h, c, out + h * dim);
  }
}

void finish_head(bool round_bf16, float denominator, std::int64_t dim, float* out) {
  const DF d;
  const VF divisor = hn::Set(d, denominator);
  for (std::int64_t c = 0; c < dim; c += kN) {
    const VF o = hn::Div(hn::LoadU(d, out + c), divisor);
    hn::StoreU(round_bf16 ? round_to_bf16(d, o) : o, d, out + c);
  }
}

// The present rows of places [begin, end) of a query's list into the tile; returns how many.
std::int64_t decode_block(const SparseAttentionArgs& a, std::int64_t row, std::int64_t begin,
                          std::int64_t end, const Scratch& s) {
  const std::int32_t* window = a.window_slots + row * a.n_window;
  const std::int32_t* main = a.main_rows + row * a.n_main;
  std::int64_t n = 0;
  for (std::int64_t place = begin; place < end; ++place) {
    const bool in_window = place < a.n_window;
    const std::int32_t index = in_window ? window[place] : main[place - a.n_window];
    if (index < 0) continue;
    const KvRows& table = in_window ? a.window : a.main;
    decode_row_lanes(table.format, table.row(index, row_bytes(table.format, a.head_dim)),
                     a.head_dim, s.tile + n * s.row_stride);
    ++n;
  }
  return n;
}

// Heads [head, head + n_heads) of one query.
template <bool kExact>
void attend(const SparseAttentionArgs& a, std::int64_t row, std::int64_t head, std::int64_t n_heads,
            const Scratch& s) {
  const std::int64_t at = (row * a.n_heads + head) * a.head_dim;
  const float* q = a.q + at;
  float* out = a.out + at;
  std::fill_n(out, n_heads * a.head_dim, 0.0f);
  std::fill_n(s.largest, s.heads, kFirstMaximum);
  std::fill_n(s.denominator, s.heads, 0.0f);
  const std::int64_t n_places = a.n_window + a.n_main;
  for (std::int64_t begin = 0; begin < n_places; begin += kBlockPlaces) {
    const std::int64_t n = decode_block(a, row, begin, std::min(begin + kBlockPlaces, n_places), s);
    if (n == 0) continue;
    score_block<kExact>(a, q, n_heads, n, s);
    soften_block(a.round_bf16, n, s);
    sum_block<kExact>(s, n, a.head_dim, n_heads, out);
  }
  for (std::int64_t h = 0; h < n_heads; ++h) {
    const float sink = exp_f32(a.sink[head + h] - s.largest[h]);
    finish_head(a.round_bf16, s.denominator[h] + sink, a.head_dim, out + h * a.head_dim);
  }
}

// Whether every number fits bf16.
bool all_bf16(const float* x, std::int64_t n) {
  const hn::CappedTag<std::uint32_t, 16> d;
  auto low = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    low = hn::Or(low, hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(x + i)));
  }
  return hn::AllTrue(d, hn::Eq(hn::And(low, hn::Set(d, 0xFFFFu)), hn::Zero(d)));
}

void sparse_attention(Context& context, const SparseAttentionArgs& a) {
  // Fused products are the definition's where products are exact.
  const bool exact = a.round_bf16 && products_fit_f32(a.window.format) &&
                     (a.n_main == 0 || products_fit_f32(a.main.format)) &&
                     all_bf16(a.q, a.rows * a.n_heads * a.head_dim);
  // A query's heads are shared out where there are more threads than queries.
  const std::int64_t pieces = std::clamp<std::int64_t>(
      (context.n_threads() + a.rows - 1) / std::max<std::int64_t>(a.rows, 1), 1,
      (a.n_heads + kHeadsPerPiece - 1) / kHeadsPerPiece);
  const std::int64_t heads = (a.n_heads + pieces - 1) / pieces;
  context.parallel_for(a.rows * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(a.head_dim, heads);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t head = i % pieces * heads;
      const std::int64_t n = std::min(heads, a.n_heads - head);
      if (n <= 0) continue;
      exact ? attend<true>(a, i / pieces, head, n, scratch)
            : attend<false>(a, i / pieces, head, n, scratch);
    }
  });
}

}  // namespace

void use_sparse_attention(KernelTable& table) { table.sparse_attention = sparse_attention; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_sparse_attention(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_sparse_attention, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
