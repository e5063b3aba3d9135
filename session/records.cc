// The only file that includes the generated Protobuf code. Each record has a `to_proto`, a
// `from_proto`, and two lines that tie them to bytes. Unknown fields are ignored, as Protobuf does;
// unknown values of enumerations are refused, since skipping them would change meaning.
#include "session/records.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "engine/sampler.h"
#include "engine/sha256.h"
#include "session/records.pb.h"
#include "session/sealed_value.h"
#include "session/turn_limits.h"

namespace cairn::session {
namespace {

namespace pb = ::cairn::store::v1;

Status malformed(const char* what) {
  return corrupt(std::string("stored record: ") + what + " does not parse");
}

Status unknown_value(const char* what, std::int64_t value) {
  return {StatusCode::kUnsupported,
          std::string("stored record: ") + what + " " + std::to_string(value) + " is not known",
          "use a newer version of Cairn"};
}

template <std::size_t n>
std::string to_bytes(const std::array<std::uint8_t, n>& bytes) {
  return {bytes.begin(), bytes.end()};
}

template <std::size_t n>
Status from_bytes(const std::string& bytes, const char* what, std::array<std::uint8_t, n>& out) {
  if (bytes.size() != n) return malformed(what);
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return {};
}

// The enumerator with the number `value`, which lies in 0 .. last.
template <class Enum>
Status from_number(std::uint32_t value, Enum last, const char* what, Enum& out) {
  if (value > static_cast<std::uint32_t>(last)) return unknown_value(what, value);
  out = static_cast<Enum>(value);
  return {};
}

Status check_count(std::int64_t count, const char* what) {
  return count >= 0 ? Status() : malformed(what);
}

// Ids are non-negative whatever the model.
Status tokens_from_proto(const google::protobuf::RepeatedField<std::int32_t>& in, const char* what,
                         std::vector<TokenId>& out) {
  if (std::any_of(in.begin(), in.end(), [](TokenId id) { return id < 0; })) return malformed(what);
  out.assign(in.begin(), in.end());
  return {};
}

template <class Proto>
Status parse(std::string_view bytes, const char* what, Proto& out) {
  if (bytes.size() > kRecordBytesMax) return malformed(what);
  if (!out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return malformed(what);
  return {};
}

// -- messages and events --

void to_proto(const Message& message, pb::Message& out) {
  out.set_role(static_cast<std::uint32_t>(message.role));
  for (const ContentBlock& block : message.content) {
    pb::ContentBlock& added = *out.add_content();
    added.set_kind(static_cast<std::uint32_t>(block.kind));
    added.set_text(block.text);
    added.set_tool_call_id(block.tool_call_id);
    added.set_is_volatile(block.is_volatile);
  }
  out.set_tools_json(message.tools_json);
  out.set_response_format_json(message.response_format_json);
  out.set_reasoning(message.reasoning);
  for (const ToolCall& call : message.tool_calls) {
    pb::ToolCall& added = *out.add_tool_calls();
    added.set_id(call.id);
    added.set_name(call.name);
    added.set_arguments_json(call.arguments_json);
  }
  out.set_leave_open(message.leave_open);
  out.mutable_sampled_tokens()->Add(message.sampled_tokens.begin(), message.sampled_tokens.end());
  out.set_tool_call_id(message.tool_call_id);
  out.set_task(message.task);
}

Status from_proto(const pb::Message& in, Message& out) {
  CAIRN_RETURN_IF_ERROR(from_number(in.role(), Role::kLatestReminder, "role", out.role));
  for (const pb::ContentBlock& block : in.content()) {
    ContentBlock& added = out.content.emplace_back();
    CAIRN_RETURN_IF_ERROR(
        from_number(block.kind(), ContentBlock::Kind::kToolResult, "kind of content", added.kind));
    added.text = block.text();
    added.tool_call_id = block.tool_call_id();
    added.is_volatile = block.is_volatile();
  }
  out.tools_json = in.tools_json();
  out.response_format_json = in.response_format_json();
  out.reasoning = in.reasoning();
  for (const pb::ToolCall& call : in.tool_calls()) {
    out.tool_calls.push_back({call.id(), call.name(), call.arguments_json()});
  }
  out.leave_open = in.leave_open();
  CAIRN_RETURN_IF_ERROR(
      tokens_from_proto(in.sampled_tokens(), "sampled tokens", out.sampled_tokens));
  out.tool_call_id = in.tool_call_id();
  out.task = in.task();
  return {};
}

void to_proto(const SamplingParams& sampling, pb::SamplingParams& out) {
  out.set_temperature(sampling.temperature);
  out.set_top_k(sampling.top_k);
  out.set_top_p(sampling.top_p);
  out.set_min_p(sampling.min_p);
  out.set_repetition_penalty(sampling.repetition_penalty);
  out.set_frequency_penalty(sampling.frequency_penalty);
  out.set_presence_penalty(sampling.presence_penalty);
  out.set_penalty_window(sampling.penalty_window);
  out.set_seed(sampling.seed);
}

Status from_proto(const pb::SamplingParams& in, SamplingParams& out) {
  out = {.temperature = in.temperature(),
         .top_k = in.top_k(),
         .top_p = in.top_p(),
         .min_p = in.min_p(),
         .repetition_penalty = in.repetition_penalty(),
         .frequency_penalty = in.frequency_penalty(),
         .presence_penalty = in.presence_penalty(),
         .penalty_window = in.penalty_window(),
         .seed = in.seed()};
  return engine::validate(out).ok() ? Status() : malformed("sampling parameters");
}

void to_proto(const TurnLimits& limits, pb::TurnLimits& out) {
  out.set_reasoning_tokens(limits.reasoning_tokens);
  out.set_context_tokens(limits.context_tokens);
  out.set_tool_calls(limits.tool_calls);
  out.set_time_ms(limits.time.count());
  for (const std::string& stop : limits.stop) out.add_stop(stop);
}

Status from_proto(const pb::TurnLimits& in, TurnLimits& out) {
  out = {.reasoning_tokens = in.reasoning_tokens(),
         .context_tokens = in.context_tokens(),
         .tool_calls = in.tool_calls(),
         .time = std::chrono::milliseconds(in.time_ms()),
         .stop = {in.stop().begin(), in.stop().end()}};
  return validate(out).ok() ? Status() : malformed("limits of a turn");
}

// The newest stored block of a place in the log: of a session's head, a mark, a branch.
template <class Record, class Proto>
void chain_to_proto(const Record& record, Proto& out) {
  if (record.stored_blocks > 0) out.set_chain_key(to_bytes(record.chain_key));
  out.set_stored_blocks(record.stored_blocks);
}
template <class Proto, class Record>
Status chain_from_proto(const Proto& in, Record& record) {
  record.stored_blocks = in.stored_blocks();
  if (record.stored_blocks == 0) return {};
  return from_bytes(in.chain_key(), "chain key", record.chain_key);
}

template <class Body, class Proto>
void stored_state_to_proto(const Body& body, Proto& out) {
  chain_to_proto(body, out);
  out.set_n_tokens(body.n_tokens);
}
template <class Proto, class Body>
Status stored_state_from_proto(const Proto& in, Body& body) {
  body.n_tokens = in.n_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(body.n_tokens, "number of tokens"));
  return chain_from_proto(in, body);
}

void to_proto(const HeadState& head, pb::HeadState& out) {
  out.set_n_tokens(head.n_tokens);
  out.set_appended_tokens(head.appended_tokens);
  out.set_open_turn(head.open_turn);
  out.set_n_turns(head.n_turns);
  out.set_last_rewind(head.last_rewind);
  out.set_last_model(head.last_model);
}

Status from_proto(const pb::HeadState& in, HeadState& out) {
  out.n_tokens = in.n_tokens();
  out.appended_tokens = in.appended_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(out.n_tokens, "number of tokens"));
  CAIRN_RETURN_IF_ERROR(check_count(out.appended_tokens, "number of appended tokens"));
  out.open_turn = in.open_turn();
  out.n_turns = in.n_turns();
  out.last_rewind = in.last_rewind();
  out.last_model = in.last_model();
  return chain_from_proto(in, out);
}

// Writes the body of an event into the matching field of `out`.
struct BodyWriter {
  pb::Event& out;

