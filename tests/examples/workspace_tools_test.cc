#include "examples/workspace_tools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "examples/json_member.h"
#include "examples/test_run.h"
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

class WorkspaceTools : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(workspace() + "/sub/deep");
    write("workspace/a.txt", "inside\n");
    write("workspace/.hidden", "hidden inside\n");
    write("outside.txt", "secret\n");
    std::filesystem::create_symlink("../outside.txt", workspace() + "/link");
    std::filesystem::create_symlink("..", workspace() + "/up");
  }

  std::string workspace() const { return folder_ / "workspace"; }
  void write(const std::string& name, const std::string& text) const {
    test::write_file(folder_ / name, text);
  }
  std::string content(const std::string& name) const { return test::read_file(folder_ / name); }

  std::string run(const char* tool, const std::string& arguments, const char* id = "call_1") const {
    static tool_result result;
    run_tool(workspace().c_str(), id, tool, arguments.c_str(), &result);
    EXPECT_EQ(result.text[result.n_bytes], '\0');
    return {result.text, result.n_bytes};
  }
  std::string on_path(const char* tool, const std::string& path) const {
    return run(tool, R"({"path": ")" + path + R"("})");
  }
  std::string edit(const std::string& path, const std::string& old, const std::string& with,
                   const char* id = "call_1") const {
    return run("edit_file",
               R"({"path": ")" + path + R"(", "old": ")" + old + R"(", "new": ")" + with + R"("})",
               id);
  }

  test::TemporaryFolder folder_;
};

TEST_F(WorkspaceTools, files_and_folders_inside_are_shown) {
  EXPECT_EQ(on_path("read_file", "a.txt"), "inside");
  EXPECT_EQ(on_path("list_dir", "."), "a.txt\nlink\nsub/\nup");
  for (const char* root : {"", "/", "./", "."}) {
    EXPECT_EQ(on_path("list_dir", root), on_path("list_dir", ".")) << root;
  }
  EXPECT_EQ(on_path("list_dir", "sub/"), "deep/");
}

TEST_F(WorkspaceTools, nothing_outside_is_reachable) {
  for (const char* path :
       {"/etc/passwd", "../outside.txt", "sub/../../outside.txt", "link", "..", "sub/..", "up",
        "up/outside.txt", "sub/.././a.txt", ".hidden", ".agent/call_1.result", "./.hidden"}) {
    EXPECT_EQ(on_path("read_file", path).substr(0, 6), "error:") << path;
    EXPECT_EQ(edit(path, "e", "x").substr(0, 6), "error:") << path;
  }
  EXPECT_EQ(on_path("list_dir", "..").substr(0, 6), "error:");
  EXPECT_EQ(on_path("list_dir", "up").substr(0, 6), "error:");
  EXPECT_EQ(run("search", R"({"text": "secret"})"), "no matches");
  EXPECT_EQ(run("search", R"({"text": "hidden"})"), "no matches");
  EXPECT_EQ(content("outside.txt"), "secret\n");
}

TEST_F(WorkspaceTools, mistakes_are_answers) {
  EXPECT_EQ(on_path("read_file", "absent"), "error: no such file: absent");
  EXPECT_EQ(on_path("read_file", "sub"), "error: no such file: sub");
  EXPECT_EQ(on_path("list_dir", "absent"), "error: no such folder: absent");
  EXPECT_EQ(on_path("list_dir", "a.txt"), "error: no such folder: a.txt");
  EXPECT_EQ(run("remove_file", "{}"), "error: no such tool: remove_file");
  EXPECT_EQ(run("run_tests", "{}"), "error: no such file: run_tests.sh");
  for (const char* wrong : {"{}", "", "[1]", R"({"path": 1})", R"({"Path": "a.txt"})",
                            R"({"path": "a.txt", "mode": "r"})", R"({"path": "a.txt")"}) {
    EXPECT_EQ(run("read_file", wrong), "error: wrong arguments") << wrong;
  }
  const std::string too_long(kMaxArgumentBytes, 'x');
  EXPECT_EQ(on_path("read_file", too_long), "error: wrong arguments");
  EXPECT_EQ(on_path("read_file", too_long.substr(0, 4000)).substr(0, 6), "error:");
}

