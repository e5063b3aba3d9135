// `cairn sessions`, `cairn stats`, `cairn verify`: a store in one table each.

#include <CLI/CLI.hpp>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/json_writer.h"
#include "bindings/cli/session_text.h"
#include "bindings/cli/store_access.h"
#include "bindings/cli/terminal_text.h"
#include "bindings/cli/text_table.h"
#include "cairn/session.h"

namespace cairn::cli {
namespace {

constexpr std::size_t kMaxFindingLines = 20;  // of text; --json has all
// What the other columns of the list of sessions take at most, about.
constexpr std::size_t kOtherColumns = 44, kLeastNameWidth = 16;

// -- sessions --

std::string sessions_text(const std::vector<SessionInfo>& sessions) {
  if (sessions.empty()) return "No sessions.\n";
  const std::map<std::string, std::string> names = names_by_id(sessions);
  const std::size_t name_width = kLeastNameWidth + room_beside(kOtherColumns + kLeastNameWidth);
  TextTable table({{"session"},
                   {"used", Align::kRight},
                   {"tokens", Align::kRight},
                   {"events", Align::kRight},
                   {"remarks"}});
  for (const SessionInfo& session : sessions) {
    table.add_row({cut_to(printable(session.name), name_width), time_ago(session.used_ms),
                   with_commas(session.n_tokens), with_commas(session.n_events),
                   remarks(session, names)});
  }
  return table.text();
}

int print_sessions(const StoreArguments& arguments) {
  const Result<StoreReader> reader = open_reader(arguments);
  if (!reader.ok()) return fail(reader.status());
  const Result<std::vector<SessionInfo>> sessions = reader->list();
  if (!sessions.ok()) return fail(sessions.status());
  if (!arguments.as_json) return print(sessions_text(*sessions) + owner_line(*reader));
  JsonWriter json;
  json.begin_object();
  json.key("owner").string(printable(reader->owner()));
  json.key("sessions").begin_array();
  for (const SessionInfo& session : *sessions) write_session(session, json);
  json.end_array();
  json.end_object();
  return print(json.text() + "\n");
}

// -- stats --

struct Count {
  const char* name;  // in JSON
  const char* title;
  std::int64_t n;
};

std::vector<Count> counts_of(const StoreCounters& c) {
  return {{"turns", "turns", c.turns},
          {"tokens_from_memory", "tokens reused from memory", c.tokens_from_memory},
          {"tokens_from_disk", "tokens restored from disk", c.tokens_from_disk},
          {"tokens_replayed", "of these replayed", c.tokens_replayed},
          {"tokens_prefilled", "tokens computed for prompts", c.tokens_prefilled},
          {"tokens_generated", "tokens generated", c.tokens_generated},
          {"blocks_written", "blocks written", c.blocks_written},
          {"blocks_shared", "blocks found stored already", c.blocks_shared},
          {"blocks_evicted", "blocks evicted", c.blocks_evicted},
          {"tails_evicted", "tails evicted", c.tails_evicted},
          {"blocks_corrupt", "damaged blocks dropped", c.blocks_corrupt},
          {"tails_corrupt", "damaged tails dropped", c.tails_corrupt},
          {"commits_without_state", "commits without room for state", c.commits_without_state}};
}

// By MissCause.
constexpr std::array<const char*, kMissCauseCount> kMissTitles = {"everything known was reused",
                                                                  "new tokens only",
                                                                  "prompt changed",
                                                                  "never reached the store",
                                                                  "stored state damaged",
                                                                  "replay needed",
                                                                  "evicted",
                                                                  "state of another model",
                                                                  "system text changed",
                                                                  "tools changed",
                                                                  "earlier message edited",
                                                                  "answer came back rewritten",
                                                                  "format dropped the reasoning",
                                                                  "thinking or effort changed",
                                                                  "went back to another place"};

std::string with_units(std::int64_t n_bytes) {
  return in_binary_units(n_bytes) + " (" + with_commas(n_bytes) + " bytes)";
}

std::string recovery_text(const StoreRecovery& recovery) {
  if (recovery.detail.empty()) return "";
  return "\n" + std::string(recovery.rolled_back ? "Rolled back: " : "Recovered: ") +
         printable(recovery.detail) + "\n";
}

std::string stats_text(const StoreStats& stats) {
  TextTable table({{}, {}});
  table.add_row({"on disk", with_units(stats.bytes_on_disk)});
  table.add_row({"sessions", with_commas(stats.n_sessions)});
  table.add_row({"blocks", with_commas(stats.n_blocks)});
  table.add_row({"tails", with_commas(stats.n_tails)});
  table.add_row({"handed to the database", with_units(stats.counters.bytes_committed)});
  table.add_row({"written by it", with_units(stats.counters.bytes_written)});
  TextTable counts({{}, {"", Align::kRight}});
  for (const Count& count : counts_of(stats.counters)) {
    counts.add_row({count.title, with_commas(count.n)});
  }
  TextTable misses({{}, {"", Align::kRight}});
  for (std::size_t i = 0; i < kMissTitles.size(); ++i) {
    misses.add_row({kMissTitles[i], with_commas(stats.counters.misses[i])});
  }
  return table.text() + "\nSince the store was made\n" + counts.text(2) +
         "\nTurns by what kept them from reusing all of their prompt\n" + misses.text(2) +
         recovery_text(stats.recovery);
}

std::string stats_json(const StoreStats& stats, const std::string& owner) {
  JsonWriter json;
  json.begin_object();
  json.key("owner").string(printable(owner));
  json.key("bytes_on_disk").integer(stats.bytes_on_disk);
  json.key("n_sessions").integer(stats.n_sessions);
  json.key("n_blocks").integer(stats.n_blocks);
  json.key("n_tails").integer(stats.n_tails);
  json.key("counters").begin_object();
  json.key("bytes_committed").integer(stats.counters.bytes_committed);
  json.key("bytes_written").integer(stats.counters.bytes_written);
  for (const Count& count : counts_of(stats.counters)) json.key(count.name).integer(count.n);
  json.key("misses").begin_object();
  for (std::size_t i = 0; i < kMissTitles.size(); ++i) {
    json.key(miss_cause_name(static_cast<MissCause>(i))).integer(stats.counters.misses[i]);
  }
  json.end_object();
  json.end_object();
  json.key("recovery").begin_object();
  json.key("rolled_back").boolean(stats.recovery.rolled_back);
  json.key("commits_lost").integer(stats.recovery.commits_lost);
  json.key("detail").string(stats.recovery.detail);
  json.end_object();
  json.end_object();
  return json.text() + "\n";
}

int print_stats(const StoreArguments& arguments) {
  const Result<StoreReader> reader = open_reader(arguments);
  if (!reader.ok()) return fail(reader.status());
  const Result<StoreStats> stats = reader->stats();
  if (!stats.ok()) return fail(stats.status());
  if (arguments.as_json) return print(stats_json(*stats, reader->owner()));
  return print(stats_text(*stats) + owner_line(*reader));
}

// -- verify --

std::string findings_text(const char* title, const std::vector<std::string>& findings) {
  if (findings.empty()) return "";
  const auto n = static_cast<std::int64_t>(findings.size());
  std::string text = "\n" + std::string(title) + ": " + with_commas(n) + "\n";
  for (std::size_t i = 0; i < findings.size() && i < kMaxFindingLines; ++i) {
    text += "  " + printable(findings[i]) + "\n";
  }
  if (findings.size() > kMaxFindingLines) {
    text += "  and " + with_commas(n - static_cast<std::int64_t>(kMaxFindingLines)) +
            " more; --json lists all\n";
  }
  return text;
}

std::string verify_text(const VerifyReport& report) {
  TextTable table({{}, {"", Align::kRight}});
  table.add_row({"sessions", with_commas(report.n_sessions)});
  table.add_row({"events", with_commas(report.n_events)});
  table.add_row({"blocks", with_commas(report.n_blocks)});
  table.add_row({"tails", with_commas(report.n_tails)});
  table.add_row({"checked", in_binary_units(report.bytes_checked)});
  return table.text() + findings_text("Problems", report.problems) +
         findings_text("Notes (nothing is lost)", report.notes) +
         (report.problems.empty() ? "\nSound: every value is as it was written.\n" : "");
}

std::string verify_json(const VerifyReport& report, const std::string& owner) {
  JsonWriter json;
  json.begin_object();
  json.key("owner").string(printable(owner));
  json.key("n_sessions").integer(report.n_sessions);
  json.key("n_events").integer(report.n_events);
  json.key("n_blocks").integer(report.n_blocks);
  json.key("n_tails").integer(report.n_tails);
  json.key("bytes_checked").integer(report.bytes_checked);
  json.key("problems").begin_array();
  for (const std::string& problem : report.problems) json.string(printable(problem));
  json.end_array();
  json.key("notes").begin_array();
  for (const std::string& note : report.notes) json.string(printable(note));
  json.end_array();
  json.end_object();
  return json.text() + "\n";
}

int print_verification(const StoreArguments& arguments) {
  const Result<StoreReader> reader = open_reader(arguments);
  if (!reader.ok()) return fail(reader.status());
  const Result<VerifyReport> report = reader->verify();
  if (!report.ok()) return fail(report.status());
  (void)print(arguments.as_json ? verify_json(*report, reader->owner())
                                : verify_text(*report) + owner_line(*reader));
  return report->problems.empty() ? kExitFine : kExitBadNews;
}

CLI::App* add_report(CLI::App& app, const char* name, const char* description, int& exit_code,
                     int (*run)(const StoreArguments&)) {
  // Shared with the callback, which runs after this function is gone.
  const auto arguments = std::make_shared<StoreArguments>();
  CLI::App* const command = app.add_subcommand(name, description);
  add_store_arguments(*command, *arguments);
  command->callback([arguments, run, &exit_code] { exit_code = run(*arguments); });
  return command;
}

}  // namespace

void add_sessions_command(CLI::App& app, int& exit_code) {
  add_report(app, "sessions", "Lists the sessions of a store, last used first", exit_code,
             print_sessions);
}

void add_stats_command(CLI::App& app, int& exit_code) {
  add_report(app, "stats", "Shows what a store holds and what happened in it", exit_code,
             print_stats);
}

void add_verify_command(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      add_report(app, "verify", "Reads and checks every value of a store; repairs nothing",
                 exit_code, print_verification);
  command->footer("Exit status: 0 = sound, 1 = problems found, 2 = cannot be read.");
}

}  // namespace cairn::cli