  void operator()(const UnknownEvent&) const { out.set_ignorable(true); }
  void operator()(const MessageAppended& body) const {
    to_proto(body.message, *out.mutable_message_appended()->mutable_message());
  }
  void operator()(const TurnStarted& body) const {
    pb::TurnStarted& started = *out.mutable_turn_started();
    started.set_turn(body.turn);
    to_proto(body.sampling, *started.mutable_sampling());
    started.set_max_tokens(body.max_tokens);
    started.set_n_prompt_tokens(body.n_prompt_tokens);
    started.set_prompt_digest(to_bytes(body.prompt_digest));
    started.set_thinking(static_cast<std::uint32_t>(body.thinking));
    started.set_effort(body.effort);
    started.set_continues(body.continues);
    started.mutable_begun()->Add(body.begun.begin(), body.begun.end());
    to_proto(body.limits, *started.mutable_limits());
    started.set_priority(static_cast<std::uint32_t>(body.priority));
    if (body.output == OutputRules{}) return;
    pb::OutputRules& output = *started.mutable_output();
    output.set_constrain_tools(body.output.constrain_tools);
    output.set_tool_choice(static_cast<std::uint32_t>(body.output.tool_choice));
    output.set_tool_name(body.output.tool_name);
    output.set_response_format_json(body.output.response_format_json);
  }
  void operator()(const TokensGenerated& body) const {
    pb::TokensGenerated& generated = *out.mutable_tokens_generated();
    generated.set_turn(body.turn);
    generated.mutable_tokens()->Add(body.tokens.begin(), body.tokens.end());
  }
  void operator()(const TurnEnded& body) const {
    pb::TurnEnded& ended = *out.mutable_turn_ended();
    ended.set_turn(body.turn);
    ended.set_end_reason(static_cast<std::uint32_t>(body.end_reason));
    ended.set_n_tokens(body.n_tokens);
    to_proto(body.message, *ended.mutable_message());
    ended.set_status_code(static_cast<std::uint32_t>(body.status_code));
    ended.set_status_message(body.status_message);
  }
  void operator()(const MarkSet& body) const {
    pb::MarkSet& mark = *out.mutable_mark_set();
    mark.set_name(body.name);
    stored_state_to_proto(body, mark);
  }
  void operator()(const HeadMoved& body) const {
    pb::HeadMoved& moved = *out.mutable_head_moved();
    moved.set_from(body.from);
    moved.set_by_sync(body.by_sync);
    stored_state_to_proto(body, moved);
  }
  void operator()(const ModelChanged& body) const {
    out.mutable_model_changed()->set_model_fingerprint(body.model_fingerprint);
  }
};

Result<EventBody> from_proto(const pb::MessageAppended& in) {
  MessageAppended body;
  CAIRN_RETURN_IF_ERROR(from_proto(in.message(), body.message));
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::TurnStarted& in) {
  TurnStarted body;
  body.turn = in.turn();
  CAIRN_RETURN_IF_ERROR(from_proto(in.sampling(), body.sampling));
  body.max_tokens = in.max_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(body.max_tokens, "limit of tokens"));
  body.n_prompt_tokens = in.n_prompt_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(body.n_prompt_tokens, "number of prompt tokens"));
  CAIRN_RETURN_IF_ERROR(from_bytes(in.prompt_digest(), "prompt digest", body.prompt_digest));
  CAIRN_RETURN_IF_ERROR(
      from_number(in.thinking(), ThinkingMode::kOn, "thinking mode", body.thinking));
  body.effort = in.effort();
  if (body.effort < 0 || body.effort > 100) return malformed("effort");
  body.continues = in.continues();
  CAIRN_RETURN_IF_ERROR(tokens_from_proto(in.begun(), "begun tokens", body.begun));
  CAIRN_RETURN_IF_ERROR(from_proto(in.limits(), body.limits));
  CAIRN_RETURN_IF_ERROR(
      from_number(in.priority(), TurnPriority::kBackground, "priority", body.priority));
  body.output.constrain_tools = in.output().constrain_tools();
  CAIRN_RETURN_IF_ERROR(from_number(in.output().tool_choice(), ToolChoice::kNamed, "tool choice",
                                    body.output.tool_choice));
  body.output.tool_name = in.output().tool_name();
  body.output.response_format_json = in.output().response_format_json();
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::TokensGenerated& in) {
  TokensGenerated body;
  body.turn = in.turn();
  CAIRN_RETURN_IF_ERROR(tokens_from_proto(in.tokens(), "generated tokens", body.tokens));
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::TurnEnded& in) {
  TurnEnded body;
  body.turn = in.turn();
  CAIRN_RETURN_IF_ERROR(
      from_number(in.end_reason(), EndReason::kStopString, "end reason", body.end_reason));
  body.n_tokens = in.n_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(body.n_tokens, "number of tokens"));
  CAIRN_RETURN_IF_ERROR(from_proto(in.message(), body.message));
  CAIRN_RETURN_IF_ERROR(
      from_number(in.status_code(), StatusCode::kAlreadyExists, "status code", body.status_code));
  body.status_message = in.status_message();
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::MarkSet& in) {
  MarkSet body;
  body.name = in.name();
  CAIRN_RETURN_IF_ERROR(stored_state_from_proto(in, body));
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::HeadMoved& in) {
  HeadMoved body;
  body.from = in.from();
  body.by_sync = in.by_sync();
  CAIRN_RETURN_IF_ERROR(stored_state_from_proto(in, body));
  return EventBody(std::move(body));
}

