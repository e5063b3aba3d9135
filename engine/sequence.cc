#include "engine/sequence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/runtime.h"

namespace cairn::engine {

Sequence::Sequence(std::shared_ptr<const LoadedModel> model)
    : model_(std::move(model)), cache_(model_->config(), model_->arithmetic()) {}

void Sequence::append_tokens(std::span<const TokenId> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (!model_->engram()) return;
  for (const TokenId token : tokens) {
    classes_.push_back(token == model_->config().image_id
                           ? kernels::kDeadClass
                           : model_->engram()->classes[static_cast<std::size_t>(token)]);
  }
}

Status Sequence::check_tokens(std::span<const TokenId> tokens) const {
  const std::int64_t vocab_size = model_->config().vocab_size;
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return invalid_argument("token id " + std::to_string(token) + " is outside the vocabulary of " +
                            std::to_string(vocab_size));
  }
  return {};
}

PlanRequest Sequence::request_to(std::int64_t end, const PrefillOptions& options) const {
  const bool only_windows = end == end_ && end_ > 0;
  PlanRequest request;
  request.live = {end_, encoder_windows_ && !only_windows, decoder_windows_ && !only_windows};
  request.end = end;
  request.decoder = options.decoder;
  request.bounded_restore = options.bounded_restore;
  request.logits_from = options.logits_from;
  return request;
}

std::int64_t Sequence::replay_to(std::int64_t end, const PrefillOptions& options) const {
  if (end == end_ && ready_) return 0;
  return end_ - make_plan(model_->config(), request_to(end, options)).begin;
}

Status Sequence::start_prefill(std::span<const TokenId> suffix, const PrefillOptions& options) {
  const ModelConfig& config = model_->config();
  CAIRN_RETURN_IF_ERROR(check_tokens(suffix));
  const std::int64_t end = end_ + static_cast<std::int64_t>(suffix.size());
  if (end > model_->info().max_context) {
    return {StatusCode::kContextFull,
            "the context holds " + std::to_string(model_->info().max_context) +
                " tokens, the sequence would have " + std::to_string(end)};
  }
  if (end == 0) return invalid_argument("a prefill of an empty sequence needs at least one token");
  abandon_prefill();
  if (suffix.empty() && ready_) return {};
  append_tokens(suffix);
  make_plan(config, request_to(end, options), plan_);
  is_planned_ = true;
  next_ = plan_.begin;
  replayed_ = end_ - plan_.begin;
  logits_rows_.clear();
  return {};
}

ForwardInput Sequence::step_input(std::int64_t n) {
  return {tokens_, classes_, next_, n, plan_, cache_, logits_rows_};
}

bool Sequence::prefill_step(const StopRequested& stop_requested) {
  const std::int64_t n = std::min<std::int64_t>(model_->options().prefill_chunk, plan_.end - next_);
  if (stop_requested) save_step(n);
  const bool was_ready = std::exchange(ready_, false);
  const ForwardInput input = step_input(n);
  if (!forward(*model_, model_->runtime()->compute(), {&input, 1}, model_->activations(),
               stop_requested)) {
    undo_step(was_ready);
    return false;
  }
  end_step(n);
  return true;
}

void Sequence::undo_step(bool was_ready) {
  cache_.go_back(before_step_);
  ready_ = was_ready;
}

void Sequence::end_step(std::int64_t n) {
  next_ += n;
  encoder_windows_ = next_ >= end_;
  decoder_windows_ = false;  // until the pass is complete
  if (next_ > end_) exact_ = exact_ && plan_.exact;
  end_ = std::max(end_, next_);
  cache_.seal_pages(end_);
  if (next_ < plan_.end) return;
  encoder_windows_ = decoder_windows_ = true;
  exact_ = exact_ && plan_.exact;
  const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
  logits_.assign(logits_rows_.end() - static_cast<std::ptrdiff_t>(vocab), logits_rows_.end());
  ready_ = true;
  is_planned_ = false;
}

void Sequence::abandon_prefill() {
  if (n_verified_ > 0) {
    undo_step(/*was_ready=*/true);
    n_verified_ = 0;
    cut_tokens(end_);
  }
  if (!is_planned_) return;
  is_planned_ = false;
  cut_tokens(end_);
}

void Sequence::cut_tokens(std::int64_t end) {
  tokens_.resize(static_cast<std::size_t>(end));
  if (model_->engram()) classes_.resize(tokens_.size());
}

Status Sequence::propose(TokenId anchor, DraftProposal& out) const {
  CAIRN_RETURN_IF_ERROR(check_tokens({&anchor, 1}));
  if (!model_->has_drafts()) {
    return {StatusCode::kUnsupported, "the checkpoint has no draft stages"};
  }
  if (!ready()) return invalid_argument("the sequence is not at a ready position");
  propose_drafts(*model_, model_->runtime()->compute(), cache_, end_, anchor, model_->activations(),
                 out);
  return {};
}

std::int64_t Sequence::max_drafts() const {
  if (!ready()) return 0;
  return std::clamp<std::int64_t>(
      model_->info().max_context - end_ - 1, 0,
      std::min<std::int64_t>(KvCache::kMaxCutRows, model_->config().window) - 1);
}

