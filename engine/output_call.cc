// The part of OutputParser that reads one tool call: parameters, their values, and the arguments as
// JSON while they arrive. Written in the order of a call's life.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/output_parser.h"
#include "engine/python_json.h"

namespace cairn::engine {
namespace {

using Kind = Markup::Kind;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kMarkupSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kMarkupSpace) - begin + 1);
}

bool is_bare_word(const JsonValue& value) {
  return value.is(JsonValue::Kind::kNull) || value.is(JsonValue::Kind::kBool);
}

// The object that `text` holds, if it could stand in a later prompt as arguments.
std::optional<JsonValue> arguments_object(std::string_view text) {
  auto value = parse_json(text);
  if (!value.ok() || !value->is(JsonValue::Kind::kObject)) return std::nullopt;
  const bool is_representable = std::ranges::none_of(value->members, [](const JsonMember& m) {
    return m.key.find_first_of("\">") != std::string::npos;
  });
  return is_representable ? std::optional(std::move(*value)) : std::nullopt;
}

// Models wrap all arguments in one parameter of these names.
bool is_wrapper_name(std::string_view key) { return key == "arguments" || key == "input"; }

bool fits(const ToolSignature& tool, const JsonValue& arguments) {
  return std::ranges::all_of(arguments.members, [&](const JsonMember& member) {
    return tool.find(member.key) != nullptr;
  });
}

}  // namespace

void OutputParser::begin_call(const std::string& name) {
  if (max_calls_ > 0 && n_begun_ == 0 && n_calls_ - n_begun_calls_ >= max_calls_) {
    stopped_ = OutputStop::kCallLimit;
    return;
  }
  end_block();
  in_reasoning_ = false;
  between_tags_ = false;
  unparsed_.clear();
  after_bare_call_ = !calls_are_open_;

  call_ = {};
  call_.call.id = call_id_prefix_ + std::to_string(n_calls_++);
  call_.call.name = name;
  call_.tool = declared(name);
  ++n_calls_of_block_;
  state_ = State::kInvoke;
  ++n_blocks_;
  add_event(EventKind::kBlockBegin, BlockKind::kToolCall).tool_call = call_.call;
}

bool OutputParser::step_invoke() {
  if (call_.stray.empty())
    consume(std::min(pending_.find_first_not_of(kMarkupSpace), pending_.size()));
  if (pending_.empty()) return false;
  std::size_t n_stray = std::min(find_markup_start(pending_), pending_.size());
  if (n_stray == 0) {
    Markup markup;
    const MarkupMatch match = read_at(0, markup);
    if (match == MarkupMatch::kMore) return false;
    if (match == MarkupMatch::kYes && apply_in_invoke(markup)) return true;
    n_stray = 1;
  }
  call_.stray += spelled_out(std::string_view(pending_).substr(0, n_stray));
  consume(n_stray);
  return true;
}

bool OutputParser::apply_in_invoke(const Markup& markup) {
  switch (markup.kind) {
    case Kind::kThinkBegin:
    case Kind::kThinkEnd:
      return false;
    case Kind::kParameterBegin:
      consume(markup.n_bytes);
      begin_parameter(markup);
      return true;
    case Kind::kInvokeEnd:
      consume(markup.n_bytes);
      end_call(/*keep=*/true);
      return true;
    case Kind::kCallsBegin:
    case Kind::kParameterEnd:  // has no place here
      call_.malformed = true;
      consume(markup.n_bytes);
      return true;
    case Kind::kInvokeBegin:  // the call's own end is missing; the tag is read again outside
      if (!opens_call(markup)) return false;
      [[fallthrough]];
    case Kind::kCallsEnd:
      call_.malformed = true;
      end_call(/*keep=*/true);
      return true;
  }
  return false;
}

OutputParser::ValueKind OutputParser::unstated_kind(const ToolSignature::Parameter* known) {
  if (known == nullptr) return ValueKind::kJsonUnlessBareWord;
  return known->is_string ? ValueKind::kString : ValueKind::kJsonIfReadable;
}

void OutputParser::begin_parameter(const Markup& markup) {
  settle_held_value(/*is_alone=*/false);
  const ToolSignature::Parameter* known =
      call_.tool != nullptr ? call_.tool->find(markup.name) : nullptr;
  if (markup.is_string.has_value()) {
    call_.value_kind = *markup.is_string ? ValueKind::kString : ValueKind::kJson;
  } else {
    call_.malformed = true;
    call_.value_kind = unstated_kind(known);
  }
  call_.may_unwrap = call_.keys.empty() && call_.tool != nullptr && known == nullptr &&
                     is_wrapper_name(markup.name);
  if (std::ranges::find(call_.keys, markup.name) != call_.keys.end()) {
    call_.repeats_key = true;
    call_.malformed = true;
  }
  call_.keys.push_back(markup.name);
  call_.value.clear();
  call_.streams = call_.value_kind == ValueKind::kString && !call_.may_unwrap;
  if (call_.streams) emit_key_and_value(markup.name, "\"");
  state_ = State::kParameter;
}

bool OutputParser::step_parameter() {
  const std::size_t n_value =
      std::min({find_markup_start(pending_), pending_.find('\n'), pending_.size()});
  if (n_value > 0) {
    append_value(std::string_view(pending_).substr(0, n_value));
    consume(n_value);
    return true;
  }
  // A line break before a tag that ends the value from outside is no part of it.
  const std::size_t n_breaks = pending_.front() == '\n' ? 1 : 0;
  if (n_breaks == pending_.size()) return false;
  if (find_markup_start(std::string_view(pending_).substr(n_breaks)) == 0) {
    Markup markup;
    const MarkupMatch match = read_at(n_breaks, markup);
    if (match == MarkupMatch::kMore) return false;
    if (match == MarkupMatch::kYes && markup.kind == Kind::kParameterEnd) {
      append_value(std::string_view(pending_).substr(0, n_breaks));
      consume(n_breaks + markup.n_bytes);
      end_value();
      return true;
    }
    if (match == MarkupMatch::kYes && ends_value(markup)) {
      consume(n_breaks);
      call_.malformed = true;
      end_value();
      return true;
    }
  }
  append_value(std::string_view(pending_).substr(0, 1));
  consume(1);
  return true;
}