Result<EventBody> from_proto(const pb::ModelChanged& in) {
  return EventBody(ModelChanged{in.model_fingerprint()});
}

Result<EventBody> body_of(const pb::Event& event) {
  switch (event.kind_case()) {
    case pb::Event::kMessageAppended:
      return from_proto(event.message_appended());
    case pb::Event::kTurnStarted:
      return from_proto(event.turn_started());
    case pb::Event::kTokensGenerated:
      return from_proto(event.tokens_generated());
    case pb::Event::kTurnEnded:
      return from_proto(event.turn_ended());
    case pb::Event::kMarkSet:
      return from_proto(event.mark_set());
    case pb::Event::kHeadMoved:
      return from_proto(event.head_moved());
    case pb::Event::kModelChanged:
      return from_proto(event.model_changed());
    case pb::Event::KIND_NOT_SET:
      break;
  }
  if (event.ignorable()) return EventBody(UnknownEvent{});
  return Status(StatusCode::kUnsupported,
                "stored record: event " + std::to_string(event.sequence()) +
                    " is of a kind that this version does not know",
                "use a newer version of Cairn");
}

// -- the key of the store --

void to_proto(const KeyWrap& wrap, pb::KeyWrap& out) {
  out.set_source(static_cast<std::uint32_t>(wrap.source));
  out.set_wrapped_key(to_bytes(wrap.wrapped_key));
  if (wrap.source != SecretSource::kPassphrase) return;
  out.set_salt(to_bytes(wrap.salt));
  out.set_log2_n(wrap.cost.log2_n);
  out.set_r(wrap.cost.r);
  out.set_p(wrap.cost.p);
}

