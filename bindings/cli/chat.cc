#include "bindings/cli/chat.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "bindings/cli/text_table.h"
#include "examples/json_member.h"
#include "examples/workspace_tools.h"

namespace cairn::cli {
namespace {

// Words that cairn-nano knows.
constexpr const char* kInstructions = "You are Cairn, a coding agent in a small repository.";
constexpr const char* kDeclined = "error: declined by the user";
constexpr int kMaxAnswers = 16;  // without a word of the person
constexpr std::chrono::milliseconds kPoll{50};

std::string text_of(const Message& message) {
  std::string text;
  for (const ContentBlock& block : message.content) text += block.text;
  return text;
}

// The calls at the end of the conversation that have no result yet, in order.
std::vector<ToolCall> pending_calls(const std::vector<Message>& messages) {
  std::size_t n_results = 0;
  for (auto i = messages.rbegin(); i != messages.rend(); ++i) {
    if (i->role == Role::kTool) {
      ++n_results;
    } else if (i->role == Role::kAssistant && n_results <= i->tool_calls.size()) {
      return {i->tool_calls.begin() + static_cast<std::ptrdiff_t>(n_results), i->tool_calls.end()};
    } else {
      break;
    }
  }
  return {};
}

bool waits_for_answer(const std::vector<Message>& messages) {
  return !messages.empty() &&
         (messages.back().role == Role::kUser || messages.back().role == Role::kTool);
}

std::string argument(const ToolCall& call, const char* name) {
  std::string value(kMaxArgumentBytes, '\0');
  json_string_member(call.arguments_json.c_str(), name, value.data(), value.size());
  value.resize(value.find('\0'));
  return value;
}

}  // namespace

Chat::Chat(Session session, std::string workspace, TurnOptions turn, ChatTerminal& terminal)
    : session_(std::move(session)),
      workspace_(std::move(workspace)),
      turn_(std::move(turn)),
      terminal_(terminal) {}

bool Chat::is_unfinished(const std::vector<Message>& messages) const {
  return session_.info().turn_open || waits_for_answer(messages) ||
         !pending_calls(messages).empty();
}

Status Chat::begin() {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Message> messages, session_.messages());
  if (messages.empty()) return session_.append(Message::system(kInstructions, kToolsJson));
  for (const Message& m : messages) {
    if (m.role == Role::kTool) tool_result_stored(workspace_.c_str(), m.tool_call_id.c_str());
  }
  // What was said last, as a reminder; the rest is `cairn show`'s.
  const auto last_user = std::find_if(messages.rbegin(), messages.rend(),
                                      [](const Message& m) { return m.role == Role::kUser; });
  terminal_.note("Going on after " + std::to_string(messages.size()) + " messages.");
  if (last_user != messages.rend()) terminal_.show_user(text_of(*last_user));
  if (messages.back().role == Role::kAssistant && !text_of(messages.back()).empty()) {
    terminal_.begin_block(BlockKind::kText);
    terminal_.write(text_of(messages.back()));
    terminal_.end_block();
  }
  if (is_unfinished(messages)) terminal_.note("The answer is not finished: Enter goes on with it.");
  return {};
}

Status Chat::converse() {
  std::string line;
  while (!input_ended_) {
    const ChatTerminal::Input input = terminal_.read_line("> ", line);
    if (input == ChatTerminal::Input::kEnd || line == "/quit") break;
    if (input == ChatTerminal::Input::kInterrupted) {
      terminal_.note("Ctrl-D or /quit leaves.");
      continue;
    }
    // What one answer fails of does not end the conversation: the person may do something about it.
    const Status status = line.empty() ? go_on() : say(line);
    if (!status.ok()) terminal_.error(status);
  }
  return {};
}

Status Chat::say(const std::string& text) {
  if (!session_.info().turn_open) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Message> messages, session_.messages());
    CAIRN_RETURN_IF_ERROR(decline(pending_calls(messages)));
  }
  CAIRN_RETURN_IF_ERROR(session_.append(Message::user(text)));
  return go_on();
}

Status Chat::go_on() {
  for (int i = 0; i < kMaxAnswers; ++i) {
    const bool resume = session_.info().turn_open;
    if (!resume) {
      CAIRN_ASSIGN_OR_RETURN(std::vector<Message> messages, session_.messages());
      CAIRN_ASSIGN_OR_RETURN(const Step step, run_calls(messages));
      if (step == Step::kStopped) return {};
      CAIRN_ASSIGN_OR_RETURN(messages, session_.messages());
      if (!waits_for_answer(messages)) return {};
    }
    CAIRN_ASSIGN_OR_RETURN(const EndReason end, answer(resume));
    if (end != EndReason::kToolCalls) return {};
  }
  terminal_.note("Stopped after " + std::to_string(kMaxAnswers) + " answers: Enter goes on.");
  return {};
}

// ---- Tools

