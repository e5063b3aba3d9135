// Everything runs on the strand of a runtime of its own, as turns do. Steps are those of the
// engine, through a kernel table that counts; nothing is done for measuring that a turn would not
// do.
#include "cairn/bench.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "engine/decode_batch.h"
#include "engine/forward.h"
#include "engine/layer.h"
#include "engine/linear.h"
#include "engine/loaded_model.h"
#include "engine/released_shape.h"
#include "engine/runtime.h"
#include "engine/sizes.h"
#include "engine/step_profile.h"
#include "engine/synthetic_sequence.h"
#include "kernels/machine_limits.h"

namespace cairn {
namespace engine {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What a repetition of several is at least, so that the counters of the system can judge it.
constexpr double kRepetitionMs = 120;

class Bench {
 public:
  Bench(const BenchOptions& options, std::shared_ptr<LoadedModel> model)
      : options_(options), model_(std::move(model)), profile_(model_->kernels(), model_->config()) {
    model_->use_kernels(profile_.counting_kernels());
  }

  Result<BenchReport> run() {
    limits();
    products();
    const std::vector<std::int64_t> contexts = block_contexts();
    if (!contexts.empty()) {
      say("KV of " + std::to_string(contexts.back()) + " tokens");
      pages_ = synthetic_pages(*model_, contexts.back() / kBlockTokens, /*seed=*/2);
    }
    for (const std::int64_t context : contexts) CAIRN_RETURN_IF_ERROR(decode(context));
    if (!contexts.empty()) {
      const std::int64_t context = contexts[std::min<std::size_t>(1, contexts.size() - 1)];
      if (options_.n_sessions > 1) CAIRN_RETURN_IF_ERROR(decode_together_at(context));
      if (model_->has_drafts()) CAIRN_RETURN_IF_ERROR(drafts(context));
    }
    if (options_.prefill_rows > 0) {
      for (const std::int64_t context : contexts) prefill_layers(context, context == contexts[0]);
    }
    return std::move(report_);
  }

 private:
  void say(const std::string& text) {
    if (options_.progress) options_.progress(text);
  }

  // Whole blocks, ascending, with room for the steps that follow.
  std::vector<std::int64_t> block_contexts() const {
    const std::int64_t room = kBlockTokens + options_.prefill_rows;
    std::vector<std::int64_t> contexts;
    for (const std::int64_t wanted : options_.contexts) {
      std::int64_t context = std::min<std::int64_t>(wanted, model_->config().max_positions - room);
      context = context / kBlockTokens * kBlockTokens;
      if (context < kBlockTokens || 2 * context < wanted) continue;
      contexts.push_back(context);
    }
    std::ranges::sort(contexts);
    return contexts;
  }

  void limits() {
    say("limits of the machine");
    kernels::Context& run = model_->runtime()->compute();
    limits_ = kernels::measure_arithmetic_peaks(run, options_.repetitions);
    limits_.insert(limits_.begin(), kernels::measure_read_bandwidth(run, options_.repetitions));
    for (const kernels::MachineLimit& limit : limits_) {
      report_.limits.push_back({limit.name, limit.instruction_set, limit.unit, limit.value.median,
                                limit.value.n_kept, limit.value.n_dropped});
    }
    report_.n_threads = run.n_threads();
    report_.weight_bytes = model_->synthetic_weights()->allocated_bytes();
    report_.expert_bytes = model_->synthetic_weights()->expert_pool_bytes();
    report_.kv_bytes_per_token = model_->info().global_kv_bytes_per_token;
  }

  // --- Bounds

  double memory_ms(double bytes) const { return bytes / kernels::largest(limits_, "read") / 1e6; }

  // Products of codes are bound by the widest integer products, all else by f32 multiply-adds.
  double arithmetic_ms(StepPart part, double multiply_adds) const {
    const bool is_integer = part == StepPart::kExperts || part == StepPart::kDense ||
                            part == StepPart::kIndexer || part == StepPart::kEngram;
    const double giga_per_s = is_integer ? std::max(kernels::largest(limits_, "pmaddwd"),
                                                    kernels::largest(limits_, "vpdpwssd"))
                                         : kernels::largest(limits_, "f32_fma") / 2;
    const double f32 = kernels::largest(limits_, "f32_fma") / 2;
    return multiply_adds / std::max(giga_per_s, f32) / 1e6;
  }

