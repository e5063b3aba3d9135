#include "session/records.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

Message full_message() {
  Message message;
  message.role = Role::kAssistant;
  message.content = {{ContentBlock::Kind::kText, "text", ""},
                     {ContentBlock::Kind::kToolResult, "result", "call_1"}};
  message.tools_json = "[{}]";
  message.response_format_json = "{}";
  message.reasoning = "cut inside a character: \xe2\x82";
  message.tool_calls = {{"call_2", "files::read", R"({"path": "a"})"}};
  message.leave_open = true;
  message.sampled_tokens = {0, 1, 129279};
  message.tool_call_id = "call_0";
  message.task = "title";
  return message;
}

void expect_equal(const Message& a, const Message& b) {
  EXPECT_EQ(a.role, b.role);
  ASSERT_EQ(a.content.size(), b.content.size());
  for (std::size_t i = 0; i < a.content.size(); ++i) {
    EXPECT_EQ(a.content[i].kind, b.content[i].kind);
    EXPECT_EQ(a.content[i].text, b.content[i].text);
    EXPECT_EQ(a.content[i].tool_call_id, b.content[i].tool_call_id);
  }
  EXPECT_EQ(a.tools_json, b.tools_json);
  EXPECT_EQ(a.response_format_json, b.response_format_json);
  EXPECT_EQ(a.reasoning, b.reasoning);
  ASSERT_EQ(a.tool_calls.size(), b.tool_calls.size());
  for (std::size_t i = 0; i < a.tool_calls.size(); ++i) {
    EXPECT_EQ(a.tool_calls[i].id, b.tool_calls[i].id);
    EXPECT_EQ(a.tool_calls[i].name, b.tool_calls[i].name);
    EXPECT_EQ(a.tool_calls[i].arguments_json, b.tool_calls[i].arguments_json);
  }
  EXPECT_EQ(a.leave_open, b.leave_open);
  EXPECT_EQ(a.sampled_tokens, b.sampled_tokens);
  EXPECT_EQ(a.tool_call_id, b.tool_call_id);
  EXPECT_EQ(a.task, b.task);
}

template <class Body>
Body round_trip(const Body& body) {
  const LogEvent event = {7, 5, 1'700'000'000'123, body};
  const auto bytes = encode(event);
  EXPECT_TRUE(bytes.ok());
  const auto back = decode_event(*bytes);
  EXPECT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->sequence, 7u);
  EXPECT_EQ(back->parent, 5u);
  EXPECT_EQ(back->time_ms, 1'700'000'000'123);
  EXPECT_TRUE(std::holds_alternative<Body>(back->body));
  return std::get<Body>(back->body);
}

TEST(Records, message_event_comes_back_whole) {
  expect_equal(round_trip(MessageAppended{full_message()}).message, full_message());
  expect_equal(round_trip(MessageAppended{Message()}).message, Message());
}

TEST(Records, turn_start_comes_back_whole) {
  TurnStarted started;
  started.turn = 3;
  started.sampling = {.temperature = 0.25f,
                      .top_k = 40,
                      .top_p = 0.5f,
                      .min_p = 0.0625f,
                      .repetition_penalty = 1.5f,
                      .frequency_penalty = -0.5f,
                      .presence_penalty = 0.75f,
                      .penalty_window = 64,
                      .seed = std::numeric_limits<std::uint64_t>::max()};
  started.max_tokens = 4096;
  started.n_prompt_tokens = 1'000'000;
  started.prompt_digest = token_digest({1, 2, 3});
  started.output = {.constrain_tools = true,
                    .tool_choice = ToolChoice::kNamed,
                    .tool_name = "ns::tool",
                    .response_format_json = "{}"};
  const TurnStarted back = round_trip(started);
  EXPECT_EQ(back.turn, started.turn);
  EXPECT_EQ(back.sampling.temperature, started.sampling.temperature);
  EXPECT_EQ(back.sampling.top_k, started.sampling.top_k);
  EXPECT_EQ(back.sampling.top_p, started.sampling.top_p);
  EXPECT_EQ(back.sampling.min_p, started.sampling.min_p);
  EXPECT_EQ(back.sampling.repetition_penalty, started.sampling.repetition_penalty);
  EXPECT_EQ(back.sampling.frequency_penalty, started.sampling.frequency_penalty);
  EXPECT_EQ(back.sampling.presence_penalty, started.sampling.presence_penalty);
  EXPECT_EQ(back.sampling.penalty_window, started.sampling.penalty_window);
  EXPECT_EQ(back.sampling.seed, started.sampling.seed);
  EXPECT_EQ(back.max_tokens, started.max_tokens);
  EXPECT_EQ(back.n_prompt_tokens, started.n_prompt_tokens);
  EXPECT_EQ(back.prompt_digest, started.prompt_digest);
  EXPECT_EQ(back.output, started.output);
  EXPECT_EQ(round_trip(TurnStarted{}).output, OutputRules{});
}