TEST_F(WorkspaceTools, search_shows_places_in_the_order_of_paths) {
  write("workspace/b.txt", "one\n\ttwo x \nthree x");
  write("workspace/sub/c.txt", "x x\n");
  write("workspace/sub-d.txt", "x\r\n");
  EXPECT_EQ(run("search", R"({"text": "x"})"),
            "b.txt:2: two x\nb.txt:3: three x\nsub-d.txt:1: x\nsub/c.txt:1: x x");
  write("workspace/many.txt", std::string(50, '\n') + "y\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\n");
  const std::string hits = run("search", R"({"text": "y"})");
  EXPECT_EQ(std::count(hits.begin(), hits.end(), '\n'), 9);
  EXPECT_EQ(hits.substr(0, 14), "many.txt:51: y");
  EXPECT_EQ(run("search", R"({"text": "y\ny"})"), "no matches");
}

TEST_F(WorkspaceTools, an_edit_replaces_all_places_once) {
  write("workspace/sub/e.txt", "aXbXX\n");
  EXPECT_EQ(edit("sub/e.txt", "Y", "y"), "error: text not found");
  EXPECT_EQ(edit("sub/e.txt", "", "y"), "error: text not found");
  EXPECT_EQ(edit("sub/e.txt", "X", "XX", "call_2"), "replaced 3");
  EXPECT_EQ(content("workspace/sub/e.txt"), "aXXbXXXX\n");
  // The process was killed before the result was stored: the same call comes again.
  EXPECT_EQ(edit("sub/e.txt", "X", "XX", "call_2"), "replaced 3");
  EXPECT_EQ(content("workspace/sub/e.txt"), "aXXbXXXX\n");
  tool_result_stored(workspace().c_str(), "call_2");
  EXPECT_EQ(edit("sub/e.txt", "Xb", "Xc", "call_2"), "replaced 1");  // of another session
  EXPECT_EQ(edit("sub/e.txt", "XXXX", "", "call_3"), "replaced 1");
  EXPECT_EQ(content("workspace/sub/e.txt"), "aXXc\n");
  EXPECT_EQ(edit("sub/e.txt", "aXX", "long enough", "../call"),
            "error: sub/e.txt: cannot be written");
}

TEST_F(WorkspaceTools, an_edit_that_was_cut_before_its_rename_is_finished) {
  write("workspace/e.txt", "old\n");
  std::filesystem::create_directory(workspace() + "/.agent");
  write("workspace/.agent/call_7.content", "new\n");
  EXPECT_EQ(edit("e.txt", "old", "other", "call_8"), "replaced 1");  // another call
  write("workspace/e.txt", "old\n");
  write("workspace/.agent/call_7.result", "replaced 1");
  EXPECT_EQ(edit("e.txt", "old", "new", "call_7"), "replaced 1");
  EXPECT_EQ(content("workspace/e.txt"), "new\n");
}

TEST_F(WorkspaceTools, a_note_that_is_made_again_stays_one) {
  const auto remember = [&](const char* key, const char* value) {
    return run("remember", std::string(R"({"key": ")") + key + R"(", "value": ")" + value + "\"}");
  };
  EXPECT_EQ(remember("port", "1"), "saved");
  EXPECT_EQ(remember("port", "1"), "saved");  // the process was killed before this was stored
  EXPECT_EQ(remember("ort", "1"), "saved");
  EXPECT_EQ(remember("port", "2"), "saved");
  EXPECT_EQ(remember("port", "1"), "saved");
  EXPECT_EQ(content("workspace/.agent/notes"), "port: 1\nort: 1\nport: 2\nport: 1\n");
}

