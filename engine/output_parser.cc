// The state machine outside of calls: reasoning, text and the tags around calls. Calls themselves
// are in output_call.cc.
//
// Every decision is made on the start of pending_ alone, and a reader that cannot decide yet waits
// for more. So how the output was split cannot matter. What is held back is at most two line
// breaks, a tag, or white space after a tag.
#include "engine/output_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/prompt_markers.h"

namespace cairn::engine {
namespace {

using Kind = Markup::Kind;

// Line breaks before a block of calls that belong to it (section 4.1).
constexpr std::size_t kMaxLeadingBreaks = 2;

constexpr std::array<std::string_view, 7> kHiddenMarkers = {
    kBeginOfSentence, kEndOfSentence,   kPadMarker,           kSystemMarker,
    kUserMarker,      kAssistantMarker, kLatestReminderMarker};

bool is_marker_byte(char c) { return c == kThinkBeginCode || c == kThinkEndCode || c == kDsmlCode; }

bool may_start_markup(char c) { return c == '<' || is_marker_byte(c); }

}  // namespace

OutputParser::OutputParser(const Tokenizer& tokenizer, const OutputParserOptions& options)
    : tokenizer_(&tokenizer),
      tools_(
          std::make_shared<const std::vector<ToolSignature>>(tool_signatures(options.tools_json))),
      call_id_prefix_(options.call_id_prefix),
      in_reasoning_(options.starts_in_reasoning),
      stop_strings_(options.stop),
      max_calls_(options.max_calls),
      n_begun_(options.n_begun) {
  vocabulary_.think_begin = tokenizer.added_token(kThinkBegin).value_or(-1);
  vocabulary_.think_end = tokenizer.added_token(kThinkEnd).value_or(-1);
  vocabulary_.dsml = tokenizer.added_token(kDsml).value_or(-1);
  vocabulary_.spelling = {.think_as_text = vocabulary_.think_end < 0,
                          .dsml_as_text = vocabulary_.dsml < 0};
  for (const std::string_view marker : kHiddenMarkers) {
    if (const auto id = tokenizer.added_token(marker)) vocabulary_.hidden.push_back(*id);
  }
}

void OutputParser::push(TokenId token, std::vector<OutputEvent>& out) {
  if (state_ == State::kFinished) return;
  const bool is_hidden = std::ranges::find(vocabulary_.hidden, token) != vocabulary_.hidden.end();
  if (in_reasoning_ && !is_hidden) ++output_.reasoning_tokens;

  if (tokenizer_->is_added(token)) {
    pending_ += utf8_.finish();
    if (!is_hidden) append_added_token(token);
  } else {
    pending_ += utf8_.append(tokenizer_->bytes(token));
  }
  drain();
  if (n_begun_ > 0) {
    --n_begun_;
    n_begun_calls_ = n_calls_;
  }
  deliver(out);
}

void OutputParser::append_added_token(TokenId token) {
  if (token == vocabulary_.think_begin) {
    pending_ += kThinkBeginCode;
  } else if (token == vocabulary_.think_end) {
    pending_ += kThinkEndCode;
  } else if (token == vocabulary_.dsml) {
    pending_ += kDsmlCode;
  } else {
    pending_ += tokenizer_->bytes(token);
  }
}

void OutputParser::push_text(std::string_view bytes, std::vector<OutputEvent>& out) {
  if (state_ == State::kFinished) return;
  pending_ += utf8_.append(bytes);
  drain();
  deliver(out);
}

void OutputParser::finish(bool complete, std::vector<OutputEvent>& out) {
  if (state_ == State::kFinished) return;
  pending_ += utf8_.finish();
  drain();
  if (state_ == State::kOutside) {
    finish_outside(complete);
  } else if (state_ != State::kFinished) {
    finish_call(complete);
  }
  pending_.clear();
  end_block();
  state_ = State::kFinished;
  deliver(out);
}

void OutputParser::drain() {
  while (!pending_.empty() && stopped_ == OutputStop::kNone && step()) {
  }
  if (stopped_ == OutputStop::kNone) return;
  pending_.clear();
  end_block();
  state_ = State::kFinished;
}

bool OutputParser::step() {
  switch (state_) {
    case State::kOutside:
      return between_tags_ ? step_between_tags() : step_text();
    case State::kInvoke:
      return step_invoke();
    case State::kParameter:
      return step_parameter();
    case State::kFinished:
      break;
  }
  return false;
}

bool OutputParser::step_text() {
  const std::size_t n_text =
      std::min({find_markup_start(pending_), pending_.find('\n'), pending_.size()});
  if (n_text > 0) {
    emit_text(std::string_view(pending_).substr(0, n_text));
    consume(n_text);
    return true;
  }
  const std::size_t n_breaks = std::min(pending_.find_first_not_of('\n'), pending_.size());
  if (n_breaks > kMaxLeadingBreaks) {
    emit_text(std::string(n_breaks - kMaxLeadingBreaks, '\n'));
    consume(n_breaks - kMaxLeadingBreaks);
    return true;
  }
  if (n_breaks == pending_.size()) return false;
  if (!may_start_markup(pending_[n_breaks])) {
    emit_text(std::string(n_breaks, '\n'));
    consume(n_breaks);
    return true;
  }
  Markup markup;
  const MarkupMatch match = read_at(n_breaks, markup);
  if (match == MarkupMatch::kMore) return false;
  if (match == MarkupMatch::kYes && apply_outside(markup, n_breaks)) return true;

  const std::string_view rest = std::string_view(pending_).substr(n_breaks);
  const bool is_unread_markup = rest.front() == kDsmlCode || begins_tag(rest, vocabulary_.spelling);
  emit_text(std::string_view(pending_).substr(0, n_breaks + 1));
  if (is_unread_markup) text_malformed_ = true;
  consume(n_breaks + 1);
  return true;
}

bool OutputParser::step_between_tags() {
  const std::size_t n_space = pending_.find_first_not_of(kMarkupSpace);
  if (n_space == std::string::npos) return false;
  if (may_start_markup(pending_[n_space])) {
    Markup markup;
    const MarkupMatch match = read_at(n_space, markup);
    if (match == MarkupMatch::kMore) return false;
    if (match == MarkupMatch::kYes && apply_outside(markup, n_space)) return true;
  }
  leave_tags();
  return true;
}

// Text follows a tag: the white space in between is part of it. Inside a block of calls text is a
// mistake, and if nothing was read from the block so far, its opening was no markup either.
void OutputParser::leave_tags() {
  between_tags_ = false;
  after_bare_call_ = false;
  if (!calls_are_open_) return;
  if (!unparsed_.empty()) emit_text(std::exchange(unparsed_, {}));
  text_malformed_ = true;
}

bool OutputParser::apply_outside(const Markup& markup, std::size_t n_before) {
  switch (markup.kind) {
    case Kind::kThinkBegin:
      if (!between_tags_) emit_text(std::string_view(pending_).substr(0, n_before));
      consume(n_before + markup.n_bytes);
      return true;
    case Kind::kThinkEnd:
      return apply_think_end(markup, n_before);
    case Kind::kCallsBegin:
      open_calls(n_before + markup.n_bytes);
      return true;
    case Kind::kCallsEnd:
      return apply_calls_end(markup, n_before);
    case Kind::kInvokeBegin:
      if (!opens_call(markup)) return false;
      consume(n_before + markup.n_bytes);
      begin_call(markup.name);
      return true;
    case Kind::kInvokeEnd:
    case Kind::kParameterEnd:
      if (n_calls_ == 0) return false;
      consume(n_before + markup.n_bytes);
      between_tags_ = true;
      return true;
    case Kind::kParameterBegin:
      return false;
  }
  return false;
}

bool OutputParser::apply_think_end(const Markup& markup, std::size_t n_before) {
  if (!in_reasoning_ && swallowed_think_end_) return false;
  if (!between_tags_) emit_text(std::string_view(pending_).substr(0, n_before));
  consume(n_before + markup.n_bytes);
  if (in_reasoning_) {
    end_block();
    in_reasoning_ = false;
  } else {
    swallowed_think_end_ = true;
  }
  return true;
}

// Reasoning that a block of calls interrupts is over.
void OutputParser::open_calls(std::size_t n_bytes) {
  in_reasoning_ = false;
  if (!calls_are_open_) {
    calls_are_open_ = true;
    n_calls_of_block_ = 0;
    unparsed_.clear();
  }
  if (n_calls_of_block_ == 0) unparsed_ += pending_.substr(0, n_bytes);
  consume(n_bytes);
  between_tags_ = true;
}

bool OutputParser::apply_calls_end(const Markup& markup, std::size_t n_before) {
  if (!calls_are_open_ && !after_bare_call_) return false;
  const std::size_t n_bytes = n_before + markup.n_bytes;
  if (calls_are_open_ && n_calls_of_block_ == 0) {  // nothing in it could be read
    emit_text(std::exchange(unparsed_, {}) + pending_.substr(0, n_bytes));
    text_malformed_ = true;
  }
  consume(n_bytes);
  calls_are_open_ = false;
  after_bare_call_ = false;
  between_tags_ = true;
  return true;
}

// A call without a surrounding block counts if its tool is declared; else it is text.
bool OutputParser::opens_call(const Markup& markup) const {
  return markup.kind == Kind::kInvokeBegin && (calls_are_open_ || declared(markup.name) != nullptr);
}

void OutputParser::finish_outside(bool complete) {
  const std::size_t n_space = std::min(pending_.find_first_not_of(kMarkupSpace), pending_.size());
  const bool is_cut_tag =
      begins_tag(std::string_view(pending_).substr(n_space), vocabulary_.spelling);
  const bool is_blank = n_space == pending_.size();
  const bool block_is_empty = calls_are_open_ && n_calls_of_block_ == 0;

  if (is_cut_tag || (block_is_empty && between_tags_ && is_blank)) {
    // Markup that ends in the middle. The model's own end means that it is all there is; a cut by
    // length means an unfinished call.
    if (complete && (block_is_empty || !calls_are_open_)) {
      emit_text(std::exchange(unparsed_, {}) + pending_);
      text_malformed_ = true;
    } else if (block_is_open_) {
      text_malformed_ = true;
    }
    return;
  }
  if (between_tags_ && is_blank) return;
  if (between_tags_) leave_tags();
  emit_text(pending_);
}

MarkupMatch OutputParser::read_at(std::size_t position, Markup& out) const {
  return read_markup(std::string_view(pending_).substr(position), vocabulary_.spelling, out);
}

const ToolSignature* OutputParser::declared(std::string_view name) const {
  const auto found = std::ranges::find(*tools_, name, &ToolSignature::name);
  return found == tools_->end() ? nullptr : &*found;
}

void OutputParser::emit_text(std::string_view raw) {
  if (raw.empty() || stopped_ != OutputStop::kNone) return;
  const std::string text = spelled_out(raw);
  if (in_reasoning_) {
    emit_settled_text(BlockKind::kReasoning, text);
  } else if (!stop_strings_.any() || n_begun_ > 0) {
    emit_settled_text(BlockKind::kText, text);
  } else {
    emit_settled_text(BlockKind::kText, stop_strings_.push(text));
    if (!stop_strings_.found().empty()) stopped_ = OutputStop::kStopString;
  }
}

void OutputParser::emit_settled_text(BlockKind kind, const std::string& text) {
  if (text.empty()) return;
  if (block_is_open_ && block_kind_ != kind) end_block();
  if (!block_is_open_) {
    block_is_open_ = true;
    block_kind_ = kind;
    ++n_blocks_;
    add_event(EventKind::kBlockBegin, kind);
  }
  (kind == BlockKind::kReasoning ? output_.reasoning : output_.text) += text;
  emit_bytes(kind, text);
}

OutputEvent& OutputParser::add_event(EventKind kind, BlockKind block_kind) {
  OutputEvent& event = events_.emplace_back();
  event.kind = kind;
  event.block = n_blocks_ - 1;
  event.block_kind = block_kind;
  return event;
}

// One event for all the bytes that a push settles.
void OutputParser::emit_bytes(BlockKind kind, std::string_view bytes) {
  if (bytes.empty()) return;
  if (!events_.empty() && events_.back().kind == EventKind::kBlockBytes) {
    events_.back().bytes += bytes;
    return;
  }
  add_event(EventKind::kBlockBytes, kind).bytes = bytes;
}

void OutputParser::end_block() {
  emit_settled_text(BlockKind::kText, stop_strings_.release());
  if (!block_is_open_) return;
  add_event(EventKind::kBlockEnd, block_kind_).malformed = text_malformed_;
  block_is_open_ = false;
  text_malformed_ = false;
}

void OutputParser::deliver(std::vector<OutputEvent>& out) {
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
}

}  // namespace cairn::engine
