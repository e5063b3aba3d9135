// `cairn run` as a person types at it. The model of these tests talks noise and calls no tool, so
// calls are put into sessions beforehand; what follows of them is the program's.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/bindings/run_cairn.h"
#include "tests/session/live_session.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/terminal_child.h"

namespace cairn {
namespace {

using test::contains;
using test::Outcome;
using test::run_cairn;
using test::TerminalChild;

constexpr const char* kPrompt = "> ";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

struct CliRun : testing::Test {
  test::TemporaryFolder folder;
  std::string workspace = folder / "work", store = folder / "store";

  void SetUp() override {
    std::filesystem::create_directory(workspace);
    test::write_file(workspace + "/a.txt", "port = 80\n");
    test::write_file(workspace + "/run_tests.sh", "echo ran >> ran; echo '1 passed, 0 failed'\n");
  }

  std::vector<std::string> command(int max_tokens = 6) const {
    return {CAIRN_CLI_PATH, "run",          test::kTinyA,
            "--workspace",  workspace,      "--store",
            store,          "--max-tokens", std::to_string(max_tokens)};
  }
  std::string ran() const { return test::read_file(workspace + "/ran"); }
  std::string text() const { return test::read_file(workspace + "/a.txt"); }

  Session open(const Store& owned) const {
    Result<Session> session = Session::open(test::live_model(), owned, "main");
    if (!session.ok()) session = Session::create(test::live_model(), owned, "main");
    return *session;
  }
  Store owned() const { return *Store::open(test::live_runtime(), store); }

  // As if the model had made these calls and the process had died then.
  void leave_calls(std::vector<ToolCall> calls) const {
    const Store at = owned();
    Session session = open(at);
    ASSERT_TRUE(session.append(Message::system("Use the tools.")).ok());
    ASSERT_TRUE(session.append(Message::user("Do it.")).ok());
    Message message;
    message.role = Role::kAssistant;
    message.tool_calls = std::move(calls);
    ASSERT_TRUE(session.append(message).ok());
  }
  static ToolCall edit(const std::string& id, const std::string& from, const std::string& to) {
    return {id, "edit_file",
            R"({"path": "a.txt", "old": ")" + from + R"(", "new": ")" + to + R"("})"};
  }
  static ToolCall run_tests(const std::string& id) { return {id, "run_tests", "{}"}; }

  std::vector<Message> messages() const {
    const Store at = owned();
    return *open(at).messages();
  }
  // Results of tools, in order.
  std::vector<std::string> results() const {
    std::vector<std::string> texts;
    for (const Message& message : messages()) {
      if (message.role == Role::kTool) texts.push_back(message.content[0].text);
    }
    return texts;
  }
};

TEST_F(CliRun, a_conversation_is_there_again_when_it_is_started_again) {
  {
    TerminalChild cairn(command());
    ASSERT_TRUE(cairn.sees("Session main in " + workspace)) << cairn.shown();
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type("Good mörning\n");
    ASSERT_TRUE(cairn.sees("[6 tokens")) << cairn.shown();
    ASSERT_TRUE(cairn.sees("Cut off")) << cairn.shown();
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type("/quit\n");
    EXPECT_EQ(cairn.wait_for_end(), 0);
  }
  const std::vector<Message> before = messages();
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(before[1].content[0].text, "Good mörning");
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees("Going on after 3 messages.")) << cairn.shown();
  ASSERT_TRUE(cairn.sees("Good mörning"));
  ASSERT_TRUE(cairn.sees(kPrompt));
  EXPECT_EQ(cairn.shown().find("not finished"), std::string::npos);
  cairn.type("Again\n");
  ASSERT_TRUE(cairn.sees("reused]"));
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type(kCtrlD);
  EXPECT_EQ(cairn.wait_for_end(), 0);
  EXPECT_EQ(messages().size(), 5u);
}

TEST_F(CliRun, nothing_is_changed_or_run_without_a_yes) {
  leave_calls({edit("call_a", "80", "81"), run_tests("call_b")});
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees("not finished: Enter goes on")) << cairn.shown();
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees("In a.txt:")) << cairn.shown();
  ASSERT_TRUE(cairn.sees("- 80"));
  ASSERT_TRUE(cairn.sees("+ 81"));
  ASSERT_TRUE(cairn.sees("edit_file? [y]es, [n]o, [a]lways: "));
  cairn.type("perhaps\n");
  ASSERT_TRUE(cairn.sees("edit_file? [y]es, [n]o, [a]lways: "));
  cairn.type("n\n");
  ASSERT_TRUE(cairn.sees("declined by the user"));
  ASSERT_TRUE(cairn.sees("run_tests? [y]es, [n]o, [a]lways: "));
  EXPECT_EQ(text(), "port = 80\n");
  EXPECT_EQ(ran(), "");
  cairn.type("y\n");
  ASSERT_TRUE(cairn.sees("1 passed, 0 failed"));
  ASSERT_TRUE(cairn.sees("[6 tokens"));  // the model answers to both results
  cairn.type(kCtrlD);
  EXPECT_EQ(cairn.wait_for_end(), 0);
  EXPECT_EQ(ran(), "ran\n");
  EXPECT_EQ(results(),
            (std::vector<std::string>{"error: declined by the user", "1 passed, 0 failed"}));
}