TEST_F(WorkspaceTools, tests_report_output_or_status) {
  write("workspace/run_tests.sh", "echo out; echo err >&2; cat a.txt; exit 3\n");
  EXPECT_EQ(run("run_tests", "{}"), "out\nerr\ninside");
  write("workspace/run_tests.sh", "exit 3\n");
  EXPECT_EQ(run("run_tests", "{}"), "exit status 3");
  write("workspace/run_tests.sh", "read line || echo no input\n");
  EXPECT_EQ(run("run_tests", "{}"), "no input");
}

// The limit is far below what the scripts would take and far above what they need to get there.
TEST_F(WorkspaceTools, tests_that_do_not_end_are_ended) {
  const auto run_for_a_second = [&](const char* script) {
    write("workspace/run_tests.sh", script);
    tool_result result = {};
    run_test_script(workspace().c_str(), 1, &result);
    return std::string(result.text, result.n_bytes);
  };
  constexpr const char* kEnded = "error: run_tests: time limit reached";
  EXPECT_EQ(run_for_a_second("exec sleep 600\n"), kEnded);
  EXPECT_EQ(run_for_a_second("sleep 600\n"), kEnded);
  EXPECT_EQ(run_for_a_second("exec >&- 2>&-; sleep 600\n"), kEnded);
  EXPECT_EQ(run_for_a_second("trap '' TERM INT HUP; sleep 600\n"), kEnded);
  // What it leaves behind does not hold the agent up, and is gone.
  EXPECT_EQ(run_for_a_second("sleep 600 & echo $!\n").find("error"), std::string::npos);
}

// 'Z' for one that is dead but not reaped by whoever inherited it; '-' for none.
char state_of_process(int id) {
  const std::string status = test::read_file("/proc/" + std::to_string(id) + "/status");
  const auto at = status.find("State:\t");
  return at == std::string::npos ? '-' : status[at + 7];
}

