// Every term of every recorded layer, computed by the engine's own functions from the golden inputs
// of that term. A difference therefore belongs to one term of one layer and does not grow.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention.h"
#include "engine/compressor.h"
#include "engine/engram.h"
#include "engine/forward.h"
#include "engine/indexer.h"
#include "engine/layer.h"
#include "engine/linear.h"
#include "engine/moe.h"
#include "engine/runtime.h"
#include "kernels/kv_row.h"
#include "tests/golden_runner/runner.h"

namespace cairn::golden {
namespace {

using engine::LinearInput;
using kernels::RowFormat;

// A rule and, where it is about f32 sums, their noise.
struct Limit {
  Rule rule = Rule::kExact;
  double noise = 0;
};
constexpr Limit kExactly{};

Limit f32_sums(std::int64_t length) { return {Rule::kF32, f32_sum_noise(length)}; }

std::size_t usize(std::int64_t n) { return static_cast<std::size_t>(n); }

// Rows of `table` ([n, width]) with the given numbers.
std::vector<float> gather(const Tensor& table, const std::vector<std::int64_t>& rows) {
  std::vector<float> out;
  for (const std::int64_t row : rows) {
    out.insert(out.end(), table.row(row), table.row(row) + table.row_size());
  }
  return out;
}

// What a packed row holds, one number per code and per scale.
struct Unpacked {
  std::vector<float> values, codes, scales;
};

Unpacked unpack(RowFormat format, std::span<const std::byte> rows, std::int64_t dim) {
  const std::int64_t bytes = kernels::row_bytes(format, dim);
  const std::int64_t n = static_cast<std::int64_t>(rows.size()) / bytes;
  Unpacked out;
  out.values.resize(usize(n * dim));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::byte* row = rows.data() + i * bytes;
    kernels::decode_row(format, row, dim, out.values.data() + i * dim);
    if (format == RowFormat::kF32 || format == RowFormat::kQ8) continue;
    for (std::int64_t c = 0; c < dim; ++c) {
      out.codes.push_back(
          static_cast<float>(std::to_integer<int>(row[c / 2]) >> (4 * (c & 1)) & 15));
    }
    for (std::int64_t at = dim / 2; at < bytes; ++at) {
      out.scales.push_back(static_cast<float>(std::to_integer<int>(row[at])));
    }
  }
  return out;
}

std::vector<std::byte> pack(RowFormat format, const std::vector<float>& x, std::int64_t dim) {
  const std::int64_t bytes = kernels::row_bytes(format, dim);
  std::vector<std::byte> rows(x.size() / usize(dim) * usize(bytes));
  for (std::size_t i = 0; i < x.size() / usize(dim); ++i) {
    kernels::encode_row(format, x.data() + i * usize(dim), dim, rows.data() + i * usize(bytes));
  }
  return rows;
}

// The terms of one layer, or of a draft stage for the first proposal of the case. Row i of a golden
// tensor of the layer is position positions_[i]: a detail position, or a place of the stage's
// block; rows of compressed entries are all entries. Terms whose tensors are absent are skipped.
class LayerTerms {
 public:
  static LayerTerms of_layer(const ModelPtr& model, const CaseFile& file, int layer,
                             Agreement& agreement) {
    return LayerTerms(model, file, layer, prefix(layer),
                      model->layer_context(layer, model->runtime()->compute()),
                      model->weights().layers[usize(layer)], file.detail_positions(), agreement);
  }
  static LayerTerms of_stage(const ModelPtr& model, const CaseFile& file, int stage,
                             Agreement& agreement) {
    std::vector<std::int64_t> positions(usize(model->config().draft_block));
    std::iota(positions.begin(), positions.end(),
              static_cast<std::int64_t>(file.integers("prompt_ids").size()));
    return LayerTerms(model, file, stage, stage_prefix(stage),
                      model->draft_context(model->runtime()->compute()),
                      model->weights().draft.stages[usize(stage)], std::move(positions), agreement);
  }

  void compare() {
    engram();
    attention_inputs();
    compressor();
    indexer();
    selection();
    attention_core();
    streams();
    experts();
  }

  void compare_stage() {
    ring();
    block_attention();
    streams();
    block_streams();
    experts();
  }