Status Chat::decline(const std::vector<ToolCall>& calls) {
  for (const ToolCall& call : calls) {
    CAIRN_RETURN_IF_ERROR(session_.append(Message::tool_result(call.id, kDeclined)));
  }
  return {};
}

Chat::Consent Chat::ask(const ToolCall& call) {
  if (!tool_needs_consent(call.name.c_str()) || allowed_.contains(call.name)) return Consent::kYes;
  if (call.name == "edit_file") {
    terminal_.note("In " + argument(call, "path") + ":");
    terminal_.show_change('-', argument(call, "old"));
    terminal_.show_change('+', argument(call, "new"));
  } else {
    terminal_.note("This runs run_tests.sh in " + workspace_ + ".");
  }
  std::string line;
  while (true) {
    const ChatTerminal::Input input =
        terminal_.read_line(call.name + "? [y]es, [n]o, [a]lways: ", line);
    if (input == ChatTerminal::Input::kEnd) input_ended_ = true;
    if (input != ChatTerminal::Input::kLine) return Consent::kStop;
    if (line == "a" || line == "always") allowed_.insert(call.name);
    if (line == "y" || line == "yes" || line == "a" || line == "always") return Consent::kYes;
    if (line == "n" || line == "no") return Consent::kNo;
  }
}

Result<Chat::Step> Chat::run_calls(const std::vector<Message>& messages) {
  const auto result = std::make_unique<tool_result>();
  for (const ToolCall& call : pending_calls(messages)) {
    const Consent consent = ask(call);
    if (consent == Consent::kStop) {  // the calls stay pending
      if (!input_ended_) terminal_.note("Stopped: Enter asks again, a message declines.");
      return Step::kStopped;
    }
    std::string text = kDeclined;
    if (consent == Consent::kYes) {
      run_tool(workspace_.c_str(), call.id.c_str(), call.name.c_str(), call.arguments_json.c_str(),
               result.get());
      text.assign(result->text, result->n_bytes);
    }
    terminal_.show_result(text);
    CAIRN_RETURN_IF_ERROR(session_.append(Message::tool_result(call.id, text)));
    tool_result_stored(workspace_.c_str(), call.id.c_str());
    if (terminal_.interrupted()) {
      terminal_.note("Stopped: Enter goes on.");
      return Step::kStopped;
    }
  }
  return Step::kDone;
}

// ---- Answers

Result<EndReason> Chat::answer(bool resume) {
  terminal_.forget_interrupt();
  CAIRN_ASSIGN_OR_RETURN(Turn turn, resume ? session_.resume_turn() : session_.start_turn(turn_));
  std::int32_t open_block = -1;
  TurnUsage usage;
  while (true) {
    const Result<Event> event = turn.next(kPoll);
    if (terminal_.interrupted()) turn.cancel();
    if (!event.ok() && event.status().code() == StatusCode::kTimeout) continue;
    if (!event.ok()) return event.status();
    const bool begins_call =
        event->kind == EventKind::kBlockBegin && event->block_kind == BlockKind::kToolCall;
    if (begins_call || event->kind == EventKind::kBlockBytes) {
      if (open_block != event->block) {
        if (open_block >= 0) terminal_.end_block();
        open_block = event->block;
        terminal_.begin_block(event->block_kind, event->tool_call.name);
      }
      terminal_.write(event->bytes);
    }
    if (event->kind == EventKind::kUsage || event->kind == EventKind::kTurnEnd) {
      if (open_block >= 0) terminal_.end_block();
      open_block = -1;
    }
    if (event->kind == EventKind::kUsage) usage = event->usage;
    if (event->kind != EventKind::kTurnEnd) continue;
    if (event->end_reason != EndReason::kToolCalls) show_usage(usage);
    note_end(*event);
    if (event->end_reason == EndReason::kError) return event->status;
    return event->end_reason;
  }
}

void Chat::note_end(const Event& end) {
  if (end.end_reason == EndReason::kCancelled) {
    terminal_.note("Stopped: Enter goes on with this answer.");
  } else if (end.end_reason == EndReason::kLength) {
    terminal_.note("Cut off: the answer or the context is as long as it may be.");
  }
}

void Chat::show_usage(const TurnUsage& usage) {
  const ReuseReport& reuse = usage.reuse;
  const std::int64_t n_new = usage.output_tokens - usage.resumed_tokens;
  std::array<char, 32> speed = {};
  if (n_new > 1 && usage.decode_ms > 0) {
    std::snprintf(speed.data(), speed.size(), ", %.0f a second",
                  1e3 * static_cast<double>(n_new) / usage.decode_ms);
  }
  terminal_.note("[" + with_commas(n_new) + " tokens" + speed.data() + "; prompt of " +
                 with_commas(reuse.prompt_tokens) + ", " +
                 with_commas(reuse.prompt_tokens - reuse.prefilled) + " reused]");
}

}  // namespace cairn::cli
