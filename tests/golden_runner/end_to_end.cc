// Whole runs against golden logits. Reference arithmetic diverges after the first code that an f32
// sum in another order flips, so there only argmax agreement is judged.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>

#include "engine/engram.h"
#include "engine/forward.h"
#include "engine/layer.h"
#include "engine/moe.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "tests/golden_runner/runner.h"

namespace cairn::golden {
namespace {

using engine::DecoderPass;
using engine::Sequence;

// Prompts up to here keep 95 % of f32c positions under 1e-2; in longer ones flipped codes spread.
constexpr std::int64_t kShortPrompt = 256;

std::int64_t argmax(std::span<const float> x) {
  return std::max_element(x.begin(), x.end()) - x.begin();
}

std::vector<TokenId> tokens_of(const std::vector<std::int64_t>& ids) {
  return {ids.begin(), ids.end()};
}

// Judges rows of logits by the rules of the mode.
class LogitsJudge {
 public:
  LogitsJudge(const ModelPtr& model, std::int64_t prompt_length, Agreement& agreement)
      : numerics_(model->options().numerics),
        short_prompt_(prompt_length <= kShortPrompt),
        agreement_(agreement) {}

  void row(const std::string& kind, std::span<const float> ours, const float* golden) {
    const auto n = static_cast<std::int64_t>(ours.size());
    const bool f32 = numerics_ == Numerics::kF32;
    agreement_.compare(kind, f32 ? Rule::kNear : Rule::kReport, ours.data(), golden, n);
    const double least = f32 ? 1.0 : numerics_ == Numerics::kF32Cache ? 0.98 : 0.80;
    agreement_.share("argmax", argmax(ours) == argmax({golden, ours.size()}), 1, least);
    if (numerics_ != Numerics::kF32Cache || !short_prompt_) return;
    double largest = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      largest = std::max(largest, std::fabs(double{ours[i]} - double{golden[i]}));
    }
    agreement_.share(kind + " under 1e-2", largest < 1e-2, 1, 0.95);
  }