 private:
  LayerTerms(const ModelPtr& model, const CaseFile& file, int layer, std::string own_prefix,
             const engine::LayerContext& ctx, const engine::LayerWeights& w,
             std::vector<std::int64_t> positions, Agreement& agreement)
      : model_(model),
        file_(file),
        agreement_(agreement),
        layer_(layer),
        prefix_(std::move(own_prefix)),
        ctx_(ctx),
        config_(ctx_.config),
        w_(w),
        positions_(std::move(positions)),
        n_(static_cast<std::int64_t>(positions_.size())) {
    for (std::int64_t i = 0; i < n_; ++i) row_of_position_[positions_[usize(i)]] = i;
  }

  static std::string prefix(int layer) { return "layers." + std::to_string(layer) + "."; }
  static std::string stage_prefix(int stage) {
    return "dspark_first.mtp" + std::to_string(stage) + ".";
  }
  bool has(const std::string& where, std::initializer_list<std::string_view> names) const {
    return std::all_of(names.begin(), names.end(),
                       [&](std::string_view name) { return file_.has(where + std::string(name)); });
  }
  bool has(int layer, std::initializer_list<std::string_view> names) const {
    return has(prefix(layer), names);
  }
  bool has(std::initializer_list<std::string_view> names) const { return has(prefix_, names); }
  Tensor golden(int layer, const std::string& name) const {
    return file_.tensor(prefix(layer) + name);
  }
  Tensor golden(const std::string& name) const { return file_.tensor(prefix_ + name); }
  std::vector<float> input(const std::string& name) const { return golden(name).values; }

  void judge(const std::string& name, std::span<const float> ours, const Tensor& expected,
             Limit limit) {
    const std::string kind = "layer " + name;
    if (ours.size() != expected.values.size()) {
      agreement_.require(kind + " size", false);
      return;
    }
    const std::int64_t width = expected.shape.empty() ? 1 : expected.shape.back();
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(ours.size()); at += width) {
      agreement_.compare(kind, limit.rule, ours.data() + at, expected.values.data() + at, width,
                         limit.noise);
    }
  }
  void judge(const std::string& name, std::span<const float> ours, Limit limit) {
    if (has({name})) judge(name, ours, golden(name), limit);
  }
  // What the reference stores in bf16 is f32 in the other arithmetics, with the noise of sums of
  // `length` terms.
  Limit activation(std::int64_t length) const {
    return ctx_.arithmetic.round_bf16 ? Limit{Rule::kBf16} : f32_sums(length);
  }

  LinearInput linear_input(const std::vector<float>& x) const {
    return LinearInput(ctx_, x.data(), n_, static_cast<std::int64_t>(x.size()) / n_);
  }

  void engram() {
    if (ctx_.plan.engram_slot < 0 || !has({"engram.h_before"})) return;
    const engine::EngramTables& tables = *model_->engram();
    std::vector<std::int32_t> classes;
    for (const std::int64_t id : file_.integers("prompt_ids")) {
      classes.push_back(tables.classes[usize(id)]);
    }
    std::vector<std::int64_t> ids;
    for (const std::int64_t p : positions_) {
      const auto of_row = engine::engram_row_ids(ctx_, tables, classes, p, 1);
      ids.insert(ids.end(), of_row.begin(), of_row.end());
    }
    judge("engram.rows", engine::engram_rows(ctx_, w_.engram, ids), kExactly);
    if (!has({"engram.rows", "engram.kv"})) return;
    judge("engram.kv", engine::engram_kv(ctx_, w_.engram, input("engram.rows")),
          activation(w_.engram.wkv.cols));
    std::vector<float> h = input("engram.h_before");
    judge("engram.gate", engine::engram_update(ctx_, w_.engram, input("engram.kv"), h.data()),
          gate_limit());
    judge("h_in", h, activation(config_.dim));
  }

  // gate = sigmoid(+-sqrt(|dot|)): the root turns noise d of the dot product into
  // d / (2 sqrt(|dot|)), the sigmoid into at most a quarter of that.
  Limit gate_limit() const {
    double least_root = 1;
    for (const float gate : input("engram.gate")) {
      least_root = std::min(least_root, std::fabs(std::log(double{gate} / (1 - double{gate}))));
    }
    return {Rule::kF32, f32_sum_noise(config_.dim) * std::max(1.0, 0.125 / least_root)};
  }