// Tags that end a value whose own end is missing. They are read again in the call.
bool OutputParser::ends_value(const Markup& markup) const {
  return markup.kind == Kind::kParameterBegin || markup.kind == Kind::kInvokeEnd ||
         markup.kind == Kind::kCallsEnd || opens_call(markup);
}

void OutputParser::append_value(std::string_view raw) {
  if (raw.empty()) return;
  const std::string text = spelled_out(raw);
  if (!call_.streams) {
    call_.value += text;
    return;
  }
  std::string escaped;
  append_json_escaped(text, escaped);
  emit_arguments(escaped);
}

void OutputParser::end_value() {
  state_ = State::kInvoke;
  if (call_.streams) {
    emit_arguments("\"");
  } else if (call_.may_unwrap) {
    call_.is_held = true;
  } else {
    emit_key_and_value(call_.keys.back(), value_json());
  }
}

// A value of a wrapper's name turns out to be all the arguments if it stands alone and its keys are
// parameters of the tool.
void OutputParser::settle_held_value(bool is_alone) {
  if (!std::exchange(call_.is_held, false)) return;
  if (is_alone) {
    const auto arguments = arguments_object(call_.value);
    if (arguments && fits(*call_.tool, *arguments)) {
      call_.malformed = true;
      emit_all_arguments(*arguments, trimmed(call_.value));
      return;
    }
  }
  emit_key_and_value(call_.keys.back(), value_json());
}

// The model wrote the whole object itself.
void OutputParser::emit_all_arguments(const JsonValue& arguments, std::string_view json) {
  call_.keys.clear();
  for (const JsonMember& member : arguments.members) call_.keys.push_back(member.key);
  call_.is_whole = true;
  emit_arguments(json);
}

void OutputParser::emit_key_and_value(const std::string& key, std::string_view value_json) {
  const std::string_view separator = call_.call.arguments_json.empty() ? "{" : ", ";
  emit_arguments(std::string(separator) + json_quoted(key) + ": " + std::string(value_json));
}

// The value that was read, as JSON. JSON text of the model is kept as it is.
std::string OutputParser::value_json() {
  const std::string quoted = json_quoted(call_.value);
  if (call_.value_kind == ValueKind::kString) return quoted;
  const auto value = parse_json(call_.value);
  if (!value.ok()) {
    call_.malformed = true;
    return quoted;
  }
  if (call_.value_kind == ValueKind::kJsonUnlessBareWord && is_bare_word(*value)) return quoted;
  return call_.value;
}

// Text between the tags of a call. Without parameters it is the arguments; what is no object
// becomes the one argument `arguments`, as the template writes such arguments. Beside parameters it
// is dropped.
void OutputParser::settle_stray_text() {
  const std::string text = std::exchange(call_.stray, {});
  const std::string_view stray = trimmed(text);
  if (stray.empty()) return;
  call_.malformed = true;
  if (!call_.keys.empty()) return;
  if (const auto arguments = arguments_object(stray)) {
    emit_all_arguments(*arguments, stray);
  } else {
    emit_key_and_value("arguments", json_quoted(stray));
  }
}

void OutputParser::end_call(bool keep) {
  settle_held_value(/*is_alone=*/true);
  settle_stray_text();
  std::string& arguments = call_.call.arguments_json;
  if (!call_.is_whole) emit_arguments(arguments.empty() ? "{}" : "}");
  if (call_.repeats_key) {
    const auto merged = parse_json(arguments);
    if (merged.ok()) arguments = to_python_json(*merged);
  }
  OutputEvent& end = add_event(EventKind::kBlockEnd, BlockKind::kToolCall);
  end.tool_call = call_.call;
  end.malformed = call_.malformed;
  if (keep) output_.tool_calls.push_back(call_.call);
  call_ = {};
  state_ = State::kOutside;
  between_tags_ = true;
}

void OutputParser::finish_call(bool complete) {
  call_.malformed = true;
  const std::size_t n_space = std::min(pending_.find_first_not_of(kMarkupSpace), pending_.size());
  const std::string_view rest = std::string_view(pending_).substr(n_space);
  const bool is_cut_tag = begins_tag(rest, vocabulary_.spelling);

  bool value_is_whole = true;
  if (state_ == State::kParameter) {
    if (!is_cut_tag) append_value(pending_);
    value_is_whole = complete || is_cut_tag;
    end_value();
  } else if (!is_cut_tag) {
    call_.stray += spelled_out(pending_);
  }
  const bool stray_is_whole = trimmed(call_.stray).empty() ||
                              (call_.keys.empty() && arguments_object(trimmed(call_.stray)));
  settle_held_value(/*is_alone=*/true);
  settle_stray_text();
  end_call(value_is_whole && stray_is_whole && has_required());
}

bool OutputParser::has_required() const {
  if (call_.tool == nullptr) return false;
  return std::ranges::all_of(call_.tool->required, [&](const std::string& name) {
    return std::ranges::find(call_.keys, name) != call_.keys.end();
  });
}

void OutputParser::emit_arguments(std::string_view json) {
  call_.call.arguments_json += json;
  emit_bytes(BlockKind::kToolCall, json);
}

}  // namespace cairn::engine