TEST(Records, token_group_and_turn_end_come_back_whole) {
  const TokensGenerated tokens = round_trip(TokensGenerated{4, {5, 0, 129279}});
  EXPECT_EQ(tokens.turn, 4u);
  EXPECT_EQ(tokens.tokens, (std::vector<TokenId>{5, 0, 129279}));
  const TurnEnded ended = round_trip(
      TurnEnded{4, EndReason::kError, 17, full_message(), StatusCode::kContextFull, "full"});
  EXPECT_EQ(ended.turn, 4u);
  EXPECT_EQ(ended.end_reason, EndReason::kError);
  EXPECT_EQ(ended.n_tokens, 17);
  expect_equal(ended.message, full_message());
  EXPECT_EQ(ended.status_code, StatusCode::kContextFull);
  EXPECT_EQ(ended.status_message, "full");
}

TEST(Records, session_record_comes_back_whole) {
  SessionRecord record;
  record.id.bytes = {1, 2, 3};
  record.name = "name";
  record.created_ms = 1;
  record.used_ms = 2;
  record.model_fingerprint = "fingerprint";
  record.options = {.restore = RestorePolicy::kBounded, .thinking = true, .effort = 30};
  record.head_sequence = 9;
  record.n_events = 10;
  record.head_tokens = 11;
  record.kv_namespace = 12;
  record.turn_open = true;
  const auto back = decode_session_record(encode(record));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->id, record.id);
  EXPECT_EQ(back->name, record.name);
  EXPECT_EQ(back->created_ms, record.created_ms);
  EXPECT_EQ(back->used_ms, record.used_ms);
  EXPECT_EQ(back->model_fingerprint, record.model_fingerprint);
  EXPECT_EQ(back->options.restore, record.options.restore);
  EXPECT_EQ(back->options.thinking, record.options.thinking);
  EXPECT_EQ(back->options.effort, record.options.effort);
  EXPECT_EQ(back->head_sequence, record.head_sequence);
  EXPECT_EQ(back->n_events, record.n_events);
  EXPECT_EQ(back->head_tokens, record.head_tokens);
  EXPECT_EQ(back->kv_namespace, record.kv_namespace);
  EXPECT_EQ(back->turn_open, record.turn_open);
}

TEST(Records, the_other_records_come_back_whole) {
  const StoreHeader header = {{1, 2}, 1, 1, 3, "cairn 0.1.0"};
  EXPECT_EQ(*decode_store_header(encode(header)), header);
  const NamespaceRecord name_space = {2, {"fingerprint", 3, std::string("\0\xff", 2)}, 1ULL << 60};
  EXPECT_EQ(*decode_namespace_record(encode(name_space)), name_space);
  const BlockRecord block = {1, 1ULL << 40, {7}, 5, Provenance::kBounded, 128, 113920};
  EXPECT_EQ(*decode_block_record(encode(block)), block);
  const BlockDescriptor descriptor = {{1}, {2}, 3, Provenance::kBounded, {4, 5}, 6};
  EXPECT_EQ(*decode_block_descriptor(encode(descriptor)), descriptor);
  const TailRecord tail = {{{9}}, 1, 2, {3}, 4, 5};
  EXPECT_EQ(*decode_tail_record(encode(tail)), tail);
  const SessionId id = {{1, 2, 3, 4}};
  EXPECT_EQ(*decode_session_name(encode_session_name(id)), id);
}

// Protobuf wire format by hand: sequence 1, and field 100 (an unknown kind) with no content.
const std::string kUnknownKind = {0x08, 0x01, '\xa2', 0x06, 0x00};
const std::string kIgnorable = {0x20, 0x01};

TEST(Records, unknown_kinds_of_events_are_refused_unless_ignorable) {
  EXPECT_EQ(decode_event(kUnknownKind).status().code(), StatusCode::kUnsupported);
  const auto skipped = decode_event(kUnknownKind + kIgnorable);
  ASSERT_TRUE(skipped.ok()) << skipped.status().to_string();
  EXPECT_EQ(skipped->sequence, 1u);
  EXPECT_TRUE(std::holds_alternative<UnknownEvent>(skipped->body));
}

TEST(Records, unknown_enumerators_are_refused) {
  Message message;
  message.role = static_cast<Role>(99);
  const auto bytes = encode(LogEvent{1, 0, 0, MessageAppended{message}});
  EXPECT_EQ(decode_event(*bytes).status().code(), StatusCode::kUnsupported);
  BlockRecord block;
  block.provenance = static_cast<Provenance>(2);
  EXPECT_EQ(decode_block_record(encode(block)).status().code(), StatusCode::kUnsupported);
}

TEST(Records, cut_records_never_decode_to_the_whole) {
  const std::string bytes = *encode(LogEvent{7, 5, 9, MessageAppended{full_message()}});
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_event(bytes.substr(0, n)).ok()) << n;
  }
  EXPECT_EQ(decode_session_record("").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(decode_store_header("\xff\xff").status().code(), StatusCode::kCorrupt);
}

TEST(Records, oversized_events_are_refused) {
  const auto bytes =
      encode(LogEvent{1, 0, 0, MessageAppended{Message::user(std::string((64 << 20) + 1, 'a'))}});
  EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::session