  // The measure of repetitions of `step`, each of them as many steps as take long enough to be
  // judged, but not more than `max_steps`. `go_back`, which is not timed, is called before each.
  template <class Step, class GoBack>
  BenchMeasure measured(BenchMeasure measure, const Step& step, int max_steps,
                        const GoBack& go_back) {
    step();  // warm: memory of the step, caches of the system
    const Clock::time_point start = Clock::now();
    step();
    const int n_steps =
        static_cast<int>(std::clamp<double>(kRepetitionMs / ms_since(start), 1, max_steps));
    profile_.reset();
    int n_done = 0;
    const kernels::Measured of_steps =
        kernels::measure(options_.repetitions, 3 * options_.repetitions, [&] {
          go_back();
          const Clock::time_point begin = Clock::now();
          for (int i = 0; i < n_steps; ++i) step();
          n_done += n_steps;
          return ms_since(begin) / n_steps;
        });
    measure.ms = of_steps.median;
    measure.n_kept = of_steps.n_kept;
    measure.n_dropped = of_steps.n_dropped;
    add_parts(measure, n_done);
    return measure;
  }
  template <class Step>
  BenchMeasure measured(BenchMeasure measure, const Step& step) {
    return measured(std::move(measure), step, std::numeric_limits<int>::max(), [] {});
  }

  // Every step of decode adds a token, so a repetition that is to say something about `context`
  // ends before it has grown by an eighth and the next one starts at it again.
  static int max_decode_steps(std::int64_t context) {
    return static_cast<int>(std::max<std::int64_t>(1, context / 8));
  }

  // Shares of the time of all repetitions, scaled to the median's.
  void add_parts(BenchMeasure& measure, int n_steps) const {
    double known_ms = 0;
    for (int i = 0; i < static_cast<int>(StepPart::kCount); ++i) {
      const auto part = static_cast<StepPart>(i);
      const PartCost& cost = profile_.part(part);
      if (cost.n_calls == 0) continue;
      const BenchPart of_step{step_part_name(part), cost.seconds * 1e3 / n_steps,
                              cost.bytes / n_steps, cost.multiply_adds / n_steps};
      known_ms += of_step.ms;
      measure.bytes += of_step.bytes;
      measure.multiply_adds += of_step.multiply_adds;
      measure.bound_ms +=
          std::max(memory_ms(of_step.bytes), arithmetic_ms(part, of_step.multiply_adds));
      measure.parts.push_back(of_step);
    }
    measure.memory_ms = memory_ms(measure.bytes);
    measure.parts.push_back({"rest", std::max(0.0, measure.ms - known_ms), 0, 0});
  }

  // --- Products of single matrices, a different one each time, so that they come from memory

  void products() {
    const StepMemory::Scope scope(model_->activations().memory);
    const std::vector<LayerWeights>& layers = model_->weights().layers;
    const std::int64_t dim = model_->config().dim;
    const LayerContext ctx = model_->layer_context(0, model_->runtime()->compute());
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{128}}) {
      say("products of " + std::to_string(rows) + " rows");
      const std::vector<float> x(usize(rows * dim), 0.37f);
      const LinearInput input(ctx, x.data(), rows, dim);
      std::vector<float> y(
          usize(rows * std::int64_t{model_->config().n_heads} * model_->config().head_dim));
      std::size_t next = 0;
      BenchMeasure measure{.name = "product", .what = "FP4 expert w1", .rows = rows};
      report_.measures.push_back(measured(measure, [&] {
        const std::vector<ExpertWeights>& experts = layers[next % layers.size()].moe.experts;
        linear(ctx, input, experts[next / layers.size() % experts.size()].w1, y.data());
        ++next;
      }));
      measure.what = "FP8 shared expert w1";
      report_.measures.push_back(measured(measure, [&] {
        linear(ctx, input, layers[next++ % layers.size()].moe.shared.w1, y.data());
      }));
    }
  }

