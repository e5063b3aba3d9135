#include <gtest/gtest.h>

#include <filesystem>
#include <string>

extern "C" {
#include "examples/workspace_tools.h"
}
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

class WorkspaceTools : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(workspace() + "/sub");
    write("workspace/a.txt", "inside\n");
    write("outside.txt", "secret\n");
    std::filesystem::create_symlink("../outside.txt", workspace() + "/link");
  }

  std::string workspace() const { return folder_ / "workspace"; }
  void write(const std::string& name, const std::string& text) const {
    test::write_file(folder_ / name, text);
  }
  std::string run(const char* tool, const char* path) const {
    static tool_result result;
    run_tool(workspace().c_str(), tool, path, &result);
    return {result.text, result.n_bytes};
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(WorkspaceTools, files_and_folders_inside_are_shown) {
  EXPECT_EQ(run("read_file", "a.txt"), "inside\n");
  EXPECT_EQ(run("read_file", "sub/.././a.txt").substr(0, 6), "error:");  // ".." is refused as such
  EXPECT_EQ(run("list_dir", "."), "a.txt\nlink\nsub\n");
  EXPECT_EQ(run("list_dir", ""), run("list_dir", "."));
}

TEST_F(WorkspaceTools, nothing_outside_is_reachable) {
  for (const char* path :
       {"/etc/passwd", "../outside.txt", "sub/../../outside.txt", "link", "..", "sub/.."}) {
    EXPECT_EQ(run("read_file", path).substr(0, 6), "error:") << path;
  }
  EXPECT_EQ(run("list_dir", "..").substr(0, 6), "error:");
}

TEST_F(WorkspaceTools, mistakes_are_answers) {
  EXPECT_EQ(run("read_file", "absent").substr(0, 6), "error:");
  EXPECT_EQ(run("remove_file", "a.txt").substr(0, 6), "error:");
  EXPECT_EQ(run("run_tests", "").substr(0, 6), "error:");  // there is no run_tests.sh
}

TEST_F(WorkspaceTools, tests_report_output_and_status) {
  write("workspace/run_tests.sh", "echo out; echo err >&2; cat a.txt; exit 3\n");
  EXPECT_EQ(run("run_tests", ""), "out\nerr\ninside\nexit status 3\n");
}

TEST_F(WorkspaceTools, results_are_utf8_and_bounded) {
  write("workspace/bad.txt", "a\xFFz\xC3\xB6\xED\xA0\x80\xC3");
  EXPECT_EQ(run("read_file", "bad.txt"), "a?z\xC3\xB6????");
  write("workspace/long.txt", std::string(3 * kMaxResultBytes, 'x'));
  EXPECT_EQ(run("read_file", "long.txt").size(), static_cast<std::size_t>(kMaxResultBytes));
}

std::string member(const char* json, const char* key = "path") {
  char value[16];
  return json_string_member(json, key, value, sizeof value) ? value : "(none)";
}

TEST(JsonStringMember, finds_and_decodes_a_string) {
  EXPECT_EQ(member(R"({"path": "a.txt"})"), "a.txt");
  EXPECT_EQ(member(R"( { "x" : {"path": "no"}, "y": [1, "}"], "path" : "a\n\"\u00f6" } )"),
            "a\n\"\xC3\xB6");
  EXPECT_EQ(member(R"({"text": "\"path\": \"no\"", "path": ""})"), "");
}

TEST(JsonStringMember, anything_else_is_none) {
  for (const char* json :
       {"", "{", "{}", "[]", "null", R"({"path")", R"({"path":)", R"({"path": 1})",
        R"({"path": "a)", R"({"path": "\q"})", R"({"path": "\u12"})", R"({"other": "a"})",
        R"({"path": "longer than sixteen"})", R"({"x": [1, "path": "a"})"}) {
    EXPECT_EQ(member(json), "(none)") << json;
  }
}

}  // namespace
}  // namespace cairn