Status Sequence::start_verify(TokenId token, std::span<const TokenId> drafts) {
  CAIRN_RETURN_IF_ERROR(check_tokens(drafts));
  CAIRN_RETURN_IF_ERROR(start_prefill({&token, 1}));
  append_tokens(drafts);
  const std::int64_t end = static_cast<std::int64_t>(tokens_.size());
  make_plan(model_->config(), request_to(end, {.decoder = DecoderPass::kFull, .logits_from = end_}),
            plan_);
  return {};
}

void Sequence::end_verify() {
  n_verified_ = plan_.end - end_;
  is_planned_ = false;
}

std::span<const float> Sequence::verified_logits(std::int64_t row) const {
  const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
  return std::span(logits_rows_).subspan(static_cast<std::size_t>(row) * vocab, vocab);
}

std::span<const TokenId> Sequence::verified_tokens(std::int64_t row) const {
  return std::span(tokens_).first(static_cast<std::size_t>(end_ + row + 1));
}

void Sequence::accept(std::int64_t n_rows) {
  const std::span<const float> logits = verified_logits(n_rows - 1);
  logits_.assign(logits.begin(), logits.end());
  cache_.cut_back(before_step_, n_rows);
  end_ += n_rows;
  n_verified_ = 0;
  cut_tokens(end_);
  cache_.seal_pages(end_);
  exact_ = exact_ && plan_.exact;
  ready_ = true;
}

Status Sequence::prefill(std::span<const TokenId> suffix, const PrefillOptions& options,
                         const StopRequested& stop_requested) {
  CAIRN_RETURN_IF_ERROR(start_prefill(suffix, options));
  while (prefilling()) {
    if (prefill_step(stop_requested)) continue;
    abandon_prefill();
    return {StatusCode::kCancelled, "the pass was asked to stop"};
  }
  return {};
}

Result<KvPagePtr> Sequence::make_page(std::span<const std::byte> bytes) const {
  if (static_cast<std::int64_t>(bytes.size()) != block_bytes()) {
    return corrupt("KV block has " + std::to_string(bytes.size()) + " bytes, this model's have " +
                   std::to_string(block_bytes()));
  }
  return std::make_shared<const KvPage>(KvPage{{bytes.begin(), bytes.end()}});
}

Status Sequence::import_page(std::span<const TokenId> tokens, KvPagePtr page, bool exact) {
  if (tokens.size() != static_cast<std::size_t>(kBlockTokens)) {
    return invalid_argument("a KV block is of " + std::to_string(kBlockTokens) + " tokens, not " +
                            std::to_string(tokens.size()));
  }
  CAIRN_RETURN_IF_ERROR(check_tokens(tokens));
  append_tokens(tokens);
  cache_.append_page(std::move(page));
  end_ += kBlockTokens;
  encoder_windows_ = decoder_windows_ = ready_ = false;
  exact_ = exact_ && exact;
  return {};
}

Status Sequence::import_block(std::span<const TokenId> tokens, std::span<const std::byte> block,
                              bool exact) {
  CAIRN_ASSIGN_OR_RETURN(KvPagePtr page, make_page(block));
  return import_page(tokens, std::move(page), exact);
}

std::vector<std::byte> Sequence::export_tail() const {
  std::vector<std::byte> out = cache_.export_tail();
  const auto* logits = reinterpret_cast<const std::byte*>(logits_.data());
  out.insert(out.end(), logits, logits + logits_.size() * sizeof(float));
  return out;
}

Status Sequence::import_tail(std::span<const TokenId> suffix, std::span<const std::byte> tail) {
  const std::size_t logits_bytes =
      static_cast<std::size_t>(model_->config().vocab_size) * sizeof(float);
  CAIRN_RETURN_IF_ERROR(check_tokens(suffix));
  append_tokens(suffix);
  end_ = static_cast<std::int64_t>(tokens_.size());
  if (tail.size() < logits_bytes ||
      !cache_.import_tail(end_, tail.first(tail.size() - logits_bytes))) {
    return corrupt("tail of " + std::to_string(tail.size()) +
                   " bytes does not fit this model at position " + std::to_string(end_));
  }
  logits_.resize(static_cast<std::size_t>(model_->config().vocab_size));
  std::memcpy(logits_.data(), tail.data() + tail.size() - logits_bytes, logits_bytes);
  const auto is_finite = [](float logit) { return std::isfinite(logit); };
  if (!std::ranges::all_of(logits_, is_finite)) return corrupt("tail with logits without a value");
  encoder_windows_ = decoder_windows_ = ready_ = true;
  return {};
}

std::int64_t Sequence::private_bytes() const {
  const auto size_of = [](const auto& v) {
    return static_cast<std::int64_t>(v.capacity() * sizeof v[0]);
  };
  return cache_.private_bytes() + size_of(logits_) + size_of(logits_rows_) +
         size_of(before_step_.window_rows) + size_of(tokens_) + size_of(classes_);
}

void Sequence::forget_windows() { encoder_windows_ = decoder_windows_ = ready_ = false; }

}  // namespace cairn::engine
