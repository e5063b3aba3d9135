// `cairn why`: a request that only goes on, one that changed the head of its prompt, and what a
// person and a program read of each.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>
#include <string>

#include "tests/bindings/run_cairn.h"
#include "tests/session/live_session.h"

namespace cairn {
namespace {

namespace json = boost::json;
using test::contains;
using test::Outcome;
using test::run_cairn;

struct CliWhy : testing::Test {
  test::TemporaryFolder folder;
  std::string store = folder / "store", request = folder / "request.json";
  json::array history;

  void SetUp() override {
    const Result<Store> owned = Store::open(test::live_runtime(), store, test::run_options());
    ASSERT_TRUE(owned.ok());
    Result<Session> session = Session::create(test::live_model(), *owned, "wörk");
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE(session->append(Message::system("Time: 10:01\nBe brief.")).ok());
    const test::Reply reply =
        test::ask(*session, test::words(150, 1), {.sampling = test::greedy(), .max_tokens = 8});
    history = {{{"role", "system"}, {"content", "Time: 10:01\nBe brief."}},
               {{"role", "user"}, {"content", test::words(150, 1)}},
               {{"role", "assistant"}, {"content", reply.text()}},
               {{"role", "user"}, {"content", "and \x1b[2J now?"}}};
  }
  Outcome why(const std::string& rest = "") {
    test::write_file(request, json::serialize(json::object{{"messages", history}}));
    return run_cairn("why '" + store + "' wörk '" + request + "' --model '" + test::kTinyA + "' " +
                     rest);
  }
};

TEST_F(CliWhy, a_request_that_goes_on_loses_nothing) {
  const Outcome outcome = why();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_TRUE(contains(outcome, "the rest of the prompt is new")) << outcome.text;
  EXPECT_TRUE(contains(outcome, "found by their text"));
  EXPECT_TRUE(contains(outcome, "1  new to the session"));
  EXPECT_EQ(outcome.text.find("lost"), std::string::npos);
}

TEST_F(CliWhy, a_changed_line_is_shown_with_both_sides) {
  history[0].as_object()["content"] = "Time: 10:02\nBe brief.";
  const Outcome outcome = why();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_TRUE(contains(outcome, "the system text (message 0) is another")) << outcome.text;
  EXPECT_TRUE(contains(outcome, "\"1\\nBe brief."));
  EXPECT_TRUE(contains(outcome, "\"2\\nBe brief."));
  EXPECT_TRUE(contains(outcome, "of these lost"));
  EXPECT_EQ(outcome.text.find('\x1b'), std::string::npos);
  std::istringstream lines(outcome.text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;

  const Outcome as_json = why("--json");
  EXPECT_EQ(as_json.exit_code, 1);
  const json::value plan = json::parse(as_json.text);
  EXPECT_EQ(plan.at("reuse").at("cause").as_string(), "system");
  EXPECT_EQ(plan.at("reuse").at("difference").at("message").as_int64(), 0);
  EXPECT_EQ(plan.at("sync").at("messages").as_array().size(), 4u);
  EXPECT_GT(plan.at("reuse").at("lost_tokens").as_int64(), 0);
}

TEST_F(CliWhy, what_cannot_be_answered_is_said) {
  EXPECT_EQ(run_cairn("why '" + store + "' wörk '" + (folder / "absent") + "' --model '" +
                      test::kTinyA + "'")
                .exit_code,
            2);
  history[0].as_object()["role"] = "robot";
  const Outcome outcome = why();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome, "messages[0]: role: unknown role 'robot'")) << outcome.text;
}

}  // namespace
}  // namespace cairn