TEST_F(CliRun, always_is_for_one_tool_and_as_long_as_the_program_runs) {
  leave_calls({edit("call_a", "80", "81"), edit("call_b", "81", "82"), run_tests("call_c")});
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees("edit_file? ")) << cairn.shown();
  cairn.type("always\n");
  ASSERT_TRUE(cairn.sees("replaced 1"));
  ASSERT_TRUE(cairn.sees("replaced 1"));
  ASSERT_TRUE(cairn.sees("run_tests? "));
  EXPECT_EQ(text(), "port = 82\n");
  // Here the process dies. What was asked is asked again, what was done is not done again.
  cairn.kill();
  TerminalChild next(command());
  ASSERT_TRUE(next.sees("not finished")) << next.shown();
  next.type("\n");
  ASSERT_TRUE(next.sees("run_tests? ")) << next.shown();
  next.type("y\n");
  ASSERT_TRUE(next.sees("[6 tokens"));
  next.type(kCtrlD);
  EXPECT_EQ(next.wait_for_end(), 0);
  EXPECT_EQ(text(), "port = 82\n");
  EXPECT_EQ(results(),
            (std::vector<std::string>{"replaced 1", "replaced 1", "1 passed, 0 failed"}));
}

TEST_F(CliRun, another_message_declines_what_waits) {
  leave_calls({edit("call_a", "80", "81")});
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees("edit_file? ")) << cairn.shown();
  cairn.type(kCtrlC);
  ASSERT_TRUE(cairn.sees("Enter asks again, a message declines")) << cairn.shown();
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("Leave it.\n");
  ASSERT_TRUE(cairn.sees("[6 tokens"));
  cairn.type(kCtrlD);
  EXPECT_EQ(cairn.wait_for_end(), 0);
  EXPECT_EQ(text(), "port = 80\n");
  EXPECT_EQ(results(), std::vector<std::string>{"error: declined by the user"});
}

// The whole answer, whatever came between.
std::string last_answer(const std::vector<Message>& messages) {
  return messages.empty() || messages.back().content.empty() ? "" : messages.back().content[0].text;
}

