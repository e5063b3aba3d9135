// Runs the commands on stores: exit codes, what a person reads, JSON.
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <memory>
#include <string>

#include "tests/bindings/run_cairn.h"
#include "tests/session/session_author.h"
#include "tests/support/temporary_folder.h"

namespace cairn {
namespace {

namespace json = boost::json;
using test::contains;
using test::Outcome;
using test::run_cairn;

struct CliStore : testing::Test {
  test::TemporaryFolder folder;
  std::string path = folder / "store", file = folder / "session.cairn";
  std::unique_ptr<session::SessionStore> owned;  // until closed

  void SetUp() override {
    owned = test::open_store(path);
    test::Author author(*owned, "wörk", 1);
    author.take_turn(3, 17, 900);
  }
  Outcome run(const std::string& command, const std::string& rest = "") {
    return run_cairn(command + " '" + path + "' " + rest);
  }
  json::value run_json(const std::string& command, const std::string& rest = "") {
    const Outcome outcome = run(command, rest + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    json::error_code error;
    json::value value = json::parse(outcome.text, error);
    EXPECT_FALSE(error) << outcome.text;
    return value;
  }
};

TEST_F(CliStore, is_readable_while_an_owner_has_it) {
  const std::string owner = "In use by pid " + std::to_string(getpid());
  for (const char* command : {"sessions", "stats", "verify"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_TRUE(contains(outcome, owner)) << outcome.text;
  }
  const Outcome shown = run("show", "wörk");
  EXPECT_EQ(shown.exit_code, 0) << shown.text;
  EXPECT_TRUE(contains(shown, "user: do it [2J again")) << shown.text;
  EXPECT_TRUE(contains(shown, "<- head"));
  EXPECT_EQ(shown.text.find('\x1b'), std::string::npos);
}

TEST_F(CliStore, changes_need_the_store_for_themselves) {
  for (const char* command : {"gc", "remove", "rename"}) {
    const std::string rest = std::string(command) == "gc"       ? ""
                             : std::string(command) == "remove" ? "wörk"
                                                                : "wörk other";
    const Outcome outcome = run(command, rest);
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_TRUE(contains(outcome, "in use by pid " + std::to_string(getpid()))) << outcome.text;
  }
  owned.reset();
  EXPECT_EQ(run("rename", "wörk other").exit_code, 0);
  EXPECT_EQ(run("gc").exit_code, 0);
  EXPECT_EQ(run_json("sessions").at("sessions").at(0).at("name").as_string(), "other");
  EXPECT_EQ(run("remove", "other").exit_code, 0);
  EXPECT_TRUE(contains(run("sessions"), "No sessions."));
  EXPECT_EQ(run("show", "other").exit_code, 2);
}

TEST_F(CliStore, a_session_travels_as_a_file) {
  EXPECT_EQ(run("export", "wörk '" + file + "'").exit_code, 0);
  EXPECT_EQ(run("export", "wörk '" + file + "'").exit_code, 2);
  const json::value before = run_json("show", "wörk");
  owned.reset();
  path = folder / "other";
  EXPECT_EQ(run("import", "'" + file + "'").exit_code, 2);  // no store there
  EXPECT_EQ(run("import", "'" + file + "' --create").exit_code, 0);
  const json::value after = run_json("show", "wörk");
  EXPECT_EQ(after.at("events"), before.at("events"));
  EXPECT_EQ(after.at("n_blocks"), before.at("n_blocks"));
  EXPECT_EQ(run("verify").exit_code, 0);
  test::write_file(file, "CAIRN");
  EXPECT_EQ(run("import", "'" + file + "' --name again").exit_code, 2);
}

TEST_F(CliStore, an_encrypted_store_asks_for_its_passphrase) {
  EXPECT_EQ(run("export", "wörk '" + file + "'").exit_code, 0);
  path = folder / "secret";
  test::write_file(folder / "passphrase", "open sesame\n");
  const std::string secret = " --passphrase-file '" + (folder / "passphrase") + "'";
  const Outcome imported = run("import", "'" + file + "' --create" + secret);
  EXPECT_EQ(imported.exit_code, 0) << imported.text;
  EXPECT_EQ(run("sessions").exit_code, 2);
  EXPECT_EQ(run("verify", secret).exit_code, 0);
  setenv("CAIRN_PASSPHRASE", "open sesame", 1);
  EXPECT_TRUE(contains(run("sessions"), "wörk"));
  path = folder / "store";
  EXPECT_EQ(run("sessions").exit_code, 0);  // not encrypted: the variable is for others
  unsetenv("CAIRN_PASSPHRASE");
}

}  // namespace
}  // namespace cairn