Status from_proto(const pb::KeyWrap& in, KeyWrap& out) {
  if (in.source() == 0) return malformed("source of the store's key");
  CAIRN_RETURN_IF_ERROR(
      from_number(in.source(), SecretSource::kPassphrase, "source of the store's key", out.source));
  CAIRN_RETURN_IF_ERROR(from_bytes(in.wrapped_key(), "wrapped key", out.wrapped_key));
  if (out.source != SecretSource::kPassphrase) return {};
  CAIRN_RETURN_IF_ERROR(from_bytes(in.salt(), "salt of scrypt", out.salt));
  out.cost = {.log2_n = in.log2_n(), .r = in.r(), .p = in.p()};
  return {};
}

}  // namespace

std::array<std::uint8_t, 32> token_digest(const std::vector<TokenId>& tokens) {
  std::vector<std::byte> bytes;
  bytes.reserve(4 * tokens.size());
  for (const TokenId token : tokens) {
    const auto value = static_cast<std::uint32_t>(token);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return engine::sha256(bytes);
}

// -- store, names, namespaces --

std::string encode(const StoreHeader& header) {
  pb::StoreHeader out;
  out.set_store_id(to_bytes(header.store_id));
  out.set_format_version(header.format_version);
  out.set_reader_version(header.reader_version);
  out.set_created_ms(header.created_ms);
  out.set_created_by(header.created_by);
  if (header.key_wrap) to_proto(*header.key_wrap, *out.mutable_key_wrap());
  return out.SerializeAsString();
}

Result<StoreHeader> decode_store_header(std::string_view bytes) {
  pb::StoreHeader in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "store header", in));
  StoreHeader header;
  CAIRN_RETURN_IF_ERROR(from_bytes(in.store_id(), "store id", header.store_id));
  header.format_version = in.format_version();
  header.reader_version = in.reader_version();
  header.created_ms = in.created_ms();
  header.created_by = in.created_by();
  if (in.has_key_wrap()) {
    CAIRN_RETURN_IF_ERROR(from_proto(in.key_wrap(), header.key_wrap.emplace()));
  }
  return header;
}