TEST_F(CliRun, ctrl_c_stops_the_answer_and_a_kill_loses_nothing) {
  constexpr int kLong = 500;
  {
    TerminalChild cairn(command(kLong));
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type("Tell me all.\n");
    ASSERT_TRUE(cairn.sees("[500 tokens")) << "the answer of this test has to be a long one";
    cairn.type(kCtrlD);
    ASSERT_EQ(cairn.wait_for_end(), 0);
  }
  const std::string expected = last_answer(messages());
  store = folder / "interrupted";
  {
    TerminalChild cairn(command(kLong));
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type(kCtrlC);
    ASSERT_TRUE(cairn.sees("Ctrl-D or /quit leaves")) << cairn.shown();
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type("Tell me all.\n");
    ASSERT_TRUE(cairn.sees(expected.substr(0, 1)));
    cairn.type(kCtrlC);
    ASSERT_TRUE(cairn.sees("Stopped: Enter goes on with this answer.")) << cairn.shown();
    ASSERT_TRUE(cairn.sees(kPrompt));
    cairn.type("\n");
    ASSERT_TRUE(cairn.sees(expected.substr(0, 1)));
    cairn.kill();
  }
  TerminalChild cairn(command(kLong));
  ASSERT_TRUE(cairn.sees("not finished: Enter goes on")) << cairn.shown();
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees(" tokens"));
  cairn.type(kCtrlD);
  EXPECT_EQ(cairn.wait_for_end(), 0);
  EXPECT_EQ(last_answer(messages()), expected);
}

TEST_F(CliRun, tests_that_hang_end_with_ctrl_c) {
  test::write_file(workspace + "/run_tests.sh", "echo begun >/dev/tty; sleep 600\n");
  leave_calls({run_tests("call_a")});
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees("run_tests? ")) << cairn.shown();
  cairn.type("y\n");
  ASSERT_TRUE(cairn.sees("begun")) << cairn.shown();
  cairn.type(kCtrlC);
  ASSERT_TRUE(cairn.sees("Stopped: Enter goes on.")) << cairn.shown();
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type(kCtrlD);
  EXPECT_EQ(cairn.wait_for_end(), 0);
  EXPECT_EQ(results(), std::vector<std::string>{"error: run_tests: cancelled"});
}

TEST_F(CliRun, a_terminal_gets_no_commands_from_files) {
  test::write_file(workspace + "/evil.txt", "a\x1b]0;title\x07z");
  leave_calls({{"call_a", "read_file", R"({"path": "evil.txt"})"}});
  TerminalChild cairn(command());
  ASSERT_TRUE(cairn.sees(kPrompt));
  cairn.type("\n");
  ASSERT_TRUE(cairn.sees("a?]0;title?z")) << cairn.shown();
  ASSERT_TRUE(cairn.sees("[6 tokens"));
}

TEST_F(CliRun, input_may_come_from_a_pipe) {
  const std::string arguments = std::string("run '") + test::kTinyA + "' --max-tokens 4 --store '" +
                                store + "' --workspace '" + workspace + "' ";
  const Outcome outcome = run_cairn(arguments + "<<'END'\nFirst\nSecond\nEND\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_TRUE(contains(outcome, "> First\n"));
  EXPECT_TRUE(contains(outcome, "> Second\n"));
  EXPECT_EQ(outcome.text.find('\x1b'), std::string::npos) << "colours are for terminals";
  EXPECT_EQ(messages().size(), 5u);
}

TEST_F(CliRun, what_is_wrong_is_said) {
  const auto run = [&](const std::string& arguments) {
    return run_cairn("run " + arguments + " </dev/null");
  };
  const std::string model = std::string("'") + test::kTinyA + "'";
  Outcome outcome = run("'" + (folder / "absent") + "' --workspace '" + workspace + "'");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome, "absent")) << outcome.text;
  outcome = run(model + " --workspace '" + (folder / "nowhere") + "'");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome, "nowhere: no such folder")) << outcome.text;
  EXPECT_EQ(run(model + " --max-tokens 0").exit_code, 2);
  EXPECT_EQ(run("").exit_code, 2);

  const Store held = owned();
  outcome = run(model + " --workspace '" + workspace + "' --store '" + store + "'");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome, "BUSY")) << outcome.text;
}

TEST_F(CliRun, sessions_stand_beside_the_files_they_are_about) {
  const std::string arguments =
      std::string("run '") + test::kTinyA + "' --workspace '" + workspace + "' </dev/null";
  EXPECT_EQ(run_cairn(arguments).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_directory(workspace + "/.cairn"));
}

}  // namespace
}  // namespace cairn