  void attention_inputs() {
    if (has({"h_in", "pre_mix_in", "attn_x"})) {
      judge("attn_x", collapsed_and_normed("h_in", "pre_mix_in", w_.attention_norm),
            activation(config_.dim));
    }
    if (has({"attn_x"})) {
      const std::vector<float> x = input("attn_x");
      judge("qr", engine::low_rank_queries(ctx_, w_.attention, linear_input(x)),
            activation(config_.dim));
      judge("window_kv_pre", engine::window_kv(ctx_, w_.attention, linear_input(x), positions_),
            activation(config_.dim));
    }
    if (has({"qr", "q"})) {
      judge("q", engine::head_queries(ctx_, w_.attention, linear_input(input("qr")), positions_),
            activation(config_.q_rank));
    }
    if (has({"window_kv_pre", "window_kv"})) {
      const RowFormat format = ctx_.arithmetic.window_format;
      judge("window_kv",
            unpack(format, pack(format, input("window_kv_pre"), config_.head_dim), config_.head_dim)
                .values,
            kExactly);
    }
  }

  std::vector<float> collapsed_and_normed(const std::string& h, const std::string& pre,
                                          const engine::Bf16View& norm) const {
    return collapsed_and_normed(h, input(pre), norm);
  }
  std::vector<float> collapsed_and_normed(const std::string& h, const std::vector<float>& pre,
                                          const engine::Bf16View& norm) const {
    std::vector<float> collapsed(usize(n_ * config_.dim)), normed(collapsed.size());
    engine::collapse_and_norm(ctx_, input(h).data(), pre.data(), norm, n_, collapsed.data(),
                              normed.data());
    return normed;
  }

  // Latents of the entries whose tokens are all detail positions.
  void latents() {
    const Tensor x = golden("attn_x"), expected = golden("latent");
    for (std::int64_t entry = 0; entry < expected.rows(); ++entry) {
      std::vector<std::int64_t> members;
      for (std::int64_t i = 0; i < ctx_.plan.ratio; ++i) {
        const auto row = row_of_position_.find(entry * ctx_.plan.ratio + i);
        if (row != row_of_position_.end()) members.push_back(row->second);
      }
      if (static_cast<std::int64_t>(members.size()) < ctx_.plan.ratio) continue;
      const Tensor one{{1, expected.row_size()}, gather(expected, {entry})};
      judge("latent", latent_of(gather(x, members)), one, activation(config_.dim));
    }
  }

  static std::vector<float> copied(const engine::StepVector<float>& x) {
    return {x.begin(), x.end()};
  }

  std::vector<float> latent_of(const std::vector<float>& x) const {
    const engine::CompressorWeights& w = w_.attention.compressor;
    const std::int64_t ratio = ctx_.plan.ratio;
    if (ratio == 1) return copied(engine::latents_of_rows(ctx_, w, x.data(), 1));
    std::vector<float> values(usize(ratio * config_.head_dim)), gates(values.size());
    engine::project_group_rows(ctx_, w, x.data(), ratio, values.data(), gates.data());
    return copied(engine::latents_of_groups(ctx_, w, values.data(), gates.data(), 1));
  }