std::string encode_session_name(const SessionId& id) {
  pb::SessionName out;
  out.set_session_id(to_bytes(id.bytes));
  return out.SerializeAsString();
}

Result<SessionId> decode_session_name(std::string_view bytes) {
  pb::SessionName in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "session name", in));
  SessionId id;
  CAIRN_RETURN_IF_ERROR(from_bytes(in.session_id(), "session id", id.bytes));
  return id;
}

std::string encode_number(std::uint64_t number) {
  pb::NumberRecord out;
  out.set_number(number);
  return out.SerializeAsString();
}

Result<std::uint64_t> decode_number(std::string_view bytes) {
  pb::NumberRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "number", in));
  return in.number();
}

std::string encode(const NamespaceRecord& record) {
  pb::NamespaceRecord out;
  out.set_number(record.number);
  out.set_model_fingerprint(record.kv_namespace.model_fingerprint);
  out.set_kv_format_version(record.kv_namespace.kv_format_version);
  out.set_salt(record.kv_namespace.salt);
  out.set_reserved_blocks(record.reserved_blocks);
  return out.SerializeAsString();
}

Result<NamespaceRecord> decode_namespace_record(std::string_view bytes) {
  pb::NamespaceRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "namespace", in));
  return NamespaceRecord{.number = in.number(),
                         .kv_namespace = {.model_fingerprint = in.model_fingerprint(),
                                          .kv_format_version = in.kv_format_version(),
                                          .salt = in.salt()},
                         .reserved_blocks = in.reserved_blocks()};
}

// -- sessions and their log --

HeadState head_of(const SessionRecord& record) {
  return {.n_tokens = record.head_tokens,
          .appended_tokens = record.appended_tokens,
          .open_turn = record.open_turn,
          .n_turns = record.n_turns,
          .last_rewind = record.last_rewind,
          .last_model = record.last_model,
          .chain_key = record.chain_key,
          .stored_blocks = record.stored_blocks};
}

void set_head(SessionRecord& record, const HeadState& head) {
  record.head_tokens = head.n_tokens;
  record.appended_tokens = head.appended_tokens;
  record.open_turn = head.open_turn;
  record.turn_open = head.open_turn != 0;
  record.n_turns = head.n_turns;
  record.last_rewind = head.last_rewind;
  record.last_model = head.last_model;
  record.chain_key = head.chain_key;
  record.stored_blocks = head.stored_blocks;
}

std::string encode(const SessionRecord& record) {
  pb::SessionRecord out;
  out.set_session_id(to_bytes(record.id.bytes));
  out.set_name(record.name);
  out.set_created_ms(record.created_ms);
  out.set_used_ms(record.used_ms);
  out.set_model_fingerprint(record.model_fingerprint);
  out.mutable_options()->set_restore_policy(static_cast<std::uint32_t>(record.options.restore));
  out.mutable_options()->set_thinking(record.options.thinking);
  out.mutable_options()->set_effort(record.options.effort);
  out.mutable_options()->set_durability(static_cast<std::uint32_t>(record.options.durability));
  out.mutable_options()->set_salt(record.options.salt);
  out.set_head_sequence(record.head_sequence);
  out.set_n_events(record.n_events);
  out.set_head_tokens(record.head_tokens);
  out.set_kv_namespace(record.kv_namespace);
  out.set_turn_open(record.turn_open);
  if (record.origin) out.set_origin_session(to_bytes(record.origin->bytes));
  out.set_origin_sequence(record.origin_sequence);
  for (const auto& [key, value] : record.labels) {
    pb::Label& label = *out.add_labels();
    label.set_key(key);
    label.set_value(value);
  }
  chain_to_proto(record, out);
  out.set_open_turn(record.open_turn);
  out.set_n_turns(record.n_turns);
  out.set_appended_tokens(record.appended_tokens);
  out.set_removed(record.removed);
  out.set_prefill_us_per_token(record.prefill_us_per_token);
  out.set_restore_us_per_mib(record.restore_us_per_mib);
  out.set_n_branches(record.n_branches);
  out.set_last_rewind(record.last_rewind);
  out.set_last_model(record.last_model);
  return out.SerializeAsString();
}