 private:
  Numerics numerics_;
  bool short_prompt_;
  Agreement& agreement_;
};

std::span<const float> row_of(std::span<const float> rows, std::int64_t row, std::int64_t width) {
  return rows.subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
}

// The draft after `anchor` against a row of golden ids (the anchor first) and confidences.
Status compare_draft(const Sequence& sequence, TokenId anchor, const float* ids,
                     const float* confidence, Agreement& agreement) {
  const bool judged = sequence.model().options().numerics == Numerics::kF32;
  engine::DraftProposal draft;
  CAIRN_RETURN_IF_ERROR(sequence.propose(anchor, draft));
  std::size_t n_equal = 0;
  while (n_equal < draft.tokens.size() && draft.tokens[n_equal] == ids[n_equal + 1]) ++n_equal;
  const auto n = static_cast<std::int64_t>(draft.tokens.size());
  agreement.share("draft ids", static_cast<std::int64_t>(n_equal), n, judged ? 1.0 : 0.0);
  // A confidence looks at the token before: up to the first other one they are comparable.
  agreement.compare("draft confidence", judged ? Rule::kNear : Rule::kReport,
                    draft.confidence.data(), confidence,
                    std::min(n, static_cast<std::int64_t>(n_equal) + 1));
  return {};
}

Status compare_first_draft(const Sequence& sequence, const CaseFile& file, Agreement& agreement) {
  if (!file.has("dspark_first.ids")) return {};
  const auto anchor = static_cast<TokenId>(file.integers("greedy_ids")[0]);
  const bool judged = sequence.model().options().numerics == Numerics::kF32;
  engine::DraftProposal draft;
  CAIRN_RETURN_IF_ERROR(sequence.propose(anchor, draft));
  agreement.compare("draft logits", judged ? Rule::kNear : Rule::kReport, draft.logits.data(),
                    file.tensor("dspark_first.logits").values.data(),
                    static_cast<std::int64_t>(draft.logits.size()));
  return compare_draft(sequence, anchor, file.tensor("dspark_first.ids").values.data(),
                       file.tensor("dspark_first.confidence").values.data(), agreement);
}

Status decode_along(Sequence& sequence, const CaseFile& file, const std::string& prefix,
                    LogitsJudge& judge, Agreement& agreement) {
  const bool drafts = file.has(prefix + "dspark.ids");
  const Tensor ids = drafts ? file.tensor(prefix + "dspark.ids") : Tensor{};
  const Tensor confidence = drafts ? file.tensor(prefix + "dspark.confidence") : Tensor{};
  const std::vector<std::int64_t> greedy = file.integers(prefix + "greedy_ids");
  const Tensor golden = file.tensor(prefix + "decode_logits");
  for (std::int64_t step = 0; step < golden.rows(); ++step) {
    CAIRN_RETURN_IF_ERROR(
        sequence.decode(static_cast<TokenId>(greedy[static_cast<std::size_t>(step)])));
    judge.row("decode_logits", sequence.logits(), golden.row(step));
    if (!drafts || step >= ids.rows()) continue;
    CAIRN_RETURN_IF_ERROR(compare_draft(sequence, static_cast<TokenId>(ids.row(step)[0]),
                                        ids.row(step), confidence.row(step), agreement));
  }
  return {};
}

// Our prefill of prompt and decoded tokens in one go against our step by step, bit for bit.
Status compare_prefill_with_decode(const ModelPtr& model, const Sequence& decoded,
                                   Agreement& agreement) {
  Sequence at_once(model);
  CAIRN_RETURN_IF_ERROR(at_once.prefill(decoded.tokens()));
  agreement.compare("own prefill = own decode", Rule::kExact, at_once.logits().data(),
                    decoded.logits().data(), static_cast<std::int64_t>(decoded.logits().size()));
  return {};
}

void compare_ids(const CaseFile& file, const std::string& name, const std::string& kind,
                 std::span<const float> ours, bool judged, Agreement& agreement) {
  const Tensor golden = file.tensor(name);
  std::int64_t good = 0;
  const auto n = static_cast<std::int64_t>(std::min(ours.size(), golden.values.size()));
  for (std::int64_t i = 0; i < n; ++i) {
    good += ours[static_cast<std::size_t>(i)] == golden.values[static_cast<std::size_t>(i)];
  }
  agreement.share(kind, good, n, judged && ours.size() == golden.values.size() ? 1.0 : 0.0);
}

// One pass over the whole prompt, layer by layer, comparing what each layer chose.
void compare_selections(const ModelPtr& model, const CaseFile& file,
                        const std::vector<TokenId>& prompt, Agreement& agreement) {
  const engine::ModelConfig& config = model->config();
  const auto n = static_cast<std::int64_t>(prompt.size());
  const bool judged = model->options().numerics == Numerics::kF32;
  engine::PlanRequest request;
  request.live = {0, true, true};
  request.end = n;
  request.decoder = DecoderPass::kFull;
  const engine::PassPlan plan = engine::make_plan(config, request);
  engine::Activations a(config, n);
  engine::KvCache cache(config, model->arithmetic());
  std::vector<std::int32_t> classes;
  if (model->engram()) {
    for (const TokenId id : prompt) {
      classes.push_back(model->engram()->classes[static_cast<std::size_t>(id)]);
    }
  }
  engine::embed(*model, prompt, 0, a);
  const engine::ChunkPart part{0, 0, n, &cache, &classes};
  const engine::Chunk chunk{n, {&part, 1}, model->engram()};
  for (int l = 0; l < config.n_layers; ++l) {
    const std::string prefix = "layers." + std::to_string(l) + ".";
    const engine::LayerContext ctx = model->layer_context(l, model->runtime()->compute());
    const engine::LayerWeights& w = model->weights().layers[static_cast<std::size_t>(l)];
    engine::layer(ctx, w, l, engine::active_rows(plan.layers[static_cast<std::size_t>(l)], 0, n),
                  chunk, a);
    if (file.has(prefix + "all_hash_ids")) {
      const auto ids = engine::engram_row_ids(ctx, *model->engram(), classes, 0, n);
      compare_ids(file, prefix + "all_hash_ids", "engram row ids",
                  std::vector<float>(ids.begin(), ids.end()), true, agreement);
    }
    if (file.has(prefix + "topk")) {
      compare_ids(file, prefix + "topk", "selected entries",
                  std::vector<float>(a.top_k.begin(), a.top_k.end()), judged, agreement);
    }
    if (file.has(prefix + "all_expert_ids")) {
      const engine::Routing routing = engine::route(ctx, w.moe, a.normed.data(), n);
      compare_ids(file, prefix + "all_expert_ids", "chosen experts",
                  std::vector<float>(routing.ids.begin(), routing.ids.end()), judged, agreement);
    }
  }
}

}  // namespace

