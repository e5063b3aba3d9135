// cairn why: what a request would reuse of a session, and why not more.
#include <CLI/CLI.hpp>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/store_access.h"
#include "bindings/cli/terminal_text.h"
#include "bindings/cli/text_table.h"
#include "cairn/session.h"

namespace cairn::cli {
namespace {

struct WhyArguments : StoreArguments {
  std::string name, file, model;
  std::vector<std::string> volatile_lines;
};

constexpr std::size_t kWidth = 80, kBarWidth = 60;

std::string milliseconds(double ms) {
  if (ms <= 0) return "not measured yet";
  return ms < 10'000
             ? with_commas(static_cast<std::int64_t>(ms + 0.5)) + " ms"
             : plain_number(static_cast<double>(static_cast<std::int64_t>(ms / 100)) / 10) + " s";
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return std::to_string(whole == 0 ? 0 : (100 * part + whole / 2) / whole) + " %";
}

// One line: what is reused, what is lost, what is new.
std::string bar(const ReuseReport& reuse) {
  const std::int64_t reused = reuse.prompt_tokens - reuse.prefilled;
  std::string line;
  for (std::size_t i = 0; i < kBarWidth; ++i) {
    const std::int64_t token =
        static_cast<std::int64_t>(i) * reuse.prompt_tokens / static_cast<std::int64_t>(kBarWidth);
    line += token < reused ? '#' : token < reused + reuse.lost_tokens ? 'x' : '.';
  }
  return "  [" + line + "]\n  # reused   x computed again   . new\n";
}

// Lines of at most kWidth characters, broken at spaces.
std::string wrapped(const std::string& text) {
  std::string lines, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && width_of(line) + 1 + width_of(word) > kWidth) {
      lines += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + line + "\n";
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else {
      line += c;
    }
  }
  return printable(line);
}

std::string difference_text(const ReuseReport& reuse) {
  if (reuse.first_difference < 0) return "";
  const PromptDifference& difference = reuse.difference;
  TextTable table({{}, {}});
  table.add_row({"first difference", "token " + with_commas(reuse.first_difference)});
  if (difference.message >= 0) {
    table.add_row({"in", "message " + std::to_string(difference.message) + ", byte " +
                             with_commas(difference.byte)});
  }
  if (!difference.tool.empty()) table.add_row({"tool", printable(difference.tool)});
  table.add_row({"stored", "\"" + cut_to(one_line(difference.stored), 58) + "\""});
  table.add_row({"request", "\"" + cut_to(one_line(difference.given), 58) + "\""});
  return "\n" + table.text();
}

std::string found_text(const SyncReport& sync) {
  constexpr std::array<const char*, 6> kHow = {
      "nothing like them",     "word for word", "by their id", "by ids and arguments of calls",
      "by arguments of calls", "by their text"};
  std::array<std::int64_t, kHow.size()> n{};
  for (const SyncedMessage& message : sync.messages) ++n[static_cast<std::size_t>(message.match)];
  TextTable table({{"", Align::kRight}, {}});
  for (std::size_t i = 1; i < n.size(); ++i) {
    if (n[i] > 0) table.add_row({with_commas(n[i]), std::string("found ") + kHow[i]});
  }
  if (n[0] > 0) table.add_row({with_commas(n[0]), "new to the session"});
  if (sync.n_left > 0) {
    table.add_row({with_commas(sync.n_left), "stored ones are left on a branch"});
  }
  return "\nMessages\n" + table.text(2);
}

std::string plan_text(const std::string& name, const TurnPlan& plan) {
  const ReuseReport& reuse = plan.reuse;
  const std::int64_t reused = reuse.prompt_tokens - reuse.prefilled;
  TextTable table({{}, {"", Align::kRight}, {}});
  table.add_row({"prompt", with_commas(reuse.prompt_tokens), "tokens"});
  table.add_row({"reused", with_commas(reused), percent(reused, reuse.prompt_tokens)});
  table.add_row({"prefilled", with_commas(reuse.prefilled), milliseconds(plan.prefill_ms)});
  if (reuse.lost_tokens > 0) {
    table.add_row({"of these lost", with_commas(reuse.lost_tokens), milliseconds(reuse.lost_ms)});
  }
  if (reuse.replayed > 0) {
    table.add_row({"replayed", with_commas(reuse.replayed), "windows of reused tokens"});
  }
  table.add_row({"read", in_binary_units(reuse.bytes_read), milliseconds(reuse.restore_ms)});
  table.add_row({"memory", in_binary_units(plan.memory_bytes), ""});
  return wrapped("Session " + printable(name) + ": " + printable(reuse.detail) + ".") + "\n" +
         bar(reuse) + "\n" + table.text() + difference_text(reuse) + found_text(plan.sync);
}

Result<TurnPlan> make_plan(const WhyArguments& arguments) {
  std::ifstream in(arguments.file, std::ios::binary);
  if (!in) return Status(StatusCode::kNotFound, "cannot read " + arguments.file);
  const std::string body(std::istreambuf_iterator<char>(in), {});
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Message> messages, parse_request(body));
  CAIRN_ASSIGN_OR_RETURN(const Store store, open_owned(arguments));
  RuntimeOptions options;
  options.compute_threads = 1;
  CAIRN_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::create(options));
  CAIRN_ASSIGN_OR_RETURN(const Model model, Model::open(runtime, arguments.model));
  CAIRN_ASSIGN_OR_RETURN(const Session session, Session::open(model, store, arguments.name));
  return session.plan_sync(messages, {}, {arguments.volatile_lines});
}

int print_why(const WhyArguments& arguments) {
  const Result<TurnPlan> plan = make_plan(arguments);
  if (!plan.ok()) return fail(plan.status());
  print(arguments.as_json ? to_json(*plan) + "\n" : plan_text(arguments.name, *plan));
  return plan->reuse.lost_tokens > 0 ? kExitBadNews : kExitFine;
}

}  // namespace

void add_why_command(CLI::App& app, int& exit_code) {
  const auto arguments = std::make_shared<WhyArguments>();
  CLI::App* const command =
      app.add_subcommand("why", "Says what a request would reuse of a session, and why not more");
  add_store_arguments(*command, *arguments);
  command->add_option("NAME", arguments->name, "the session's name")->required();
  command->add_option("FILE", arguments->file, "the request's body, as JSON")->required();
  command->add_option("--model", arguments->model, "the checkpoint's folder")->required();
  command->add_option("--volatile", arguments->volatile_lines,
                      "lines of system messages that begin like this change between requests");
  command->callback([arguments, &exit_code] { exit_code = print_why(*arguments); });
}

}  // namespace cairn::cli
