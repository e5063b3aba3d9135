#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

extern "C" {
#include "examples/json_member.h"
#include "examples/workspace_tools.h"
}
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
  for (const char* wrong : {"{}", "", "[1]", R"({"path": 1})", R"({"Path": "a.txt"})"}) {
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

TEST_F(WorkspaceTools, tests_report_output_or_status) {
  write("workspace/run_tests.sh", "echo out; echo err >&2; cat a.txt; exit 3\n");
  EXPECT_EQ(run("run_tests", "{}"), "out\nerr\ninside");
  write("workspace/run_tests.sh", "exit 3\n");
  EXPECT_EQ(run("run_tests", "{}"), "exit status 3");
}

TEST_F(WorkspaceTools, results_are_utf8_and_bounded) {
  write("workspace/bad.txt", "a\xFFz\xC3\xB6\xED\xA0\x80\xC3");
  EXPECT_EQ(on_path("read_file", "bad.txt"), "a?z\xC3\xB6????");
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