  void compressor() {
    if (!has({"latent"})) return;
    if (has({"attn_x"})) latents();
    const std::vector<float> latent = input("latent");
    std::vector<std::int64_t> positions(latent.size() / usize(config_.head_dim));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      positions[i] = static_cast<std::int64_t>(i) * ctx_.plan.ratio;
    }
    judge("compress_kv_pre", engine::main_kv(ctx_, latent, positions), activation(1));
    judge("index_k_pre", engine::index_keys(ctx_, w_.attention.indexer, latent, positions),
          activation(config_.head_dim));
    if (has({"compress_kv_pre", "compress_kv"})) {
      const Unpacked kv = unpack(ctx_.arithmetic.main_format, main_rows(layer_), config_.head_dim);
      judge("compress_kv", kv.values, kExactly);
      if (!kv.codes.empty()) {
        judge("compress_kv_codes", kv.codes, kExactly);
        judge("compress_kv_scale_e4m3", kv.scales, kExactly);
      }
    }
    if (has({"index_k_pre", "index_k"})) {
      const Unpacked keys =
          unpack(ctx_.arithmetic.index_format, index_rows(layer_), config_.index_head_dim);
      judge("index_k", keys.values, kExactly);
      if (!keys.codes.empty()) {
        judge("index_k_codes", keys.codes, kExactly);
        judge("index_k_scale_e8m0", keys.scales, kExactly);
      }
    }
  }

  // Packed rows of a KV source layer. Packing its golden rows before quantisation is judged exact
  // above, so these are the golden caches.
  std::vector<std::byte> main_rows(int source) const {
    return pack(ctx_.arithmetic.main_format, golden(source, "compress_kv_pre").values,
                config_.head_dim);
  }
  std::vector<std::byte> index_rows(int source) const {
    return pack(ctx_.arithmetic.index_format, golden(source, "index_k_pre").values,
                config_.index_head_dim);
  }

  void indexer() {
    const engine::IndexerWeights& w = w_.attention.indexer;
    if (has({"qr", "index_q_pre"})) {
      judge("index_q_pre", engine::index_queries(ctx_, w, linear_input(input("qr")), positions_),
            activation(config_.q_rank));
    }
    if (has({"index_q_pre", "index_q"})) {
      const std::vector<float> q = input("index_q_pre");
      judge("index_q",
            unpack(ctx_.arithmetic.index_format, engine::pack_index_queries(ctx_, q),
                   config_.index_head_dim)
                .values,
            kExactly);
    }
    if (has({"attn_x", "index_w"})) {
      judge("index_w", engine::index_head_weights(ctx_, w, input("attn_x").data(), n_),
            activation(config_.dim));
    }
    if (has({"index_q", "index_w", "index_score"}) && has(ctx_.plan.kv_source, {"index_k_pre"})) {
      scores();
    }
  }

  void scores() {
    const Tensor expected = golden("index_score");
    const engine::StepVector<std::byte> q =  // packing quantised numbers again loses nothing
        engine::pack_index_queries(ctx_, input("index_q"));
    std::vector<float> weights = input("index_w");
    engine::scale_head_weights(ctx_, weights);
    const std::vector<std::byte> rows = index_rows(ctx_.plan.kv_source);
    const std::byte* page = rows.data();
    const kernels::KvRows keys{&page, ctx_.arithmetic.index_format};
    const std::int64_t q_size = static_cast<std::int64_t>(q.size()) / n_;
    std::vector<float> ours;
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t n = visible(i);
      engine::StepVector<float> row = engine::index_scores(
          ctx_, q.data() + i * q_size, weights.data() + i * config_.index_n_heads, keys, n,
          ctx_.plan.uses_candidates ? pool(i) : std::vector<std::uint8_t>());
      row.resize(usize(expected.row_size()), -std::numeric_limits<float>::infinity());
      ours.insert(ours.end(), row.begin(), row.end());
    }
    judge("index_score", ours, activation(config_.index_head_dim));
  }

  std::int64_t visible(std::int64_t row) const {
    return engine::visible_entries(positions_[usize(row)], ctx_.plan.ratio);
  }
  // The golden candidate pool of detail row i.
  std::vector<std::uint8_t> pool(std::int64_t i) const {
    const Tensor blocks = golden(config_.candidate_source, "candidate_blocks");
    const float* row = blocks.row(positions_[usize(i)]);
    return {row, row + blocks.row_size()};
  }

  void selection() {
    if (!has({"index_score", "topk"})) return;
    const Tensor scores = golden("index_score");
    std::vector<float> lists, kept;
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::vector<float> row(scores.row(i), scores.row(i) + visible(i));
      std::vector<std::int32_t> list(usize(config_.index_top_k));
      engine::select_entries(ctx_, row, list.data());
      lists.insert(lists.end(), list.begin(), list.end());
      if (!ctx_.plan.writes_candidates) continue;
      const std::int64_t size = config_.candidate_block_size;
      std::vector<std::uint8_t> blocks;
      engine::candidate_pool(ctx_, row, blocks);
      if (blocks.empty()) blocks.assign(usize((visible(i) + size - 1) / size), 1);  // no limit
      blocks.resize(usize((scores.row_size() + size - 1) / size));
      kept.insert(kept.end(), blocks.begin(), blocks.end());
    }
    judge_at_positions("topk", lists);
    if (ctx_.plan.writes_candidates) judge_at_positions("candidate_blocks", kept);
  }

  // Against a golden tensor that has a row for every position of the prompt.
  void judge_at_positions(const std::string& name, const std::vector<float>& ours) {
    const Tensor all = golden(name);
    judge(name, ours, {{n_, all.row_size()}, gather(all, positions_)}, kExactly);
  }

  // Window KV before quantisation by position: what is recorded; and in the first layer, whose
  // input is the embedding of the token, all of it.
  std::map<std::int64_t, std::vector<float>> window_rows() const {
    std::map<std::int64_t, std::vector<float>> rows;
    if (layer_ == 0 && ctx_.plan.engram_slot < 0) {
      const std::vector<std::int64_t> ids = file_.integers("prompt_ids");
      const std::vector<TokenId> tokens(ids.begin(), ids.end());
      const auto n = static_cast<std::int64_t>(tokens.size());
      engine::Activations a(config_, n);
      engine::embed(*model_, tokens, 0, a);
      engine::collapse_and_norm(ctx_, a.h.data(), a.pre.data(), w_.attention_norm, n,
                                a.collapsed.data(), a.normed.data());
      for (std::int64_t p = 0; p < n; ++p) {
        rows[p] = copied(engine::window_kv(
            ctx_, w_.attention,
            LinearInput(ctx_, a.normed.data() + p * config_.dim, 1, config_.dim), {&p, 1}));
      }
    }
    const Tensor recorded = golden("window_kv_pre");
    for (std::int64_t i = 0; i < n_; ++i) rows[positions_[usize(i)]] = gather(recorded, {i});
    return rows;
  }

  void attention_core() {
    if (!has({"q", "window_kv_pre", "sparse_o"})) return;
    const engine::LayerPlan& plan = ctx_.plan;
    std::vector<std::byte> main_bytes;
    Tensor lists;
    if (plan.ratio > 0) {
      if (!has(plan.kv_source, {"compress_kv_pre"}) || !has(plan.index_source, {"topk"})) return;
      main_bytes = main_rows(plan.kv_source);
      lists = golden(plan.index_source, "topk");
    }
    const std::byte* main_page = main_bytes.data();
    const kernels::KvRows main{&main_page, ctx_.arithmetic.main_format};
    const Tensor q = golden("q"), expected = golden("sparse_o");
    const std::map<std::int64_t, std::vector<float>> known = window_rows();
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t p = positions_[usize(i)];
      std::vector<float> rows;
      std::vector<std::int32_t> slots, list;
      const std::int64_t first = std::max<std::int64_t>(0, p - config_.window + 1);
      for (std::int64_t at = first; at <= p && known.contains(at); ++at) {
        rows.insert(rows.end(), known.at(at).begin(), known.at(at).end());
        slots.push_back(static_cast<std::int32_t>(at - first));
      }
      if (static_cast<std::int64_t>(slots.size()) <= p - first) continue;  // a row is missing
      slots.resize(usize(config_.window), -1);
      const std::vector<std::byte> window =
          pack(ctx_.arithmetic.window_format, rows, config_.head_dim);
      if (plan.ratio > 0) list.assign(lists.row(p), lists.row(p) + lists.row_size());
      const std::vector<float> query = gather(q, {i});
      std::vector<float> o(query.size());
      engine::attend(ctx_, w_.attention, query.data(), 1, window.data(), slots.data(), main,
                     list.data(), o.data());
      judge("sparse_o", o, {{config_.n_heads, config_.head_dim}, gather(expected, {i})},
            activation(config_.head_dim));
    }
  }

  void streams() {
    if (has({"sparse_o", "attn_out"})) {
      std::vector<float> o = input("sparse_o"), y(usize(n_ * config_.dim));
      engine::attention_output(ctx_, w_.attention, o, positions_, y.data());
      judge("attn_out", y, activation(w_.attention.wo_a.cols + w_.attention.wo_b.cols));
    }
    if (has({"h_in"})) sublayer("hc_attn", w_.hc_attention, "h_in", "attn_out", "h_attn");
    if (has({"h_attn"})) sublayer("hc_ffn", w_.hc_ffn, "h_attn", "ffn_out", "h_out");
    if (has({"hc_ffn.pre", "pre_mix_out"})) {
      judge("pre_mix_out", input("hc_ffn.pre"), kExactly);  // handed on as it is
    }
    if (has({"h_attn", "hc_attn.pre", "ffn_x"})) {
      judge("ffn_x", collapsed_and_normed("h_attn", "hc_attn.pre", w_.ffn_norm),
            activation(config_.dim));
    }
  }

  // Coefficients of a sublayer from the stream before it, and the stream after it.
  void sublayer(const std::string& hc, const engine::HyperConnectionWeights& weights,
                const std::string& before, const std::string& out, const std::string& after) {
    const std::int64_t s = config_.hc_mult;
    std::vector<float> h = input(before);
    std::vector<float> pre(usize(n_ * s)), post(pre.size()), comb(usize(n_ * s * s));
    engine::mix(ctx_, weights, h.data(), n_, pre.data(), post.data(), comb.data());
    const double noise = projection_noise(weights, h);
    const auto limit = [&](int part, double factor) {
      return Limit{Rule::kCoefficient,
                   factor * std::fabs(double{weights.scale.data[part]}) * noise};
    };
    judge(hc + ".pre", pre, limit(0, 1));
    judge(hc + ".post", post, limit(1, 1));
    judge(hc + ".comb", comb, limit(2, 2));  // a softmax depends on differences of two
    if (!has({out, after})) return;
    if (has({hc + ".post", hc + ".comb"})) {
      post = input(hc + ".post");
      comb = input(hc + ".comb");
    }
    engine::expand(ctx_, input(out).data(), post.data(), comb.data(), n_, h.data());
    judge(after, h, activation(config_.hc_mult));
  }

  // What the order of an f32 sum leaves in a projection fn_i . v / rms(v). A sigmoid or softmax of
  // scale times it makes no more of it than |scale| times that, relative. Against the formulas in
  // f64 the recorded coefficients of the tiny cases are off by up to 2.2e-6 (pre), 2.0e-6 (post)
  // and 3.4e-6 (comb), ours by 3.5e-7, 2.8e-7 and 1.3e-6.
  double projection_noise(const engine::HyperConnectionWeights& weights,
                          const std::vector<float>& h) const {
    const std::int64_t width = weights.fn.cols;
    double largest = 0;
    for (std::int64_t row = 0; row < n_; ++row) {
      const float* v = h.data() + row * width;
      double mean_square = 0;
      for (std::int64_t k = 0; k < width; ++k) {
        mean_square += double{v[k]} * double{v[k]} / static_cast<double>(width);
      }
      for (std::int64_t i = 0; i < weights.fn.rows; ++i) {
        double square = 0;
        for (std::int64_t k = 0; k < width; ++k) {
          const double term = double{weights.fn.data[i * width + k]} * double{v[k]};
          square += term * term;
        }
        largest = std::max(largest, std::sqrt(square / mean_square));
      }
    }
    return largest * f32_sum_noise(width);
  }

  void experts() {
    if (!has({"ffn_x"})) return;
    const std::vector<float> x = input("ffn_x");
    const engine::Routing routing = engine::route(ctx_, w_.moe, x.data(), n_);
    judge("router_biased", routing.biased, f32_sums(config_.dim));
    judge("expert_ids", std::vector<float>(routing.ids.begin(), routing.ids.end()), kExactly);
    judge("expert_weights", routing.weights, f32_sums(config_.dim));
    if (!has({"ffn_out"})) return;
    std::vector<float> y(x.size());
    engine::moe(ctx_, w_.moe, x.data(), n_, y.data());
    judge("ffn_out", y, activation(config_.dim + config_.expert_dim));
  }

  // --- Draft stages ---------------------------------------------------------------------------

  // The key of the newest position, from what the target layers saw there.
  void ring() {
    if (!file_.has("dspark_first.main_hidden") || !has({"main_kv"})) return;
    const engine::DraftWeights& w = model_->weights().draft;
    const Tensor hidden = file_.tensor("dspark_first.main_hidden");
    std::vector<float> u(usize(config_.dim));
    engine::linear(ctx_, LinearInput(ctx_, hidden.values.data(), 1, w.main_proj.cols), w.main_proj,
                   u.data());
    ctx_.k.rms_norm(ctx_.run, {.x = u.data(),
                               .rows = 1,
                               .dim = config_.dim,
                               .x_stride = config_.dim,
                               .weight = w.main_norm.data,
                               .eps = config_.norm_eps,
                               .out = u.data(),
                               .out_stride = config_.dim,
                               .round_bf16 = ctx_.arithmetic.round_bf16});
    const std::int64_t newest = positions_[0] - 1;
    judge("main_kv",
          stored(engine::window_kv(ctx_, w_.attention, LinearInput(ctx_, u.data(), 1, config_.dim),
                                   {&newest, 1})),
          activation(w.main_proj.cols));
  }

  // Rows as a window keeps them.
  std::vector<float> stored(const engine::StepVector<float>& kv) const {
    const RowFormat format = ctx_.arithmetic.window_format;
    return unpack(format, pack(format, copied(kv), config_.head_dim), config_.head_dim).values;
  }

  void block_attention() {
    if (layer_ > 0 && has(stage_prefix(layer_ - 1), {"pre_mix_out"}) && has({"h_in", "attn_x"})) {
      const Tensor pre = file_.tensor(stage_prefix(layer_ - 1) + "pre_mix_out");
      judge("attn_x", collapsed_and_normed("h_in", pre.values, w_.attention_norm),
            activation(config_.dim));
    }
    if (!has({"attn_x", "q", "main_kv", "block_kv", "window_cache", "sparse_o"})) return;
    const std::vector<float> x = input("attn_x");
    const LinearInput rows = linear_input(x);
    judge("block_kv", stored(engine::window_kv(ctx_, w_.attention, rows, positions_)),
          activation(config_.dim));
    const engine::StepVector<float> qr = engine::low_rank_queries(ctx_, w_.attention, rows);
    judge("q", engine::head_queries(ctx_, w_.attention, linear_input(copied(qr)), positions_),
          activation(config_.dim));
    // The ring's rows in the order of their positions, then the block's; all see all.
    const Tensor ring = golden("window_cache"), block = golden("block_kv");
    // The f32c files have the ring of a later step, without this key.
    if (gather(ring, {(positions_[0] - 1) % ring.rows()}) != input("main_kv")) return;
    const std::int64_t n_context = std::min(ring.rows(), positions_[0]);
    std::vector<std::int64_t> places;
    for (std::int64_t p = positions_[0] - n_context; p < positions_[0]; ++p) {
      places.push_back(p % ring.rows());
    }
    std::vector<float> kv = gather(ring, places);
    kv.insert(kv.end(), block.values.begin(), block.values.end());
    const std::vector<std::byte> window = pack(ctx_.arithmetic.window_format, kv, config_.head_dim);
    std::vector<std::int32_t> slots(usize(n_ * config_.window), -1);
    for (std::int64_t i = 0; i < n_; ++i) {
      const auto of_row = slots.begin() + static_cast<std::ptrdiff_t>(i * config_.window);
      std::iota(of_row, of_row + static_cast<std::ptrdiff_t>(n_context + n_), 0);
    }
    const std::vector<float> q = input("q");
    std::vector<float> o(q.size());
    engine::attend(ctx_, w_.attention, q.data(), n_, window.data(), slots.data(), {}, nullptr,
                   o.data());
    judge("sparse_o", o, activation(config_.head_dim));
  }

  // Where the coefficients of a sublayer are not recorded: ours, from the stream before it.
  void block_streams() {
    if (!has({"h_in", "h_attn", "ffn_x", "pre_mix_out"})) return;
    judge("ffn_x", collapsed_and_normed("h_attn", pre_of(w_.hc_attention, "h_in"), w_.ffn_norm),
          activation(config_.dim));
    judge("pre_mix_out", pre_of(w_.hc_ffn, "h_attn"),
          {Rule::kCoefficient, std::fabs(double{w_.hc_ffn.scale.data[0]}) *
                                   projection_noise(w_.hc_ffn, input("h_attn"))});
  }
  std::vector<float> pre_of(const engine::HyperConnectionWeights& weights,
                            const std::string& before) const {
    const std::int64_t s = config_.hc_mult;
    std::vector<float> pre(usize(n_ * s)), post(pre.size()), comb(usize(n_ * s * s));
    engine::mix(ctx_, weights, input(before).data(), n_, pre.data(), post.data(), comb.data());
    return pre;
  }

  const ModelPtr& model_;
  const CaseFile& file_;
  Agreement& agreement_;
  const int layer_;  // or stage
  const std::string prefix_;
  const engine::LayerContext ctx_;
  const engine::ModelConfig& config_;
  const engine::LayerWeights& w_;
  const std::vector<std::int64_t> positions_;
  const std::int64_t n_;
  std::map<std::int64_t, std::int64_t> row_of_position_;
};