  // --- Decode

  Status decode(std::int64_t context) {
    say("decode after " + std::to_string(context) + " tokens");
    std::unique_ptr<Sequence> sequence;
    Status status;
    TokenId token = 100;
    const auto step = [&] {
      if (status.ok()) status = sequence->decode(next_token(token));
    };
    const auto go_back = [&] { begin_at(context, 0, sequence, status); };
    go_back();
    report_.measures.push_back(measured({.name = "decode", .what = "", .context = context}, step,
                                        max_decode_steps(context), go_back));
    return status;
  }

  Status decode_together_at(std::int64_t context) {
    const int n = std::min<int>(options_.n_sessions, kMaxDecodeRows);
    say("decode of " + std::to_string(n) + " sessions together");
    std::vector<std::unique_ptr<Sequence>> sequences(usize(n));
    Status status;
    TokenId token = 100;
    std::vector<DecodeRow> rows(usize(n));
    const auto go_back = [&] {
      for (int i = 0; i < n && status.ok(); ++i) {
        begin_at(context, i, sequences[usize(i)], status);
      }
    };
    const auto step = [&] {
      if (!status.ok()) return;
      for (int i = 0; i < n; ++i) {
        rows[usize(i)] = {sequences[usize(i)].get(), next_token(token), {}, Status()};
      }
      decode_together(rows);
      for (const DecodeRow& row : rows) {
        if (!row.status.ok()) status = row.status;
      }
    };
    go_back();
    report_.measures.push_back(
        measured({.name = "decode together", .what = "", .context = context, .rows = n}, step,
                 max_decode_steps(context), go_back));
    return status;
  }

  // A proposal, and a pass that verifies all of it and keeps one row, so that lengths stay what
  // they are. Made-up stages guess nothing; the tokens are those that other rows have.
  Status drafts(std::int64_t context) {
    const std::int64_t n = model_->config().draft_block;
    say("drafts: proposal, and verification of " + std::to_string(n));
    std::unique_ptr<Sequence> sequence;
    Status status;
    const auto go_back = [&] { begin_at(context, 0, sequence, status); };
    go_back();
    TokenId token = 100;
    DraftProposal proposal;
    report_.measures.push_back(
        measured({.name = "draft", .what = "", .context = context, .rows = n}, [&] {
          if (status.ok()) status = sequence->propose(next_token(token), proposal);
        }));
    std::vector<TokenId> draft_tokens(usize(n));
    const auto verify = [&] {
      if (!status.ok()) return;
      DecodeRow row;
      row.sequence = sequence.get();
      row.token = next_token(token);
      for (TokenId& draft : draft_tokens) draft = next_token(token);
      row.drafts = draft_tokens;
      decode_together({&row, 1});
      status = row.status;
      if (sequence->n_verified() > 0) sequence->accept(1);
    };
    report_.measures.push_back(
        measured({.name = "verify", .what = "", .context = context, .rows = 1 + n}, verify,
                 max_decode_steps(context), go_back));
    return status;
  }

  // Tokens all over the vocabulary: rows of experts as in uniform draws.
  TokenId next_token(TokenId& token) const {
    token = static_cast<TokenId>((std::int64_t{token} * 7919 + 101) %
                                 (model_->config().vocab_size - 3));
    return token + 3;
  }

  void begin_at(std::int64_t context, int index, std::unique_ptr<Sequence>& sequence,
                Status& status) const {
    auto made = synthetic_sequence(model_, std::span(pages_).first(usize(context / kBlockTokens)),
                                   /*seed=*/static_cast<std::uint64_t>(context + index));
    if (made.ok()) {
      sequence = std::move(*made);
    } else {
      status = made.status();
    }
  }

  // --- Prefill: one layer of each kind, on a chunk behind the context