TEST_F(WorkspaceTools, nothing_that_the_tests_started_is_left) {
  write("workspace/run_tests.sh", "sleep 600 >&- 2>&- & echo $!\n");
  const int left = std::stoi(run("run_tests", "{}"));
  // It has been killed when the call returns, but may be about to die.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (state_of_process(left) != '-' && state_of_process(left) != 'Z') {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

TEST_F(WorkspaceTools, tests_can_be_cancelled) {
  write("workspace/run_tests.sh", "kill -INT $PPID; sleep 600\n");
  const auto before = std::signal(SIGINT, [](int) { cancel_tests(); });
  EXPECT_EQ(run("run_tests", "{}"), "error: run_tests: cancelled");
  std::signal(SIGINT, before);
  write("workspace/run_tests.sh", "echo again\n");
  EXPECT_EQ(run("run_tests", "{}"), "again");
}

TEST_F(WorkspaceTools, results_are_utf8_and_bounded) {
  write("workspace/bad.txt", "a\xFFz\xC3\xB6\xED\xA0\x80\xC3");
  EXPECT_EQ(on_path("read_file", "bad.txt"), "a?z\xC3\xB6????");
  write("workspace/bad.txt", std::string("\x1B[2J\t\xC2\x9B"
                                         "0m\0z\x7F\nz",
                                         14));
  EXPECT_EQ(on_path("read_file", "bad.txt"), "?[2J\t??0m?z?\nz");
  write("workspace/long.txt", std::string(3 * kMaxResultBytes, 'x'));
  EXPECT_EQ(on_path("read_file", "long.txt").size(), static_cast<std::size_t>(kMaxResultBytes));
}

TEST_F(WorkspaceTools, sums_and_products) {
  const auto calc = [&](const char* text) {
    return run("calc", std::string(R"({"expression": ")") + text + R"("})");
  };
  EXPECT_EQ(calc("37 * 21"), "777");
  EXPECT_EQ(calc("2 + 3 * 4 - 20"), "-6");
  EXPECT_EQ(calc("0 * 5 * 7"), "0");
  EXPECT_EQ(calc("007"), "7");
  for (const char* wrong :
       {"", " ", "1 +", "1 + ", "1+2", "1  + 2", "-1", "1 / 2", "1 + x", "1 2"}) {
    EXPECT_EQ(calc(wrong), "error: not an expression") << wrong;
  }
  EXPECT_EQ(calc("999999999 * 999999999 * 999999999"), "error: too large");
}

TEST_F(WorkspaceTools, notes_are_kept) {
  EXPECT_EQ(run("remember", R"({"key": "port", "value": "80"})"), "saved");
  EXPECT_EQ(run("remember", R"({"value": "81", "key": "port"})"), "saved");
  EXPECT_EQ(content("workspace/.agent/notes"), "port: 80\nport: 81\n");
}

// What the generator of the training says (make_tool_texts.py), word for word.
TEST(WorkspaceToolsTexts, are_those_that_the_model_is_trained_with) {
  namespace json = boost::json;
  const json::value texts =
      json::parse(test::read_file(CAIRN_SOURCE_DIR "/tests/examples/tool_texts.json"));
  EXPECT_EQ(json::parse(kToolsJson), texts.at("tools"));
  std::size_t n_steps = 0;
  for (const json::value& at : texts.at("cases").as_array()) {
    const test::TemporaryFolder folder;
    for (const auto& [path, text] : at.at("files").as_object()) {
      const std::filesystem::path file = folder.path() / std::string(path);
      std::filesystem::create_directories(file.parent_path());
      test::write_file(file.string(), text.as_string());
    }
    for (const json::value& step : at.at("steps").as_array()) {
      const std::string name = step.at("name").as_string().c_str();
      const std::string arguments = json::serialize(step.at("arguments"));
      // The generator's tests are no file of its repositories.
      const std::string script = folder / "run_tests.sh";
      if (name == "run_tests") {
        test::write_file(script,
                         test::read_file(CAIRN_SOURCE_DIR "/examples/workspace/run_tests.sh"));
      }
      static tool_result result;
      const std::string id = "call_" + std::to_string(++n_steps);
      run_tool(folder.path().c_str(), id.c_str(), name.c_str(), arguments.c_str(), &result);
      EXPECT_EQ(std::string(result.text, result.n_bytes), step.at("result").as_string())
          << name << " " << arguments;
      std::filesystem::remove(script);
    }
  }
  EXPECT_GT(n_steps, 150u);
}

TEST(WorkspaceToolsConsent, is_needed_to_write_and_to_run) {
  EXPECT_TRUE(tool_needs_consent("edit_file"));
  EXPECT_TRUE(tool_needs_consent("run_tests"));
  EXPECT_FALSE(tool_needs_consent("read_file"));
}

std::string member(const char* json, const char* key = "path") {
  char value[16];
  return json_string_member(json, key, value, sizeof value) ? value : "(none)";
}

TEST(JsonStringMember, finds_and_decodes_a_string) {
  EXPECT_EQ(member(R"({"path": "a.txt"})"), "a.txt");
  EXPECT_EQ(member(R"( { "x" : {"path": "no"}, "y": [1, "}"], "path" : "a\n\"\u00f6" } )"),
            "a\n\"\xC3\xB6");
  EXPECT_EQ(member(R"({"path": "\ud83d\ude00\u20ac"})"), "\xF0\x9F\x98\x80\xE2\x82\xAC");
  EXPECT_EQ(member(R"({"text": "\"path\": \"no\"", "path": ""})"), "");
}

TEST(JsonStringMember, anything_else_is_none) {
  for (const char* json :
       {"", "{", "{}", "[]", "null", R"({"path")", R"({"path":)", R"({"path": 1})",
        R"({"path": "a)", R"({"path": "\q"})", R"({"path": "\u12"})", R"({"path": "\u0000"})",
        R"({"path": "\ud83d"})", R"({"path": "\ude00"})", R"({"path": "\ud83d\u0041"})",
        R"({"other": "a"})", R"({"path": "longer than sixteen"})", R"({"x": [1, "path": "a"})"}) {
    EXPECT_EQ(member(json), "(none)") << json;
  }
}

}  // namespace
}  // namespace cairn
