#include "engine/loaded_model.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>

#include "engine/decode_batch.h"
#include "engine/model_info.h"
#include "engine/output_constraint.h"
#include "engine/prompt_markers.h"
#include "engine/rendered_prompt.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "kernels/rope.h"

namespace cairn::engine {
namespace {

// Changes when the same tokens and weights give other KV bytes: order of sums, rounding points, row
// layout.
constexpr std::string_view kNumericClass = "lanes-2";
constexpr std::string_view kPromptFormat = "dsv41-1";

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Status(StatusCode::kNotFound, "cannot read " + path,
                  "a checkpoint folder holds config.json, tokenizer.json and *.safetensors");
  }
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// For errors that name a file or a tensor of the checkpoint: a host may have several.
Status in_folder(const std::string& folder, const Status& status) {
  return {status.code(), folder + ": " + std::string(status.message()), std::string(status.hint())};
}

// Spellings that a model must never be made to say (spec/prompt-format.md section 1.2).
bool is_filler(std::string_view spelling) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"<｜place▁holder▁no▁",
                                                         "<|place_holder_mm_span_", "<｜tool▁",
                                                         "<｜deepseek_image｜>", "<｜rl_image_"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return spelling.starts_with(prefix); });
}

std::vector<TokenId> masked_ids(const Tokenizer& tokenizer, int vocab_size) {
  std::vector<TokenId> masked;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const bool unknown = id >= tokenizer.size() || tokenizer.spelling(id).empty();
    if (unknown || (tokenizer.is_added(id) && is_filler(tokenizer.bytes(id)))) masked.push_back(id);
  }
  return masked;
}

constexpr std::int32_t kMaxPrefillChunk = 4096;

// A chunk's experts are read once each, so the more of its rows share one the better, until a row
// costs its arithmetic: about 8. Bounded by the memory of activations, 0.7 MB a row as released,
// and by what a waiting turn should bear.
std::int32_t prefill_chunk_of(const ModelConfig& config) {
  constexpr int kRowsPerExpert = 8, kLeast = 64, kMost = 512;
  const int n_active = std::max(1, config.n_active_experts);
  return std::clamp(kRowsPerExpert * config.n_experts / n_active, kLeast, kMost);
}

Status check_vocabulary(const ModelConfig& config, const Tokenizer& tokenizer) {
  if (tokenizer.size() <= config.vocab_size) return {};
  return corrupt("tokenizer.json has " + std::to_string(tokenizer.size()) +
                     " tokens, config.json's vocab_size is " + std::to_string(config.vocab_size),
                 "use the tokenizer of this checkpoint");
}

}  // namespace

Result<std::shared_ptr<LoadedModel>> LoadedModel::create(std::shared_ptr<RuntimeState> runtime,
                                                         const ModelOptions& options) {
  if (options.prefill_chunk < 0 || options.prefill_chunk > kMaxPrefillChunk) {
    return invalid_argument("prefill_chunk is " + std::to_string(options.prefill_chunk) +
                            ", must be 1 to " + std::to_string(kMaxPrefillChunk) +
                            ", or 0 for the model's own");
  }
  if (options.drafts < -1 || options.drafts > kMaxDrafts) {
    return invalid_argument("drafts is " + std::to_string(options.drafts) + ", must be 1 to " +
                            std::to_string(kMaxDrafts) + ", 0 for as many as pay, or -1 for none");
  }
  if (options.numerics < Numerics::kReference || options.numerics > Numerics::kF32) {
    return invalid_argument("numerics has no value " +
                            std::to_string(static_cast<int>(options.numerics)));
  }
  std::shared_ptr<LoadedModel> model(new LoadedModel);
  model->kernels_ = kernels::select_kernels(runtime->instruction_set());
  model->runtime_ = std::move(runtime);
  model->options_ = options;
  model->arithmetic_ = arithmetic_of(options.numerics);
  return model;
}

Status LoadedModel::set_config(ModelConfig config) {
  config_ = std::move(config);
  if (options_.max_context < 0 || options_.max_context > config_.max_positions) {
    return invalid_argument("max_context is " + std::to_string(options_.max_context) +
                            ", the checkpoint allows 1 to " +
                            std::to_string(config_.max_positions));
  }
  if (options_.prefill_chunk == 0) options_.prefill_chunk = prefill_chunk_of(config_);
  const kernels::YarnParams yarn{config_.yarn_factor, config_.yarn_beta_fast,
                                 config_.yarn_beta_slow, config_.yarn_original_positions};
  window_frequencies_ = kernels::rope_frequencies(config_.rope_dim, config_.rope_theta, {});
  compressed_frequencies_ =
      kernels::rope_frequencies(config_.rope_dim, config_.compress_rope_theta, yarn);
  info_ = describe_model(config_);
  if (options_.max_context > 0) info_.max_context = options_.max_context;
  return {};
}