Result<SessionRecord> decode_session_record(std::string_view bytes) {
  pb::SessionRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "session", in));
  SessionRecord record;
  CAIRN_RETURN_IF_ERROR(from_bytes(in.session_id(), "session id", record.id.bytes));
  record.name = in.name();
  record.created_ms = in.created_ms();
  record.used_ms = in.used_ms();
  record.model_fingerprint = in.model_fingerprint();
  CAIRN_RETURN_IF_ERROR(from_number(in.options().restore_policy(), RestorePolicy::kBounded,
                                    "restore policy", record.options.restore));
  record.options.thinking = in.options().thinking();
  record.options.effort = in.options().effort();
  CAIRN_RETURN_IF_ERROR(from_number(in.options().durability(), SessionDurability::kBuffered,
                                    "durability", record.options.durability));
  record.options.salt = in.options().salt();
  record.head_sequence = in.head_sequence();
  record.n_events = in.n_events();
  record.head_tokens = in.head_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(record.head_tokens, "number of tokens"));
  record.kv_namespace = in.kv_namespace();
  record.turn_open = in.turn_open();
  if (!in.origin_session().empty()) {
    CAIRN_RETURN_IF_ERROR(from_bytes(in.origin_session(), "origin", record.origin.emplace().bytes));
    if (*record.origin == record.id) return malformed("origin");
  }
  record.origin_sequence = in.origin_sequence();
  for (const pb::Label& label : in.labels()) record.labels[label.key()] = label.value();
  CAIRN_RETURN_IF_ERROR(chain_from_proto(in, record));
  record.open_turn = in.open_turn();
  record.n_turns = in.n_turns();
  record.appended_tokens = in.appended_tokens();
  CAIRN_RETURN_IF_ERROR(check_count(record.appended_tokens, "number of appended tokens"));
  record.removed = in.removed();
  record.prefill_us_per_token = in.prefill_us_per_token();
  record.restore_us_per_mib = in.restore_us_per_mib();
  record.n_branches = in.n_branches();
  record.last_rewind = in.last_rewind();
  record.last_model = in.last_model();
  return record;
}

Result<std::string> encode(const LogEvent& event) {
  pb::Event out;
  out.set_sequence(event.sequence);
  out.set_parent(event.parent);
  out.set_time_ms(event.time_ms);
  std::visit(BodyWriter{out}, event.body);
  if (event.head) {
    to_proto(*event.head, *out.mutable_head());
    const bool has_chain = !std::holds_alternative<TokensGenerated>(event.body);
    if (has_chain) chain_to_proto(*event.head, *out.mutable_head());
  }
  if (const std::size_t n_bytes = out.ByteSizeLong(); n_bytes > kRecordBytesMax) {
    return invalid_argument("session log: an event of " + std::to_string(n_bytes) +
                            " bytes; at most " + std::to_string(kRecordBytesMax) + " are allowed");
  }
  return out.SerializeAsString();
}

Result<LogEvent> decode_event(std::string_view bytes) {
  pb::Event in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "event", in));
  // A tree: whoever follows parents comes to the root.
  if (in.parent() >= in.sequence()) return malformed("parent of an event");
  CAIRN_ASSIGN_OR_RETURN(EventBody body, body_of(in));
  LogEvent event = {in.sequence(), in.parent(), in.time_ms(), std::move(body)};
  if (in.has_head()) CAIRN_RETURN_IF_ERROR(from_proto(in.head(), event.head.emplace()));
  return event;
}

// -- blocks and tails --

std::string encode(const BlockRecord& record) {
  pb::BlockRecord out;
  out.set_kv_namespace(record.kv_namespace);
  out.set_number(record.number);
  out.set_parent(to_bytes(record.parent));
  out.set_depth(record.depth);
  out.set_provenance(static_cast<std::uint32_t>(record.provenance));
  out.set_n_tokens(record.n_tokens);
  out.set_payload_bytes(record.payload_bytes);
  return out.SerializeAsString();
}

Result<BlockRecord> decode_block_record(std::string_view bytes) {
  pb::BlockRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "block record", in));
  BlockRecord record;
  record.kv_namespace = in.kv_namespace();
  record.number = in.number();
  CAIRN_RETURN_IF_ERROR(from_bytes(in.parent(), "parent key", record.parent));
  record.depth = in.depth();
  CAIRN_RETURN_IF_ERROR(
      from_number(in.provenance(), Provenance::kBounded, "provenance", record.provenance));
  record.n_tokens = in.n_tokens();
  record.payload_bytes = in.payload_bytes();
  return record;
}

