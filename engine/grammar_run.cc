// States of frames: a literal counts its bytes in `count`; a scalar's `state` is that of its
// automaton; a sequence's is the part that comes next; arrays and objects are below. A frame under
// another is in the state that it has when the one above ends, so leaving is only taking it back.
#include "engine/grammar_run.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {
namespace {

constexpr std::uint32_t kBeforeQuote = 0xFFFFFFFF;  // of a quoted scalar

enum ArrayState : std::uint32_t { kArrayBegin, kFirstItem, kNextItem, kAfterItem };

enum ObjectState : std::uint32_t {
  kObjectBegin,
  kFirstName,  // after the brace
  kNextName,   // after a comma
  kInName,
  kColon,
  kBeforeValue,  // `name` is the property
  kAfterValue,
  // Parameters: tags, of which `count` bytes were read. After those of values `name` is the
  // property.
  kBeginTag,
  kTextTag,
  kJsonTag,
  kEndTag,
  kCallEndTag,
  kEmptyCallEndTag,  // an empty line before it
};

constexpr std::uint32_t kUnlisted = 0xFFFFFFFE;  // in place of a property's index

constexpr std::uint64_t kHashSeed = 0xCBF29CE484222325;

// FNV-1a; only names of one object are compared. Equal hashes would only keep a name from being
// used.
std::uint64_t hashed(std::uint64_t hash, std::uint8_t byte) {
  return (hash ^ byte) * 0x100000001B3;
}

std::uint64_t mixed(std::uint64_t hash) {
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  return hash ^ (hash >> 27);
}

// See kMaxIndent. `space`: 1 after a blank, 2 and more after a line break.
bool take_space(Frame& frame, std::uint8_t byte) {
  const bool is_blank = byte == ' ' || byte == '\t';
  if (frame.space == 0 && byte == ' ') {
    frame.space = 1;
  } else if (frame.space == 0 && byte == '\n') {
    frame.space = 2;
  } else if (is_blank && frame.space >= 2 && frame.space < 2 + kMaxIndent) {
    ++frame.space;
  } else {
    return false;
  }
  return true;
}

// A count that stands for `count` where what matters is whether it reaches some limits within
// `n_ahead` steps.
std::uint32_t representative(std::uint32_t count, std::initializer_list<std::uint32_t> limits,
                             std::uint32_t n_ahead) {
  std::uint32_t next = kUnlimited;
  for (const std::uint32_t limit : limits) {
    if (limit >= count) next = std::min(next, limit);
  }
  if (next == kUnlimited || next - count <= n_ahead) return count;
  return next - n_ahead - 1;
}

template <class Value>
void append(const Value& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

// --- The stack

std::uint32_t GrammarRun::push(const Reading& reading) {
  const GrammarNode& node = grammar_->node(reading.top.node);
  const bool nests =
      std::holds_alternative<ArrayNode>(node) || std::holds_alternative<ObjectNode>(node);
  frames_.push_back({reading.top, reading.below, depth(reading.below) + (nests ? 1 : 0)});
  return static_cast<std::uint32_t>(frames_.size() - 1);
}

void GrammarRun::add(const Reading& reading, Readings& out) {
  if (out.open.size() >= Readings::kMax) return;
  if (std::ranges::find(out.open, reading) == out.open.end()) out.open.push_back(reading);
}

bool GrammarRun::fits(NodeId node, std::uint32_t below) const {
  const std::uint32_t needed = grammar_->depth(node);
  return needed != OutputGrammar::kNeverEnds && needed + depth(below) <= kMaxDepth;
}

void GrammarRun::begin(NodeId root, Readings& out) {
  out.clear();
  enter(root, kNoFrame, out);
}

void GrammarRun::enter(NodeId node, std::uint32_t below, Readings& out) {
  if (!fits(node, below)) return;
  Reading reading;
  reading.top.node = node;
  reading.below = below;
  const GrammarNode& entered = grammar_->node(node);
  if (const auto* choice = std::get_if<ChoiceNode>(&entered)) {
    for (const NodeId id : choice->choices) enter(id, below, out);
  } else if (const auto* sequence = std::get_if<SequenceNode>(&entered)) {
    reading.top.state = 1;
    enter(sequence->parts[0], sequence->parts.size() == 1 ? below : push(reading), out);
  } else if (const auto* scalar = std::get_if<ScalarNode>(&entered)) {
    reading.top.state = scalar->is_quoted ? kBeforeQuote : scalar->dfa->start();
    add_scalar(*scalar, reading, out);
  } else if (const auto* literal = std::get_if<LiteralNode>(&entered)) {
    literal->bytes.empty() ? leave(below, out) : add(reading, out);
  } else if (const auto* object = std::get_if<ObjectNode>(&entered);
             object != nullptr && object->syntax == ObjectSyntax::kParameters) {
    add_tags(*object, reading, /*is_first=*/true, out);
  } else {
    add(reading, out);
  }
}

void GrammarRun::leave(std::uint32_t below, Readings& out) {
  if (below == kNoFrame) {
    out.ended = true;
    return;
  }
  Reading reading{frames_[below].frame, frames_[below].below};
  const auto* sequence = std::get_if<SequenceNode>(&grammar_->node(reading.top.node));
  if (sequence == nullptr) return add(reading, out);
  const NodeId part = sequence->parts[reading.top.state++];
  const bool is_last = reading.top.state == sequence->parts.size();
  enter(part, is_last ? reading.below : push(reading), out);
}

void GrammarRun::end_top(const Reading& reading, Readings& out) { leave(reading.below, out); }

void GrammarRun::compact(Readings& readings) {
  std::vector<std::uint32_t> moved(frames_.size(), kNoFrame);
  const auto keep = [&](std::uint32_t frame) {
    while (frame != kNoFrame && moved[frame] == kNoFrame) {
      moved[frame] = 0;  // numbered below
      frame = frames_[frame].below;
    }
  };
  for (const Reading& reading : readings.open) keep(reading.below);
  std::vector<Stacked> kept;
  for (std::size_t i = 0; i < frames_.size(); ++i) {  // what is below has a lower number
    if (moved[i] == kNoFrame) continue;
    moved[i] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(frames_[i]);
    if (kept.back().below != kNoFrame) kept.back().below = moved[kept.back().below];
  }
  for (Reading& reading : readings.open) {
    if (reading.below != kNoFrame) reading.below = moved[reading.below];
  }
  frames_ = std::move(kept);
}

// --- Names of properties

bool GrammarRun::has_room(const ObjectNode& object, const Frame& frame) {
  if (object.max == kUnlimited) return true;
  return frame.n_properties + (object.required & ~frame.seen).count() < object.max;
}

bool GrammarRun::may_end(const ObjectNode& object, const Frame& frame) {
  return frame.n_properties >= object.min && (object.required & ~frame.seen).none();
}

bool GrammarRun::may_come(const ObjectNode& object, const Frame& frame, std::uint32_t property,
                          std::uint32_t below) const {
  if (frame.seen[property]) return false;
  if (!object.required[property] && !has_room(object, frame)) return false;
  const std::uint32_t needed = std::min(grammar_->depth(object.values[property].json),
                                        grammar_->depth(object.values[property].text));
  return needed != OutputGrammar::kNeverEnds && needed + depth(below) + 1 <= kMaxDepth;
}

bool GrammarRun::unlisted_may_come(const ObjectNode& object, const Frame& frame, std::size_t i,
                                   std::uint32_t below) const {
  if (i >= object.unlisted.size() || !has_room(object, frame)) return false;
  const ObjectNode::Value& value = object.unlisted[i].value;
  const std::uint32_t needed = std::min(grammar_->depth(value.json), grammar_->depth(value.text));
  return needed != OutputGrammar::kNeverEnds && needed + depth(below) + 1 <= kMaxDepth;
}

bool GrammarRun::any_unlisted_may_come(const ObjectNode& object, const Frame& frame,
                                       std::uint32_t below) const {
  for (std::size_t i = 0; i < object.unlisted.size(); ++i) {
    if (unlisted_may_come(object, frame, i, below)) return true;
  }
  return false;
}

// Names that are finitely many are looked through; at most those that were used are met in vain.
bool GrammarRun::leads_to_unused(const ObjectNode::Unlisted& unlisted, const Frame& frame) const {
  if (unlisted.has_all || unlisted.endless[frame.count] || frame.extra == kNoFrame) return true;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> open = {{frame.count, frame.hash}};
  while (!open.empty()) {
    const auto [state, hash] = open.back();
    open.pop_back();
    if (unlisted.spelling->accepts(state) && !has_name(frame, hash)) return true;
    for (int byte = 0; byte < 256; ++byte) {
      const auto next = unlisted.spelling->step(state, static_cast<std::uint8_t>(byte));
      if (next == ByteDfa::kDead) continue;
      open.emplace_back(next, hashed(hash, static_cast<std::uint8_t>(byte)));
    }
  }
  return false;
}

bool GrammarRun::name_may_come(const ObjectNode& object, const Frame& frame,
                               std::uint32_t below) const {
  return any_unlisted_may_come(object, frame, below) ||
         any_name_may_come(object, frame, object.names.names_below(NameTrie::kRoot), below);
}

bool GrammarRun::any_name_may_come(const ObjectNode& object, const Frame& frame,
                                   NameTrie::Range range, std::uint32_t below) const {
  for (std::uint32_t i = range.first; i < range.end; ++i) {
    if (may_come(object, frame, i, below)) return true;
  }
  return false;
}

bool GrammarRun::has_name(const Frame& frame, std::uint64_t hash) const {
  for (std::uint32_t i = frame.extra; i != kNoFrame; i = names_[i].before) {
    if (names_[i].hash == hash) return true;
  }
  return false;
}

// The listed names go with the first kind of unlisted ones, as far as their spellings are alike.
void GrammarRun::begin_name(const ObjectNode& object, Reading reading, Readings& out) {
  Frame& frame = reading.top;
  frame.state = kInName;
  frame.hash = kHashSeed;
  const std::size_t n = std::max<std::size_t>(object.unlisted.size(), 1);
  for (std::size_t i = 0; i < n; ++i) {
    frame.unlisted = static_cast<std::uint32_t>(i);
    frame.name = i == 0 ? NameTrie::kRoot : NameTrie::kNone;
    frame.count = ByteDfa::kDead;
    if (unlisted_may_come(object, frame, i, reading.below)) {
      frame.count = object.unlisted[i].spelling->start();
      if (!leads_to_unused(object.unlisted[i], frame)) frame.count = ByteDfa::kDead;
    }
    const bool leads_to_listed =
        i == 0 &&
        any_name_may_come(object, frame, object.names.names_below(NameTrie::kRoot), reading.below);
    if (frame.count != ByteDfa::kDead || leads_to_listed) add(reading, out);
  }
}

bool GrammarRun::step_name(const ObjectNode& object, Reading& reading, std::uint8_t byte) const {
  Frame& frame = reading.top;
  if (frame.name != NameTrie::kNone) frame.name = object.names.child(frame.name, byte);
  frame.hash = hashed(frame.hash, byte);
  if (frame.count != ByteDfa::kDead) {
    const ObjectNode::Unlisted& unlisted = object.unlisted[frame.unlisted];
    frame.count = unlisted.spelling->step(frame.count, byte);
    if (frame.count != ByteDfa::kDead && leads_to_unused(unlisted, frame)) return true;
    frame.count = ByteDfa::kDead;
  }
  return frame.name != NameTrie::kNone &&
         any_name_may_come(object, frame, object.names.names_below(frame.name), reading.below);
}

bool GrammarRun::may_end_name(const ObjectNode& object, const Frame& frame) {
  if (frame.name != NameTrie::kNone && object.names.name_at(frame.name) != NameTrie::kNone) {
    return true;
  }
  return frame.count != ByteDfa::kDead &&
         object.unlisted[frame.unlisted].spelling->accepts(frame.count);
}

const ObjectNode::Value* GrammarRun::end_name(const ObjectNode& object, Reading& reading) {
  Frame& frame = reading.top;
  const std::uint32_t property =
      frame.name == NameTrie::kNone ? NameTrie::kNone : object.names.name_at(frame.name);
  const ObjectNode::Value* value = nullptr;
  if (property != NameTrie::kNone) {
    if (!may_come(object, frame, property, reading.below)) return nullptr;
    frame.seen.set(property);
    frame.name = property;
    value = &object.values[property];
  } else {
    if (has_name(frame, frame.hash)) return nullptr;
    names_.push_back({frame.hash, frame.extra});
    frame.extra = static_cast<std::uint32_t>(names_.size() - 1);
    frame.extras += mixed(frame.hash);
    frame.name = kUnlisted;
    value = &object.unlisted[frame.unlisted].value;
  }
  if (object.counts()) {
    ++frame.n_properties;
    if (object.max == kUnlimited) frame.n_properties = std::min(frame.n_properties, object.min);
  }
  frame.count = 0;
  frame.hash = 0;
  return value;
}

// --- Steps

void GrammarRun::step(const Readings& from, std::uint8_t byte, Readings& out) {
  out.clear();
  for (const Reading& reading : from.open) step_reading(reading, byte, out);
}

void GrammarRun::step_reading(const Reading& reading, std::uint8_t byte, Readings& out) {
  const GrammarNode& node = grammar_->node(reading.top.node);
  if (const auto* scalar = std::get_if<ScalarNode>(&node)) {
    step_scalar(*scalar, reading, byte, out);
  } else if (const auto* literal = std::get_if<LiteralNode>(&node)) {
    step_literal(*literal, reading, byte, out);
  } else if (const auto* array = std::get_if<ArrayNode>(&node)) {
    step_array(*array, reading, byte, out);
  } else if (const auto* object = std::get_if<ObjectNode>(&node)) {
    object->syntax == ObjectSyntax::kJson ? step_object(*object, reading, byte, out)
                                          : step_parameters(*object, reading, byte, out);
  }
}

void GrammarRun::step_literal(const LiteralNode& literal, Reading reading, std::uint8_t byte,
                              Readings& out) {
  if (static_cast<std::uint8_t>(literal.bytes[reading.top.count]) != byte) return;
  ++reading.top.count;
  reading.top.count == literal.bytes.size() ? leave(reading.below, out) : add(reading, out);
}

void GrammarRun::step_scalar(const ScalarNode& scalar, Reading reading, std::uint8_t byte,
                             Readings& out) {
  Frame& frame = reading.top;
  if (frame.state == kBeforeQuote) {
    if (byte != '"') return;
    frame.state = scalar.dfa->start();
    return add(reading, out);
  }
  const bool is_between_characters = scalar.dfa->accepts(frame.state);
  if (scalar.is_quoted && byte == '"' && is_between_characters) {
    if (frame.count >= scalar.min_chars) leave(reading.below, out);
    return;
  }
  if (scalar.counts() && is_between_characters) {
    if (frame.count == scalar.max_chars) return;
    const std::uint32_t most = scalar.max_chars == kUnlimited ? scalar.min_chars : kUnlimited;
    frame.count = std::min(frame.count + 1, most);
  }
  frame.state = scalar.dfa->step(frame.state, byte);
  if (frame.state != ByteDfa::kDead) add_scalar(scalar, reading, out);
}

// A scalar without quotes may end wherever it could.
void GrammarRun::add_scalar(const ScalarNode& scalar, const Reading& reading, Readings& out) {
  if (scalar.is_quoted) return add(reading, out);
  const bool may_end =
      scalar.dfa->accepts(reading.top.state) && reading.top.count >= scalar.min_chars;
  const bool is_full = may_end && reading.top.count == scalar.max_chars;
  if (scalar.dfa->n_next(reading.top.state) > 0 && !is_full) add(reading, out);
  if (may_end) leave(reading.below, out);
}

void GrammarRun::step_into(NodeId value, const Reading& parent, std::uint8_t byte, Readings& out) {
  Readings begun;
  enter(value, push(parent), begun);
  for (const Reading& reading : begun.open) step_reading(reading, byte, out);
}

void GrammarRun::step_array(const ArrayNode& array, Reading reading, std::uint8_t byte,
                            Readings& out) {
  Frame& frame = reading.top;
  const auto item_may_come = [&] {
    const std::uint32_t needed = grammar_->depth(array.item(frame.count));
    return frame.count < array.max && needed != OutputGrammar::kNeverEnds &&
           needed + depth(reading.below) + 1 <= kMaxDepth;
  };
  if (frame.state == kArrayBegin) {
    if (byte != '[') return;
    frame.state = kFirstItem;
    return add(reading, out);
  }
  if (take_space(frame, byte)) return add(reading, out);
  frame.space = 0;
  const bool may_end = frame.state != kNextItem && frame.count >= array.min;
  if (byte == ']') {
    if (may_end) leave(reading.below, out);
  } else if (frame.state == kAfterItem) {
    if (byte != ',' || !item_may_come()) return;
    frame.state = kNextItem;
    add(reading, out);
  } else if (item_may_come()) {
    const NodeId item = array.item(frame.count);
    const auto last_that_matters =
        std::max(static_cast<std::uint32_t>(array.prefix.size()), array.min);
    frame.count =
        std::min(frame.count + 1, array.max == kUnlimited ? last_that_matters : kUnlimited);
    frame.state = kAfterItem;
    step_into(item, reading, byte, out);
  }
}

void GrammarRun::step_object(const ObjectNode& object, Reading reading, std::uint8_t byte,
                             Readings& out) {
  Frame& frame = reading.top;
  switch (frame.state) {
    case kObjectBegin:
      if (byte != '{') return;
      frame.state = kFirstName;
      return add(reading, out);
    case kInName:
      if (byte == '"' && may_end_name(object, frame)) {
        if (end_name(object, reading) == nullptr) return;
        frame.state = kColon;
      } else if (!step_name(object, reading, byte)) {
        return;
      }
      return add(reading, out);
    case kColon:
      if (byte != ':') return;
      frame.state = kBeforeValue;
      return add(reading, out);
    default:
      break;
  }
  if (take_space(frame, byte)) return add(reading, out);
  frame.space = 0;
  if (frame.state == kBeforeValue) {
    const NodeId value = frame.name == kUnlisted ? object.unlisted[frame.unlisted].value.json
                                                 : object.values[frame.name].json;
    frame.state = kAfterValue;
    frame.name = frame.unlisted = 0;
    step_into(value, reading, byte, out);
  } else if (byte == '}') {
    if (frame.state != kNextName && may_end(object, frame)) leave(reading.below, out);
  } else if (frame.state == kAfterValue) {
    if (byte != ',' || !name_may_come(object, frame, reading.below)) return;
    frame.state = kNextName;
    add(reading, out);
  } else if (byte == '"') {
    begin_name(object, reading, out);
  }
}

// --- Parameters of a call

const std::string& GrammarRun::tag(std::uint32_t state) const {
  switch (state) {
    case kBeginTag:
      return grammar_->markup.begin;
    case kTextTag:
      return grammar_->markup.text_value;
    case kJsonTag:
      return grammar_->markup.json_value;
    case kEndTag:
      return grammar_->markup.end;
    default:
      return grammar_->markup.call_end;
  }
}

// What may come at the beginning of a line: a parameter, or the end of the call.
void GrammarRun::add_tags(const ObjectNode& object, Reading reading, bool is_first, Readings& out) {
  Frame& frame = reading.top;
  frame.count = 0;
  frame.name = 0;
  frame.unlisted = 0;
  if (name_may_come(object, frame, reading.below)) {
    frame.state = kBeginTag;
    add(reading, out);
  }
  if (!may_end(object, frame)) return;
  frame.state = kCallEndTag;
  add(reading, out);
  if (!is_first) return;
  frame.state = kEmptyCallEndTag;
  add(reading, out);
}

void GrammarRun::step_parameters(const ObjectNode& object, Reading reading, std::uint8_t byte,
                                 Readings& out) {
  Frame& frame = reading.top;
  if (frame.state == kInName) {
    if (byte != '"' || !may_end_name(object, frame)) {
      if (step_name(object, reading, byte)) add(reading, out);
      return;
    }
    const ObjectNode::Value* value = end_name(object, reading);
    if (value == nullptr) return;
    frame.count = 1;  // the quote is the first byte of both tags
    for (const auto& [node, state] : {std::pair(value->text, kTextTag), {value->json, kJsonTag}}) {
      const std::uint32_t needed = grammar_->depth(node);
      if (needed == OutputGrammar::kNeverEnds || needed + depth(reading.below) + 1 > kMaxDepth) {
        continue;
      }
      frame.state = state;
      add(reading, out);
    }
    return;
  }
  if (frame.state == kEmptyCallEndTag) {
    if (byte != '\n') return;
    frame.state = kCallEndTag;
    return add(reading, out);
  }
  const std::string& bytes = tag(frame.state);
  if (static_cast<std::uint8_t>(bytes[frame.count]) != byte) return;
  if (++frame.count < bytes.size()) return add(reading, out);
  frame.count = 0;
  switch (frame.state) {
    case kBeginTag:
      return begin_name(object, reading, out);
    case kTextTag:
    case kJsonTag: {
      const ObjectNode::Value& value = frame.name == kUnlisted
                                           ? object.unlisted[frame.unlisted].value
                                           : object.values[frame.name];
      const NodeId node = frame.state == kTextTag ? value.text : value.json;
      frame.state = kEndTag;
      frame.name = frame.unlisted = 0;
      return enter(node, push(reading), out);
    }
    case kEndTag:
      return add_tags(object, reading, /*is_first=*/false, out);
    default:
      return leave(reading.below, out);
  }
}

// --- For masks

const ScalarNode* GrammarRun::scalar(const Reading& reading) const {
  const auto* scalar = std::get_if<ScalarNode>(&grammar_->node(reading.top.node));
  return scalar != nullptr && reading.top.state != kBeforeQuote ? scalar : nullptr;
}

const SharedDfa* GrammarRun::free_name(const Reading& reading) const {
  const auto* object = std::get_if<ObjectNode>(&grammar_->node(reading.top.node));
  const bool is_free = object != nullptr && reading.top.state == kInName &&
                       reading.top.count != ByteDfa::kDead &&
                       object->unlisted[reading.top.unlisted].has_all;
  return is_free ? &object->unlisted[reading.top.unlisted].spelling : nullptr;
}

void GrammarRun::describe(const Reading& reading, std::uint32_t n_ahead, std::string& out) const {
  const Frame* frame = &reading.top;
  for (std::uint32_t below = reading.below;;) {
    const GrammarNode& node = grammar_->node(frame->node);
    append(frame->node, out);
    append(frame->state, out);
    if (const auto* scalar = std::get_if<ScalarNode>(&node)) {
      append(representative(frame->count, {scalar->min_chars, scalar->max_chars}, n_ahead), out);
    } else if (const auto* array = std::get_if<ArrayNode>(&node)) {
      const bool in_prefix = frame->count < array->prefix.size();
      append(in_prefix ? frame->count
                       : representative(frame->count, {array->min, array->max}, n_ahead),
             out);
      append(frame->space, out);
    } else if (std::holds_alternative<ObjectNode>(node)) {
      append(frame->count, out);
      append(frame->name, out);
      append(frame->space, out);
      append(frame->unlisted, out);
      append(frame->n_properties, out);
      append(frame->extras, out);
      append(frame->hash, out);
      append(frame->seen, out);
    } else {
      append(frame->count, out);
    }
    if (below == kNoFrame) break;
    frame = &frames_[below].frame;
    below = frames_[below].below;
  }
  append(kNoNode, out);
}

}  // namespace cairn::engine