Status compare_end_to_end(const ModelPtr& model, const CaseFile& file, Agreement& agreement) {
  const std::vector<TokenId> prompt = tokens_of(file.integers("prompt_ids"));
  const auto n = static_cast<std::int64_t>(prompt.size());
  LogitsJudge judge(model, n, agreement);
  Sequence sequence(model);
  CAIRN_RETURN_IF_ERROR(
      sequence.prefill(prompt, {.decoder = DecoderPass::kFull, .logits_from = 0}));
  const Tensor golden = file.tensor("prefill_logits");
  std::vector<std::int64_t> positions = file.integers("prefill_logits_positions");
  if (positions.empty()) {
    positions.resize(prompt.size());
    std::iota(positions.begin(), positions.end(), 0);
  }
  if (golden.rows() != static_cast<std::int64_t>(positions.size())) {
    return corrupt("prefill_logits has " + std::to_string(golden.rows()) + " rows, expected " +
                   std::to_string(positions.size()));
  }
  const std::int64_t vocab = model->config().vocab_size;
  for (std::int64_t i = 0; i < golden.rows(); ++i) {
    judge.row("prefill_logits",
              row_of(sequence.logits_rows(), positions[static_cast<std::size_t>(i)], vocab),
              golden.row(i));
  }
  Sequence halo(model);
  CAIRN_RETURN_IF_ERROR(halo.prefill(prompt));
  agreement.compare("own halo = own full pass", Rule::kExact, halo.logits().data(),
                    sequence.logits().data(), vocab);
  CAIRN_RETURN_IF_ERROR(compare_first_draft(halo, file, agreement));
  CAIRN_RETURN_IF_ERROR(decode_along(halo, file, "", judge, agreement));
  CAIRN_RETURN_IF_ERROR(compare_prefill_with_decode(model, halo, agreement));
  compare_selections(model, file, prompt, agreement);
  return {};
}

Status compare_lengths(const ModelPtr& model, const CaseFile& file, Agreement& agreement) {
  const std::vector<TokenId> tokens = tokens_of(file.integers("tokens"));
  for (std::size_t n = 1; n <= tokens.size(); ++n) {
    const std::string prefix = "n" + std::to_string(n) + ".";
    if (!file.has(prefix + "prefill_logits")) continue;
    LogitsJudge judge(model, static_cast<std::int64_t>(n), agreement);
    Sequence sequence(model);
    CAIRN_RETURN_IF_ERROR(sequence.prefill(std::span(tokens).first(n)));
    const Tensor golden = file.tensor(prefix + "prefill_logits");
    judge.row("prefill_logits", sequence.logits(), golden.row(golden.rows() - 1));
    CAIRN_RETURN_IF_ERROR(decode_along(sequence, file, prefix, judge, agreement));
    CAIRN_RETURN_IF_ERROR(compare_prefill_with_decode(model, sequence, agreement));
  }
  return {};
}

