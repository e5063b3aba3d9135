// `cairn run`: a coding agent in a folder, on a terminal.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "bindings/cli/chat.h"
#include "bindings/cli/chat_terminal.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/store_access.h"
#include "cairn/engine.h"
#include "cairn/session.h"

namespace cairn::cli {
namespace {

struct RunArguments : StoreArguments {
  std::string model, session = "main", workspace = ".";
  bool thinking = false;
  float temperature = 0;
  std::int32_t max_tokens = 1024;
};

// Beside what it is about, hidden from the tools.
std::string default_store(const std::string& workspace) { return workspace + "/.cairn"; }

Status check_workspace(const std::string& workspace) {
  std::error_code error;
  if (std::filesystem::is_directory(workspace, error)) return {};
  return Status(StatusCode::kNotFound, "workspace " + workspace + ": no such folder");
}

Result<Session> open_session(const RunArguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::create());
  CAIRN_ASSIGN_OR_RETURN(const Model model, Model::open(runtime, arguments.model));
  CAIRN_ASSIGN_OR_RETURN(const Store store, open_owned(arguments, /*create=*/true));
  Result<Session> session = Session::open(model, store, arguments.session);
  if (session.status().code() == StatusCode::kModelMismatch) {
    return Status(StatusCode::kModelMismatch, std::string(session.status().message()),
                  "another --session begins anew");
  }
  if (session.status().code() != StatusCode::kNotFound) return session;
  return Session::create(model, store, arguments.session, {.thinking = arguments.thinking});
}

Status run_chat(RunArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(check_workspace(arguments.workspace));
  if (arguments.store.empty()) arguments.store = default_store(arguments.workspace);
  CAIRN_ASSIGN_OR_RETURN(Session session, open_session(arguments));
  TurnOptions turn;
  turn.sampling.temperature = arguments.temperature;
  turn.max_tokens = arguments.max_tokens;
  turn.output.constrain_tools = true;
  ChatTerminal terminal;
  terminal.note("Session " + arguments.session + " in " + arguments.workspace +
                ". Ctrl-C stops an answer, Ctrl-D or /quit leaves.");
  Chat chat(std::move(session), arguments.workspace, turn, terminal);
  CAIRN_RETURN_IF_ERROR(chat.begin());
  return chat.converse();
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App* const command = app.add_subcommand(
      "run", "Talks to a model that may look at a folder; edits and tests are asked about");
  command->add_option("MODEL", arguments->model, "the checkpoint's folder")->required();
  command->add_option("--workspace", arguments->workspace, "the folder that the tools work in")
      ->capture_default_str();
  command->add_option("--store", arguments->store,
                      "where sessions are kept (default: .cairn in the workspace)");
  command->add_option("--session", arguments->session, "goes on with this session, or makes it")
      ->capture_default_str();
  command->add_flag("--thinking", arguments->thinking, "a new session reasons before it answers");
  command->add_option("--temperature", arguments->temperature, "0 = always the likeliest token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 10.0));
  command->add_option("--max-tokens", arguments->max_tokens, "of one answer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--passphrase-file", arguments->passphrase_file,
                      "its first line opens an encrypted store (else: the variable "
                      "CAIRN_PASSPHRASE)");
  command->callback([arguments, &exit_code] {
    const Status status = run_chat(*arguments);
    exit_code = status.ok() ? kExitFine : fail(status);
  });
}

}  // namespace cairn::cli
