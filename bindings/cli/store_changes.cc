// `cairn export` and the commands that change a store: gc, import, remove, rename.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "bindings/cli/commands.h"
#include "bindings/cli/json_writer.h"
#include "bindings/cli/session_text.h"
#include "bindings/cli/store_access.h"
#include "bindings/cli/terminal_text.h"
#include "bindings/cli/text_table.h"

namespace cairn::cli {
namespace {

struct ChangeArguments : StoreArguments {
  std::string name, other;  // a session; its new name, or a file
  bool flag = false;        // --branches, --create
  std::int64_t target_bytes = 0;
};

// What a command that has nothing to tell says.
int print_done(const StoreArguments& arguments, const std::string& text) {
  return print(arguments.as_json ? "{\"ok\": true}\n" : printable(text) + "\n");
}

int export_session(const ChangeArguments& arguments) {
  const Result<StoreReader> reader = open_reader(arguments);
  if (!reader.ok()) return fail(reader.status());
  const Status status = reader->export_session(arguments.name, arguments.other);
  if (!status.ok()) return fail(status);
  return print_done(arguments, "Exported " + arguments.name + " to " + arguments.other +
                                   ". The file is not encrypted.");
}

int collect(const ChangeArguments& arguments) {
  const Result<Store> store = open_owned(arguments);
  if (!store.ok()) return fail(store.status());
  Store owned = *store;
  const Result<CollectReport> report =
      owned.collect({.target_bytes = arguments.target_bytes, .branches = arguments.flag});
  if (!report.ok()) return fail(report.status());
  if (arguments.as_json) {
    JsonWriter json;
    json.begin_object();
    json.key("bytes_before").integer(report->bytes_before);
    json.key("bytes_after").integer(report->bytes_after);
    json.key("blocks_removed").integer(report->blocks_removed);
    json.key("tails_removed").integer(report->tails_removed);
    json.key("events_removed").integer(report->events_removed);
    json.end_object();
    return print(json.text() + "\n");
  }
  TextTable table({{}, {"", Align::kRight}});
  table.add_row({"on disk before", in_binary_units(report->bytes_before)});
  table.add_row({"on disk after", in_binary_units(report->bytes_after)});
  table.add_row({"blocks removed", with_commas(report->blocks_removed)});
  table.add_row({"tails removed", with_commas(report->tails_removed)});
  table.add_row({"events removed", with_commas(report->events_removed)});
  return print(table.text());
}

int import_session(const ChangeArguments& arguments) {
  const Result<Store> store = open_owned(arguments, arguments.flag);
  if (!store.ok()) return fail(store.status());
  Store owned = *store;
  const Result<SessionInfo> session = owned.import_session(arguments.other, arguments.name);
  if (!session.ok()) return fail(session.status());
  if (!arguments.as_json) {
    return print("Imported " + printable(session->name) + ": " + with_commas(session->n_events) +
                 " events, " + with_commas(session->n_tokens) + " tokens.\n");
  }
  JsonWriter json;
  write_session(*session, json);
  return print(json.text() + "\n");
}

int remove_session(const ChangeArguments& arguments) {
  const Result<Store> store = open_owned(arguments);
  if (!store.ok()) return fail(store.status());
  Store owned = *store;
  const Status status = owned.remove(arguments.name);
  return status.ok() ? print_done(arguments, "Removed " + arguments.name + ".") : fail(status);
}

int rename_session(const ChangeArguments& arguments) {
  const Result<Store> store = open_owned(arguments);
  if (!store.ok()) return fail(store.status());
  Store owned = *store;
  const Status status = owned.rename(arguments.name, arguments.other);
  if (!status.ok()) return fail(status);
  return print_done(arguments, "Renamed " + arguments.name + " to " + arguments.other + ".");
}

struct Command {
  CLI::App* app;
  std::shared_ptr<ChangeArguments> arguments;
};

Command add_change(CLI::App& app, const char* name, const char* description, int& exit_code,
                   int (*run)(const ChangeArguments&)) {
  const auto arguments = std::make_shared<ChangeArguments>();
  CLI::App* const command = app.add_subcommand(name, description);
  add_store_arguments(*command, *arguments);
  command->callback([arguments, run, &exit_code] { exit_code = run(*arguments); });
  return {command, arguments};
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  const auto [command, arguments] = add_change(
      app, "export", "Writes a session, its state included, to a file", exit_code, export_session);
  command->add_option("NAME", arguments->name, "the session's name")->required();
  command->add_option("FILE", arguments->other, "the file to write; it must not exist")->required();
}

void add_gc_command(CLI::App& app, int& exit_code) {
  const auto [command, arguments] = add_change(
      app, "gc", "Removes what nobody needs, then evicts down to a size", exit_code, collect);
  command
      ->add_option("--target", arguments->target_bytes,
                   "size on disk to evict down to, such as 10GiB (default: the quota)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  command->add_flag("--branches", arguments->flag,
                    "also remove rewound branches that have no mark, however young");
}

void add_import_command(CLI::App& app, int& exit_code) {
  const auto [command, arguments] = add_change(
      app, "import", "Makes a session of a file that export wrote", exit_code, import_session);
  command->add_option("FILE", arguments->other, "the file")->required();
  command->add_option("--name", arguments->name, "name of the session (default: as it was)");
  command->add_flag("--create", arguments->flag,
                    "make the store if there is none; encrypted if a passphrase is given");
}

void add_remove_command(CLI::App& app, int& exit_code) {
  const auto [command, arguments] = add_change(
      app, "remove", "Removes a session and what only it needs", exit_code, remove_session);
  command->add_option("NAME", arguments->name, "the session's name")->required();
}

void add_rename_command(CLI::App& app, int& exit_code) {
  const auto [command, arguments] =
      add_change(app, "rename", "Gives a session another name", exit_code, rename_session);
  command->add_option("NAME", arguments->name, "the session's name")->required();
  command->add_option("NEW_NAME", arguments->other, "its new name")->required();
}

}  // namespace cairn::cli