// Final collapse, norm and head, from the last layer's golden output.
void compare_head(const ModelPtr& model, const CaseFile& file, Agreement& agreement) {
  const engine::ModelConfig& config = model->config();
  const engine::LayerContext ctx =
      model->layer_context(config.n_layers - 1, model->runtime()->compute());
  const auto n = static_cast<std::int64_t>(file.detail_positions().size());
  const Limit limit = ctx.arithmetic.round_bf16 ? Limit{Rule::kBf16} : f32_sums(config.dim);
  const auto judge = [&](const std::string& name, const std::vector<float>& ours,
                         const Tensor& golden, Limit by) {
    if (golden.rows() != n || ours.size() != golden.values.size()) {
      return agreement.require("layer " + name + " size", false);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      agreement.compare("layer " + name, by.rule, ours.data() + i * golden.row_size(),
                        golden.row(i), golden.row_size(), by.noise);
    }
  };
  const auto collapse_and_norm = [&](const std::vector<float>& h, const std::vector<float>& pre,
                                     std::vector<float>& normed) {
    std::vector<float> collapsed(usize(n * config.dim));
    normed.resize(collapsed.size());
    engine::collapse_and_norm(ctx, h.data(), pre.data(), model->weights().norm, n, collapsed.data(),
                              normed.data());
    return collapsed;
  };
  const std::string last = "layers." + std::to_string(config.n_layers - 1) + ".";
  std::vector<float> normed;
  if (file.has(last + "h_out") && file.has(last + "pre_mix_out") && file.has("final_collapsed")) {
    judge("final_collapsed",
          collapse_and_norm(file.tensor(last + "h_out").values,
                            file.tensor(last + "pre_mix_out").values, normed),
          file.tensor("final_collapsed"), limit);
  }
  if (!file.has("final_norm")) return;
  const Tensor final_norm = file.tensor("final_norm");
  if (file.has("final_collapsed")) {
    // The collapse of (x, 0, ...) by (1, 0, ...) is x.
    const Tensor x = file.tensor("final_collapsed");
    std::vector<float> h(usize(n * config.hc_mult * config.dim)), pre(usize(n * config.hc_mult));
    for (std::int64_t i = 0; i < n; ++i) {
      std::copy_n(x.row(i), config.dim, h.data() + i * config.hc_mult * config.dim);
      pre[usize(i * config.hc_mult)] = 1.0f;
    }
    collapse_and_norm(h, pre, normed);
    judge("final_norm", normed, final_norm, limit);
  }
  if (file.has("prefill_logits_positions")) return;  // rows of other positions
  std::vector<float> logits(usize(n * config.vocab_size));
  engine::linear(ctx, final_norm.values.data(), n, model->weights().head, logits.data(),
                 /*rounded=*/false);
  judge("logits", logits,
        {{n, config.vocab_size}, gather(file.tensor("prefill_logits"), file.detail_positions())},
        {Rule::kNear});
}

}  // namespace

Status compare_layers(const ModelPtr& model, const CaseFile& file, Agreement& agreement) {
  if (file.detail_positions().empty()) return {};
  for (int layer = 0; layer < model->config().n_layers; ++layer) {
    LayerTerms::of_layer(model, file, layer, agreement).compare();
  }
  for (int stage = 0; stage < model->config().n_draft_stages; ++stage) {
    LayerTerms::of_stage(model, file, stage, agreement).compare_stage();
  }
  compare_head(model, file, agreement);
  return {};
}

}  // namespace cairn::golden
