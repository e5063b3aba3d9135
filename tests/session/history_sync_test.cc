// Histories laid beside each other without a model: whatever a client did to a conversation, what
// is kept and what is appended is the conversation that it sent, and nothing is kept that differs.
#include "session/history_sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "session/canonical_json.h"
#include "session/message_match.h"

namespace cairn::session {
namespace {

TEST(CanonicalJson, spellings_of_one_value_are_equal) {
  const auto same = [](std::string_view a, std::string_view b) {
    EXPECT_EQ(canonical_json(a), canonical_json(b));
  };
  same(R"({"a": 1, "b": [true, null]})", R"({ "b":[true,null] , "a":1.0 })");
  same("100", "1e2");
  same("0.5", "5E-1");
  same("-0", "0");
  same(R"("\u00e4\/")", "\"\xC3\xA4/\"");
  same("12345678901234567890123", "12345678901234567890123");
  const auto differ = [](std::string_view a, std::string_view b) {
    EXPECT_NE(canonical_json(a), canonical_json(b));
  };
  differ("1", "\"1\"");
  differ("[1,2]", "[2,1]");
  differ("12345678901234567890123", "12345678901234567890124");
  differ("9007199254740993", "9007199254740992");
  differ("1.5", "1.25");
  differ(R"({"a":1})", R"({"a":1,"b":null})");
  EXPECT_EQ(canonical_json("no json"), "no json");
}

TEST(MessageMatch, the_first_tool_that_differs_is_named) {
  const auto tool = [](const char* name, const char* description) {
    return std::string(R"({"type": "function", "function": {"name": ")") + name +
           R"(", "description": ")" + description + R"("}})";
  };
  const std::string a = tool("a", "x"), b = tool("b", "x"), c = tool("b", "y");
  const auto difference = [](const std::string& stored, const std::string& given) {
    const ToolDifference found = compare_tools(stored, given);
    return found.tool + " " + found.what;
  };
  EXPECT_EQ(difference("[" + a + "," + b + "]", "[" + b + ", " + a + "]"), " ");
  EXPECT_EQ(difference("[" + a + "]", "[" + a + "," + b + "]"), "b added");
  EXPECT_EQ(difference("[" + a + "," + b + "]", "[" + b + "]"), "a removed");
  EXPECT_EQ(difference("[" + a + "," + b + "]", "[" + a + "," + c + "]"), "b changed");
  EXPECT_EQ(difference("", "[" + a + "]"), "a added");
}