Result<std::shared_ptr<LoadedModel>> LoadedModel::load(std::shared_ptr<RuntimeState> runtime,
                                                       const std::string& folder,
                                                       const ModelOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto model, create(std::move(runtime), options));
  CAIRN_ASSIGN_OR_RETURN(const std::string json, read_text_file(folder + "/config.json"));
  Result<ModelConfig> parsed = parse_model_config(json, nullptr);
  if (!parsed.ok()) return in_folder(folder, parsed.status());
  CAIRN_RETURN_IF_ERROR(model->set_config(std::move(*parsed)));
  const ModelConfig& config = model->config_;
  CAIRN_ASSIGN_OR_RETURN(model->tokenizer_, Tokenizer::load(folder + "/tokenizer.json"));
  CAIRN_RETURN_IF_ERROR(check_vocabulary(config, *model->tokenizer_));
  CAIRN_ASSIGN_OR_RETURN(model->checkpoint_, Checkpoint::open(folder));
  Result<Weights> weights = bind_weights(config, *model->checkpoint_);
  if (!weights.ok()) return in_folder(folder, weights.status());
  model->weights_ = std::move(*weights);
  model->settle_drafts();
  if (!config.engram_layers.empty()) {
    CAIRN_ASSIGN_OR_RETURN(model->engram_, make_engram_tables(config, *model->tokenizer_, folder));
  }
  model->activations_ = std::make_unique<Activations>(config, model->max_rows());

  model->info_.weight_bytes = model->checkpoint_->total_bytes();
  const std::string numeric_class = std::string(kNumericClass) + "/" + std::string(kPromptFormat) +
                                    "/" + std::to_string(static_cast<int>(options.numerics));
  CAIRN_ASSIGN_OR_RETURN(model->info_.fingerprint,
                         model_fingerprint(folder, *model->checkpoint_, numeric_class));
  model->think_end_ = model->tokenizer_->added_token(kThinkEnd).value_or(-1);
  model->tokenizer_->encode_with_added_tokens(kThinkEnd, model->think_ending_);
  model->masked_ids_ = engine::masked_ids(*model->tokenizer_, config.vocab_size);
  return model;
}

Result<std::shared_ptr<LoadedModel>> LoadedModel::synthetic(
    std::shared_ptr<RuntimeState> runtime, const ModelConfig& config, const ModelOptions& options,
    const SyntheticOptions& synthetic_options) {
  CAIRN_ASSIGN_OR_RETURN(auto model, create(std::move(runtime), options));
  CAIRN_RETURN_IF_ERROR(model->set_config(config));
  CAIRN_ASSIGN_OR_RETURN(model->synthetic_, SyntheticWeights::create(config, synthetic_options));
  model->weights_ = model->synthetic_->weights();
  model->settle_drafts();
  if (!config.engram_layers.empty()) model->engram_ = model->synthetic_->engram_tables();
  model->activations_ = std::make_unique<Activations>(model->config_, model->max_rows());
  return model;
}

std::int64_t LoadedModel::max_rows() const {
  return std::max<std::int64_t>({options_.prefill_chunk, kMaxDecodeRows, config_.draft_block});
}

void LoadedModel::settle_drafts() {
  if (!has_drafts()) {  // no rings, no taps
    config_.n_draft_stages = config_.draft_block = 0;
    config_.draft_target_layers.clear();
    return;
  }
  draft_config_ = config_;
  draft_config_.n_experts = config_.draft_n_experts;
  draft_config_.n_active_experts = config_.draft_n_active_experts;
  draft_config_.window = config_.window + config_.draft_block;
  propose_ = [](const Sequence& sequence, TokenId anchor, DraftProposal& out) {
    return sequence.propose(anchor, out);
  };
}

LayerContext LoadedModel::draft_context(kernels::Context& run) const {
  return {draft_config_,       draft_plan_, kernels_, run, arithmetic_, window_frequencies_.data(),
          activations_->memory};
}

std::int32_t LoadedModel::max_drafts() const {
  if (!propose_ || options_.drafts < 0) return 0;
  return options_.drafts == 0 ? kMaxDrafts : options_.drafts;
}

LayerContext LoadedModel::layer_context(int index, kernels::Context& run) const {
  const LayerPlan& plan = config_.plan[static_cast<std::size_t>(index)];
  return {config_,
          plan,
          kernels_,
          run,
          arithmetic_,
          plan.ratio > 0 ? compressed_frequencies_.data() : window_frequencies_.data(),
          activations_->memory};
}

Result<std::shared_ptr<ConstraintVocabulary>> LoadedModel::constraint_vocabulary() const {
  const std::lock_guard lock(constraint_mutex_);
  if (constraint_vocabulary_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(
        constraint_vocabulary_,
        ConstraintVocabulary::create(*tokenizer_, masked_ids_, config_.eos_id, config_.vocab_size));
  }
  return constraint_vocabulary_;
}

}  // namespace cairn::engine

namespace cairn {

Result<Model> Model::open(const Runtime& runtime, const std::string& folder,
                          const ModelOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto state, engine::LoadedModel::load(runtime.state(), folder, options));
  return Model(std::move(state));
}

const ModelInfo& Model::info() const { return state_->info(); }

std::vector<TokenId> Model::tokenize(std::string_view text) const {
  std::vector<TokenId> tokens;
  state_->tokenizer().encode_text(text, tokens);
  return tokens;
}

Result<std::string> Model::detokenize(const std::vector<TokenId>& tokens) const {
  std::string text;
  for (const TokenId id : tokens) {
    if (id < 0 || id >= state_->config().vocab_size) {
      return invalid_argument("token id " + std::to_string(id) + " is outside the vocabulary of " +
                              std::to_string(state_->config().vocab_size));
    }
    text += state_->tokenizer().bytes(id);
  }
  return text;
}

Result<Prompt> Model::render(const std::vector<Message>& messages,
                             const PromptSettings& settings) const {
  engine::PromptOptions options;
  options.thinking = settings.thinking;
  options.effort = settings.effort;
  options.open_answer = settings.open_answer;
  CAIRN_ASSIGN_OR_RETURN(
      const auto segments,
      engine::render_prompt(messages, options, state_->think_end(), state_->eos()));
  const engine::Tokenizer& tokenizer = state_->tokenizer();
  return engine::public_prompt(engine::rendered_prompt(segments, tokenizer), messages.size(),
                               tokenizer);
}

}  // namespace cairn