  void prefill_layers(std::int64_t context, bool all_kinds) {
    const ModelConfig& config = model_->config();
    KvCache cache(config, model_->arithmetic());
    for (std::int64_t i = 0; i < context / kBlockTokens; ++i) cache.append_page(pages_[usize(i)]);
    Activations& a = model_->activations();
    const std::int64_t n = std::min<std::int64_t>(options_.prefill_rows, a.max_rows);
    std::vector<TokenId> tokens(usize(n));
    TokenId token = 100;
    for (TokenId& t : tokens) t = next_token(token);
    std::vector<std::int32_t> classes(usize(context + n), 1);
    const ChunkPart part{0, context, n, &cache, &classes};
    const Chunk chunk{n, {&part, 1}, model_->engram()};
    embed(*model_, tokens, 0, a);
    for (int index = 0; index < config.n_layers; ++index) {
      const LayerPlan& plan = config.plan[usize(index)];
      const std::string what = layer_kind(index);
      const bool depends_on_context =
          plan.mode == LayerMode::kFull || plan.mode == LayerMode::kReindex;
      if (what.empty() || !(all_kinds || depends_on_context)) continue;
      say("prefill of " + std::to_string(n) + " tokens after " + std::to_string(context) +
          ": layer " + std::to_string(index) + ", " + what);
      KvCache::OpenState before;
      const auto once = [&] {
        cache.save_open_state(context, n, before);
        layer(model_->layer_context(index, model_->runtime()->compute()),
              model_->weights().layers[usize(index)], index, ActiveRows{}, chunk, a);
        cache.go_back(before);
      };
      report_.measures.push_back(
          measured({.name = "prefill layer", .what = what, .context = context, .rows = n}, once));
    }
  }

  // Of the layers to measure: the first of each kind, in the order of the layers, so that each
  // finds the choices of entries that it uses.
  std::string layer_kind(int index) const {
    const ModelConfig& config = model_->config();
    const auto kind = [&](int i) {
      const LayerPlan& plan = config.plan[usize(i)];
      const std::string half = config.in_decoder(i) ? "decoder, " : "encoder, ";
      switch (plan.mode) {
        case LayerMode::kWindow:
          return half + "window only";
        case LayerMode::kFull:
          return half + "source of global KV";
        case LayerMode::kReindex:
          return half + "own index";
        case LayerMode::kReuse:
          break;
      }
      return half + "index of another";
    };
    const std::string of_this = kind(index);
    for (int i = 0; i < index; ++i) {
      if (kind(i) == of_this) return {};
    }
    return of_this;
  }

  const BenchOptions& options_;
  std::shared_ptr<LoadedModel> model_;
  StepProfile profile_;
  std::vector<kernels::MachineLimit> limits_;
  std::vector<KvPagePtr> pages_;
  BenchReport report_;
};

Result<BenchReport> run_on_strand(const BenchOptions& options, const Runtime& runtime) {
  const std::string json =
      options.config_json.empty() ? std::string(released_config_json()) : options.config_json;
  CAIRN_ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(json, nullptr));
  if (options.progress) options.progress("weights");
  ModelOptions model_options;
  model_options.prefill_chunk = options.prefill_rows;
  CAIRN_ASSIGN_OR_RETURN(auto model,
                         LoadedModel::synthetic(runtime.state(), config, model_options,
                                                {.seed = 1, .max_bytes = options.weight_bytes}));
  return Bench(options, std::move(model)).run();
}

}  // namespace
}  // namespace engine

Result<BenchReport> run_bench(const BenchOptions& options) {
  if (options.repetitions < 1 || options.prefill_rows < 0 || options.prefill_rows > 4096) {
    return invalid_argument("a bench has at least one repetition and 0 to 4096 rows of prefill");
  }
  CAIRN_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::create(options.runtime));
  std::promise<Result<BenchReport>> done;
  runtime.state()->post([&] {
    try {
      done.set_value(engine::run_on_strand(options, runtime));
    } catch (const std::bad_alloc&) {
      done.set_value(Status(StatusCode::kOutOfMemory, "no memory for the bench",
                            "give it less for weights, or shorter contexts"));
    } catch (const std::exception& e) {
      done.set_value(Status(StatusCode::kInternal, std::string("the bench failed: ") + e.what()));
    }
  });
  return done.get_future().get();
}

}  // namespace cairn