namespace {

using Ring = std::vector<float>;  // [window, head_dim] by slot
using Rings = std::vector<Ring>;  // by layer

Rings rings_of(const Sequence& sequence) {
  const engine::KvCache& cache = sequence.cache();
  const engine::ModelConfig& config = sequence.model().config();
  Rings rings;
  for (int l = 0; l < config.n_layers; ++l) {
    Ring& ring = rings.emplace_back(static_cast<std::size_t>(config.window * config.head_dim));
    for (std::int64_t slot = 0; slot < config.window; ++slot) {
      kernels::decode_row(sequence.model().arithmetic().window_format,
                          cache.window(l).rows.data() + slot * cache.window_row_bytes(),
                          config.head_dim, ring.data() + slot * config.head_dim);
    }
  }
  return rings;
}

double distance(const Ring& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

// The recorded rings are views of buffers that went on being used: some hold the state after the
// scenario's decode steps, the decoder half's the state after the last scenario. Each is compared
// with the nearest of the states it can be.
void compare_rings(const CaseFile& file, const std::string& prefix,
                   const std::vector<const Rings*>& states, Rule rule, Agreement& agreement) {
  for (std::size_t l = 0; l < states.front()->size(); ++l) {
    const std::string name = prefix + "ring." + std::to_string(l);
    if (!file.has(name)) continue;
    const Tensor golden = file.tensor(name);
    const Rings* nearest =
        *std::min_element(states.begin(), states.end(), [&](const Rings* a, const Rings* b) {
          return distance((*a)[l], golden.values) < distance((*b)[l], golden.values);
        });
    agreement.compare("window rings", rule, (*nearest)[l].data(), golden.values.data(),
                      static_cast<std::int64_t>(golden.values.size()));
  }
}

// The last of n rows.
void compare_new_rows(const CaseFile& file, const std::string& name, const kernels::KvRows& rows,
                      std::int64_t n, std::int64_t dim, const std::string& kind, Rule rule,
                      Agreement& agreement) {
  const Tensor golden = file.tensor(name);
  const std::int64_t bytes = kernels::row_bytes(rows.format, dim);
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (std::int64_t i = 0; i < golden.rows(); ++i) {
    kernels::decode_row(rows.format, rows.row(n - golden.rows() + i, bytes), dim, row.data());
    agreement.compare(kind, rule, row.data(), golden.row(i), dim);
  }
}

}  // namespace

Status compare_replay(const ModelPtr& model, const CaseFile& file, Agreement& agreement) {
  const engine::ModelConfig& config = model->config();
  const std::vector<TokenId> prompt = tokens_of(file.integers("prompt_ids"));
  const auto n = static_cast<std::int64_t>(prompt.size());
  const Rule rule = model->options().numerics == Numerics::kF32 ? Rule::kNear : Rule::kReport;
  LogitsJudge judge(model, n, agreement);
  std::map<std::string, std::vector<Rings>>
      ring_states;  // after the replay, after its decode steps
  std::string last_scenario;

  const auto judge_replay = [&](Sequence& sequence, const std::string& prefix) -> Status {
    last_scenario = prefix;
    const Tensor golden = file.tensor(prefix + "logits");
    const std::span<const float> rows = sequence.logits_rows();
    const std::int64_t ours = static_cast<std::int64_t>(rows.size()) / config.vocab_size;
    agreement.require(prefix + "rows", ours >= golden.rows());
    for (std::int64_t i = 0; i < golden.rows() && ours >= golden.rows(); ++i) {
      judge.row(prefix + "logits", row_of(rows, ours - golden.rows() + i, config.vocab_size),
                golden.row(i));
    }
    ring_states[prefix].push_back(rings_of(sequence));
    CAIRN_RETURN_IF_ERROR(decode_along(sequence, file, prefix, judge, agreement));
    ring_states[prefix].push_back(rings_of(sequence));
    return {};
  };

  Sequence full(model);
  CAIRN_RETURN_IF_ERROR(full.prefill(prompt));
  judge.row("full_last_logits", full.logits(), file.tensor("full_last_logits").values.data());

  for (const auto& [prefix, pass] :
       {std::pair<std::string, DecoderPass>{"decoder_replay.", DecoderPass::kReplay},
        {"decoder_replay_first_layer_full.", DecoderPass::kReplayFirstLayerFull}}) {
    if (!file.has(prefix + "logits")) continue;
    Sequence sequence(model);
    CAIRN_RETURN_IF_ERROR(sequence.prefill(prompt, {.decoder = pass, .logits_from = 0}));
    CAIRN_RETURN_IF_ERROR(judge_replay(sequence, prefix));
  }

  if (file.has("encoder_replay.logits")) {
    // The prefix hit: as many rows as the file holds beyond one window before it.
    const std::int64_t rerun = file.tensor("encoder_replay.pre").rows();
    const std::int64_t hit = n - rerun + config.window;
    Sequence sequence(model);
    CAIRN_RETURN_IF_ERROR(sequence.prefill(std::span(prompt).first(static_cast<std::size_t>(hit))));
    sequence.forget_windows();
    CAIRN_RETURN_IF_ERROR(sequence.prefill(std::span(prompt).subspan(static_cast<std::size_t>(hit)),
                                           {.bounded_restore = true, .logits_from = 0}));
    for (const engine::GlobalKv& kv : sequence.cache().sources()) {
      const std::string layer = std::to_string(kv.layer);
      compare_new_rows(file, "encoder_replay.compress_kv." + layer, sequence.cache().main_rows(kv),
                       kv.n_entries, config.head_dim, "new main KV", rule, agreement);
      compare_new_rows(file, "encoder_replay.index_k." + layer, sequence.cache().index_rows(kv),
                       kv.n_entries, config.index_head_dim, "new index keys", rule, agreement);
    }
    CAIRN_RETURN_IF_ERROR(judge_replay(sequence, "encoder_replay."));

    // Deep replay of the same hit must equal the run that never lost its windows.
    Sequence deep(model);
    CAIRN_RETURN_IF_ERROR(deep.prefill(std::span(prompt).first(static_cast<std::size_t>(hit))));
    deep.forget_windows();
    CAIRN_RETURN_IF_ERROR(deep.prefill(std::span(prompt).subspan(static_cast<std::size_t>(hit))));
    agreement.compare("own deep replay = own full", Rule::kExact, deep.logits().data(),
                      full.logits().data(), config.vocab_size);
  }
  for (const auto& [prefix, states] : ring_states) {
    std::vector<const Rings*> candidates{&ring_states[last_scenario].back()};
    for (const Rings& state : states) candidates.push_back(&state);
    compare_rings(file, prefix, candidates, rule, agreement);
  }
  return {};
}

}  // namespace cairn::golden