std::string encode(const BlockDescriptor& descriptor) {
  pb::BlockDescriptor out;
  out.set_key(to_bytes(descriptor.key));
  out.set_parent(to_bytes(descriptor.parent));
  out.set_depth(descriptor.depth);
  out.set_provenance(static_cast<std::uint32_t>(descriptor.provenance));
  out.mutable_tokens()->Add(descriptor.tokens.begin(), descriptor.tokens.end());
  out.set_payload_bytes(descriptor.payload_bytes);
  return out.SerializeAsString();
}

Result<BlockDescriptor> decode_block_descriptor(std::string_view bytes) {
  pb::BlockDescriptor in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "block descriptor", in));
  BlockDescriptor descriptor;
  CAIRN_RETURN_IF_ERROR(from_bytes(in.key(), "block key", descriptor.key));
  CAIRN_RETURN_IF_ERROR(from_bytes(in.parent(), "parent key", descriptor.parent));
  descriptor.depth = in.depth();
  CAIRN_RETURN_IF_ERROR(
      from_number(in.provenance(), Provenance::kBounded, "provenance", descriptor.provenance));
  CAIRN_RETURN_IF_ERROR(tokens_from_proto(in.tokens(), "tokens of a block", descriptor.tokens));
  descriptor.payload_bytes = in.payload_bytes();
  return descriptor;
}

std::string encode(const TailRecord& record) {
  pb::TailRecord out;
  out.set_session_id(to_bytes(record.session.bytes));
  out.set_slot(record.slot);
  out.set_position(record.position);
  out.set_chain_key(to_bytes(record.chain_key));
  out.set_sequence(record.sequence);
  out.set_payload_bytes(record.payload_bytes);
  out.set_number(record.number);
  return out.SerializeAsString();
}

Result<TailRecord> decode_tail_record(std::string_view bytes) {
  pb::TailRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "tail", in));
  TailRecord record;
  CAIRN_RETURN_IF_ERROR(from_bytes(in.session_id(), "session id", record.session.bytes));
  record.slot = in.slot();
  record.position = in.position();
  CAIRN_RETURN_IF_ERROR(check_count(record.position, "position of a tail"));
  CAIRN_RETURN_IF_ERROR(from_bytes(in.chain_key(), "chain key", record.chain_key));
  record.sequence = in.sequence();
  record.payload_bytes = in.payload_bytes();
  record.number = in.number();
  return record;
}

// -- what the store knows of itself --

namespace {

// Every counter in the order on disk. Append only.
template <class Counters, class Visit>
void visit_counters(Counters& counters, Visit visit) {
  visit(counters.turns);
  visit(counters.tokens_from_memory);
  visit(counters.tokens_from_disk);
  visit(counters.tokens_replayed);
  visit(counters.tokens_prefilled);
  visit(counters.tokens_generated);
  visit(counters.bytes_committed);
  visit(counters.bytes_written);
  visit(counters.blocks_written);
  visit(counters.blocks_shared);
  visit(counters.blocks_evicted);
  visit(counters.tails_evicted);
  visit(counters.blocks_corrupt);
  visit(counters.tails_corrupt);
  visit(counters.commits_without_state);
  for (auto& count : counters.misses) visit(count);
}

}  // namespace

std::string encode(const StoreCounters& counters) {
  pb::CounterRecord out;
  visit_counters(counters, [&](std::int64_t count) { out.add_values(count); });
  return out.SerializeAsString();
}

Result<StoreCounters> decode_store_counters(std::string_view bytes) {
  pb::CounterRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "counters", in));
  StoreCounters counters;
  int i = 0;
  visit_counters(counters, [&](std::int64_t& count) {
    if (i < in.values_size()) count = in.values(i);
    ++i;
  });
  return counters;
}

std::string encode(const Incident& incident) {
  pb::IncidentRecord out;
  out.set_time_ms(incident.time_ms);
  out.set_commits_lost(incident.commits_lost);
  out.set_detail(incident.detail);
  return out.SerializeAsString();
}

Result<Incident> decode_incident(std::string_view bytes) {
  pb::IncidentRecord in;
  CAIRN_RETURN_IF_ERROR(parse(bytes, "incident", in));
  return Incident{in.time_ms(), in.commits_lost(), in.detail()};
}

}  // namespace cairn::session