// A random conversation: runs of questions, answers with and without calls, results of all calls.
class Author {
 public:
  explicit Author(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(int in) { return below(in) == 0; }
  std::string text() { return std::string(1, static_cast<char>('a' + below(3))); }

  std::vector<Message> conversation() {
    std::vector<Message> messages;
    if (chance(2)) messages.push_back(Message::system(text()));
    const int n_turns = 1 + below(5);
    for (int i = 0; i < n_turns; ++i) add_turn(messages);
    for (std::size_t i = 0; i < messages.size(); ++i) messages[i].event = i + 1;
    return messages;
  }

  void add_turn(std::vector<Message>& messages) {
    const int n_questions = 1 + below(2);
    for (int i = 0; i < n_questions; ++i) messages.push_back(Message::user(text()));
    while (chance(2)) add_calls(messages);
    Message answer;
    answer.role = Role::kAssistant;
    answer.content.push_back({ContentBlock::Kind::kText, text(), {}});
    answer.reasoning = text();
    answer.sampled_tokens = {below(1000), below(1000)};
    messages.push_back(answer);
  }

  void add_calls(std::vector<Message>& messages) {
    Message answer;
    answer.role = Role::kAssistant;
    answer.sampled_tokens = {below(1000)};
    if (chance(2)) answer.content.push_back({ContentBlock::Kind::kText, text(), {}});
    std::vector<Message> results;
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      const std::string id = "id" + std::to_string(n_calls_++);
      answer.tool_calls.push_back({id, text(), R"({"x": 1.0, "y": ")" + text() + "\"}"});
      results.push_back(Message::tool_result(id, text()));
    }
    std::ranges::shuffle(results, random_);
    messages.push_back(answer);
    messages.insert(messages.end(), results.begin(), results.end());
  }

  // What a client may do without changing what was said.
  std::vector<Message> respell(std::vector<Message> messages) {
    const std::string prefix = chance(2) ? "" : "renamed_";
    for (Message& message : messages) {
      message.event = 0;
      message.sampled_tokens.clear();
      if (chance(2)) message.reasoning.clear();
      if (!message.tool_calls.empty() && chance(2)) message.content.clear();
      for (ToolCall& call : message.tool_calls) {
        call.id = prefix + call.id;
        const std::size_t y = call.arguments_json.find("\"y\"");
        if (chance(2)) call.arguments_json = "{" + call.arguments_json.substr(y, 8) + ",\"x\":1}";
        if (chance(2)) call.arguments_json = canonical_json(call.arguments_json);
      }
      if (message.role == Role::kTool) message.tool_call_id = prefix + message.tool_call_id;
    }
    return merge_results(std::move(messages));
  }

  // Results that follow each other as one user message.
  std::vector<Message> merge_results(std::vector<Message> messages) {
    std::vector<Message> merged;
    for (Message& message : messages) {
      if (message.role == Role::kTool && chance(2)) {
        Message block = Message::user("");
        block.content[0] = {ContentBlock::Kind::kToolResult, message.content[0].text,
                            message.tool_call_id};
        const bool joins = !merged.empty() && merged.back().role == Role::kUser &&
                           merged.back().content.back().kind == ContentBlock::Kind::kToolResult;
        if (joins) {
          merged.back().content.push_back(block.content[0]);
        } else {
          merged.push_back(std::move(block));
        }
      } else {
        merged.push_back(std::move(message));
      }
    }
    return merged;
  }

  void change(std::vector<Message>& messages) {
    const auto at = messages.begin() + below(static_cast<int>(messages.size()));
    switch (below(4)) {
      case 0:
        messages.erase(at);
        break;
      case 1:
        messages.insert(at, Message::user(text()));
        break;
      case 2:
        messages.erase(at, messages.end());
        break;
      default:
        if (!at->content.empty()) at->content[0].text = text();
    }
  }

 private:
  std::mt19937 random_;
  int n_calls_ = 0;
};

// A conversation by what the prompt shows of it, one line a turn. Ids become the places of the
// calls.
std::vector<std::string> shown(std::span<const Message> messages) {
  std::vector<std::string> lines;
  std::vector<ToolCall> calls;
  std::vector<std::pair<std::size_t, std::string>> results;
  std::string run;
  bool in_run = false;
  const auto end_run = [&] {
    std::ranges::stable_sort(results, {}, &std::pair<std::size_t, std::string>::first);
    for (const auto& [place, text] : results) run += " result:" + text;
    if (in_run) lines.push_back(run);
    run.clear();
    results.clear();
    in_run = false;
  };
  const auto add_result = [&](const std::string& id, const std::string& text) {
    const auto call = std::ranges::find(calls, id, &ToolCall::id);
    const auto place = call == calls.end() ? 0 : static_cast<std::size_t>(call - calls.begin());
    results.emplace_back(place, text);
  };
  for (const Message& message : messages) {
    const bool is_input = message.role == Role::kUser || message.role == Role::kTool;
    if (!is_input) end_run();
    in_run = is_input;
    if (message.role == Role::kTool) add_result(message.tool_call_id, shown_text(message));
    if (message.role == Role::kUser) {
      for (const ContentBlock& block : message.content) {
        if (block.kind == ContentBlock::Kind::kToolResult) {
          add_result(block.tool_call_id, block.text);
        } else {
          run += " user:" + block.text;
        }
      }
    }
    if (message.role == Role::kSystem) lines.push_back("system:" + shown_text(message));
    if (message.role != Role::kAssistant) continue;
    // The text of a message with calls may have been dropped.
    std::string line = "answer:" + (message.tool_calls.empty() ? shown_text(message) : "");
    for (const ToolCall& call : message.tool_calls) {
      line += " " + call.name + canonical_json(call.arguments_json);
    }
    lines.push_back(line);
    if (!message.tool_calls.empty()) calls = message.tool_calls;
  }
  end_run();
  return lines;
}

