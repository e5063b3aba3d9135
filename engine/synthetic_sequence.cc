// Bytes of a row are random codes, which are all valid, and scales near those of real rows. The
// arithmetic that packs nothing (Numerics::kF32) has no codes: its rows are made of numbers.
#include "engine/synthetic_sequence.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "engine/sizes.h"

namespace cairn::engine {
namespace {

using Random = std::mt19937_64;
using kernels::RowFormat;

// `dim` channels at `row`.
void fill_row(RowFormat format, std::int64_t dim, Random& random, std::byte* row) {
  const std::int64_t n = kernels::row_bytes(format, dim);
  if (format == RowFormat::kF32 || format == RowFormat::kQ8) {  // any E4M3 code but the two NaNs
    std::normal_distribution<float> normal;
    std::vector<float> x(usize(dim));
    for (float& v : x) v = normal(random);
    kernels::encode_row(format, x.data(), dim, row);
    return;
  }
  for (std::int64_t at = 0; at < n; at += 8) {
    const std::uint64_t bits = random();
    std::memcpy(row + at, &bits, usize(std::min<std::int64_t>(8, n - at)));
  }
  const bool is_main = format == RowFormat::kQn4;  // E4M3 scales 1/8 to 1, else E8M0 1/4 and 1/2
  for (std::int64_t at = dim / 2; at < n; ++at) {
    const auto bits = std::to_integer<unsigned>(row[at]);
    row[at] = static_cast<std::byte>(is_main ? 0x20 + bits % 0x18 : 125 + bits % 2);
  }
}

KvPagePtr synthetic_page(const LoadedModel& model, const KvCache& layout, Random& random) {
  auto page = std::make_shared<KvPage>();
  page->bytes.resize(usize(layout.block_bytes()));
  const auto fill = [&](std::int64_t offset, std::int64_t n_rows, RowFormat format,
                        std::int64_t dim) {
    const std::int64_t bytes = kernels::row_bytes(format, dim);
    for (std::int64_t i = 0; i < n_rows; ++i) {
      fill_row(format, dim, random, page->bytes.data() + offset + i * bytes);
    }
  };
  for (const GlobalKv& source : layout.sources()) {
    const std::int64_t n_rows = kBlockTokens / source.ratio;
    fill(source.main_offset, n_rows, model.arithmetic().main_format, model.config().head_dim);
    fill(source.index_offset, n_rows, model.arithmetic().index_format,
         model.config().index_head_dim);
  }
  return page;
}

// What Sequence::import_tail takes at a block's end: windows, rings of draft stages, logits.
std::vector<std::byte> synthetic_tail(const LoadedModel& model, const KvCache& layout,
                                      std::int64_t position, Random& random) {
  std::vector<std::byte> tail;
  const auto append = [&](const void* bytes, std::size_t n) {
    const auto* first = static_cast<const std::byte*>(bytes);
    tail.insert(tail.end(), first, first + n);
  };
  std::vector<std::byte> row(usize(layout.window_row_bytes()));
  const std::int64_t begin = std::max<std::int64_t>(0, position - model.config().window);
  const int n_windows = model.config().n_layers + model.config().n_draft_stages;
  for (int i = 0; i < n_windows; ++i) {
    append(&begin, sizeof begin);
    for (std::int64_t p = begin; p < position; ++p) {
      fill_row(model.arithmetic().window_format, model.config().head_dim, random, row.data());
      append(row.data(), row.size());
    }
  }
  const std::vector<float> logits(usize(model.config().vocab_size), 0.0f);
  append(logits.data(), logits.size() * sizeof(float));
  return tail;
}

}  // namespace

std::vector<KvPagePtr> synthetic_pages(const LoadedModel& model, std::int64_t n_blocks,
                                       std::uint64_t seed) {
  Random random(seed);
  const KvCache layout(model.config(), model.arithmetic());
  std::vector<KvPagePtr> pages;
  for (std::int64_t i = 0; i < n_blocks; ++i) {
    pages.push_back(synthetic_page(model, layout, random));
  }
  return pages;
}

Result<std::unique_ptr<Sequence>> synthetic_sequence(std::shared_ptr<const LoadedModel> model,
                                                     std::span<const KvPagePtr> pages,
                                                     std::uint64_t seed) {
  Random random(seed);
  auto sequence = std::make_unique<Sequence>(model);
  std::uniform_int_distribution<TokenId> any_token(3, model->config().vocab_size - 1);
  std::vector<TokenId> tokens(usize(kBlockTokens));
  for (const KvPagePtr& page : pages) {
    for (TokenId& token : tokens) token = any_token(random);
    CAIRN_RETURN_IF_ERROR(sequence->import_page(tokens, page, /*exact=*/true));
  }
  const std::vector<std::byte> tail =
      synthetic_tail(*model, sequence->cache(), sequence->position(), random);
  CAIRN_RETURN_IF_ERROR(sequence->import_tail({}, tail));
  return sequence;
}

}  // namespace cairn::engine