std::vector<Message> after(const std::vector<Message>& stored, const HistorySync& sync) {
  std::vector<Message> messages(stored.begin(),
                                stored.begin() + static_cast<std::ptrdiff_t>(sync.n_kept));
  messages.insert(messages.end(), sync.appended.begin(), sync.appended.end());
  return messages;
}

TEST(HistorySync, a_respelled_history_is_kept_whole) {
  constexpr unsigned kSeed = 20261201;
  int n_messages = 0;
  for (unsigned i = 0; i < 3000; ++i) {
    SCOPED_TRACE(kSeed + i);
    Author author(kSeed + i);
    const std::vector<Message> stored = author.conversation();
    const std::vector<Message> given = author.respell(stored);
    const HistorySync sync = sync_history(stored, {}, given, {});
    ASSERT_EQ(sync.n_kept, stored.size());
    ASSERT_TRUE(sync.appended.empty());
    for (const SyncedMessage& message : sync.synced) {
      EXPECT_NE(message.match, SyncMatch::kNone);
      EXPECT_NE(message.event, 0u);
      EXPECT_FALSE(message.appended);
    }
    n_messages += static_cast<int>(stored.size());
  }
  std::printf("seed %u: %d messages\n", kSeed, n_messages);
}

TEST(HistorySync, whatever_was_changed_the_result_is_what_was_sent) {
  constexpr unsigned kSeed = 7;
  int n_kept = 0, n_appended = 0, n_with_tokens = 0;
  for (unsigned i = 0; i < 5000; ++i) {
    SCOPED_TRACE(kSeed + i);
    Author author(kSeed + i);
    const std::vector<Message> stored = author.conversation();
    std::vector<Message> given = stored;
    for (int n = author.below(3); n >= 0 && !given.empty(); --n) author.change(given);
    if (author.chance(2)) author.add_turn(given);
    const std::vector<Message> before = given;
    given = author.respell(given);
    const HistorySync sync = sync_history(stored, {}, given, {});
    ASSERT_LE(sync.n_kept, stored.size());
    ASSERT_EQ(sync.synced.size(), given.size());
    const std::vector<Message> result = after(stored, sync);
    ASSERT_EQ(shown(result), shown(before));
    n_kept += static_cast<int>(sync.n_kept);
    n_appended += static_cast<int>(sync.appended.size());
    for (const Message& message : sync.appended) n_with_tokens += !message.sampled_tokens.empty();
  }
  std::printf("seed %u: %d kept, %d appended, %d of them with tokens\n", kSeed, n_kept, n_appended,
              n_with_tokens);
  EXPECT_GT(n_kept, 0);
  EXPECT_GT(n_with_tokens, 0);
}

TEST(HistorySync, an_answer_is_found_by_its_id_however_it_was_edited) {
  Author author(1);
  std::vector<Message> stored = author.conversation();
  std::vector<Message> given = stored;
  given.back().content = {{ContentBlock::Kind::kText, "edited by a redactor", {}}};
  const HistorySync sync = sync_history(stored, {}, given, {});
  EXPECT_EQ(sync.n_kept, stored.size());
  EXPECT_EQ(sync.synced.back().match, SyncMatch::kEvent);
}

}  // namespace
}  // namespace cairn::session
