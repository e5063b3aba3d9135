// `cairn show`: one session and its log as a tree. The path to the head runs down the left edge;
// what a rewind left hangs indented under the event it followed. Groups of tokens that follow each
// other are one line.

#include <CLI/CLI.hpp>
#include <algorithm>
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

namespace cairn::cli {
namespace {

constexpr std::size_t kLeastSummaryWidth = 20;

std::string size_and_count(std::int64_t n_bytes, std::int64_t n, const char* of) {
  return in_binary_units(n_bytes) + " in " + with_commas(n) + " " + of;
}

std::string facts_text(const SessionTree& tree, const std::map<std::string, std::string>& names) {
  const SessionInfo& info = tree.info;
  TextTable table({{}, {}});
  table.add_row({"session", printable(info.name)});
  table.add_row({"id", info.id});
  table.add_row({"model", printable(info.model_fingerprint)});
  table.add_row({"created", utc_time(info.created_ms)});
  table.add_row({"used", utc_time(info.used_ms) + ", " + time_ago(info.used_ms)});
  if (!info.forked_from.empty()) {
    table.add_row({"fork of", name_of(info.forked_from, names) + ", at event " +
                                  std::to_string(tree.forked_at)});
  }
  for (const auto& [key, value] : info.labels) {
    table.add_row({"label", printable(key) + " = " + printable(value)});
  }
  table.add_row({"tokens", with_commas(info.n_tokens)});
  table.add_row({"blocks", size_and_count(tree.bytes_blocks, tree.n_blocks, "blocks") + ", " +
                               with_commas(tree.n_blocks_shared) +
                               " of them shared with other sessions"});
  table.add_row({"tails", in_binary_units(tree.bytes_tails)});
  table.add_row({"log", size_and_count(tree.bytes_log, info.n_events, "events")});
  table.add_row({"exact state", tree.tail_position < 0
                                    ? "not stored"
                                    : "stored at token " + with_commas(tree.tail_position)});
  if (info.turn_open) table.add_row({"turn", "open: it can be resumed"});
  return table.text();
}

// -- the tree --

struct Line {
  std::string ids, guide, kind, summary;
};

class TreeText {
 public:
  explicit TreeText(const SessionTree& tree) : tree_(tree) {
    for (std::size_t i = 0; i < tree.events.size(); ++i) {
      children_[tree.events[i].parent].push_back(i);
    }
  }

  std::string text() {
    draw(0, 0);
    std::size_t id_width = 0, kind_width = 0;
    for (const Line& line : lines_) {
      id_width = std::max(id_width, line.ids.size());
      kind_width = std::max(kind_width, width_of(line.guide) + line.kind.size());
    }
    const std::size_t used = 2 + id_width + 2 + kind_width + 2;
    const std::size_t width = kLeastSummaryWidth + room_beside(used + kLeastSummaryWidth);
    std::string text;
    for (const Line& line : lines_) {
      const std::size_t n_kind = width_of(line.guide) + line.kind.size();
      text += "  " + std::string(id_width - line.ids.size(), ' ') + line.ids + "  " + line.guide +
              line.kind + std::string(kind_width - n_kind, ' ') + "  " +
              cut_to(line.summary, width);
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n";
    }
    return text;
  }

 private:
  const SessionEvent& at(std::size_t i) const { return tree_.events[i]; }

  // Everything after event `id`. Not by recursion: a log is as deep as it is long.
  void draw(std::uint64_t id, std::size_t depth) {
    struct Step {
      std::size_t event, depth;
    };
    std::vector<Step> open;
    const auto push_children = [&](std::uint64_t of, std::size_t at_depth) {
      std::vector<std::size_t> next = children_[of];
      if (next.empty()) return;
      // The line goes on with the child that leads to the head, else with the newest.
      const auto on_path = std::ranges::find_if(next, [&](std::size_t i) { return at(i).on_path; });
      std::rotate(on_path == next.end() ? next.end() - 1 : on_path,
                  on_path == next.end() ? next.end() : on_path + 1, next.end());
      open.push_back({next.back(), at_depth});
      for (auto i = next.rbegin() + 1; i != next.rend(); ++i) open.push_back({*i, at_depth + 1});
    };
    push_children(id, depth);
    while (!open.empty()) {
      const Step step = open.back();
      open.pop_back();
      const std::size_t last = add_line(step.event, step.depth);
      push_children(at(last).id, step.depth);
    }
  }

  // The line of the event and of token groups after it; the last event on it.
  std::size_t add_line(std::size_t first, std::size_t depth) {
    const SessionEvent& event = at(first);
    std::size_t last = first;
    std::int64_t n_tokens = event.n_tokens;
    while (event.kind == "tokens") {
      const std::vector<std::size_t>& next = children_[at(last).id];
      if (next.size() != 1 || at(next[0]).kind != "tokens" || at(last).id == tree_.head) break;
      last = next[0];
      n_tokens += at(last).n_tokens;
    }
    Line line;
    line.ids = std::to_string(event.id);
    if (last != first) line.ids += "-" + std::to_string(at(last).id);
    for (std::size_t i = 0; i < depth; ++i) line.guide += "| ";
    line.kind = printable(event.kind);
    line.summary =
        event.kind == "tokens" ? with_commas(n_tokens) + " tokens" : printable(event.summary);
    if (at(last).id == tree_.forked_at) line.summary += "  <- forked here";
    if (at(last).id == tree_.head) line.summary += "  <- head";
    lines_.push_back(std::move(line));
    return last;
  }

  const SessionTree& tree_;
  std::map<std::uint64_t, std::vector<std::size_t>> children_;  // by the parent's id
  std::vector<Line> lines_;
};

// -- JSON --

std::string tree_json(const SessionTree& tree, const std::string& owner) {
  JsonWriter json;
  json.begin_object();
  json.key("owner").string(printable(owner));
  json.key("session");
  write_session(tree.info, json);
  json.key("head").integer(static_cast<std::int64_t>(tree.head));
  json.key("forked_at").integer(static_cast<std::int64_t>(tree.forked_at));
  json.key("n_blocks").integer(tree.n_blocks);
  json.key("n_blocks_shared").integer(tree.n_blocks_shared);
  json.key("bytes_blocks").integer(tree.bytes_blocks);
  json.key("bytes_tails").integer(tree.bytes_tails);
  json.key("bytes_log").integer(tree.bytes_log);
  json.key("tail_position").integer(tree.tail_position);
  json.key("events").begin_array();
  for (const SessionEvent& event : tree.events) {
    json.begin_object();
    json.key("id").integer(static_cast<std::int64_t>(event.id));
    json.key("parent").integer(static_cast<std::int64_t>(event.parent));
    json.key("time_ms").integer(event.time_ms);
    json.key("kind").string(event.kind);
    json.key("summary").string(event.summary);
    json.key("n_tokens").integer(event.n_tokens);
    json.key("on_path").boolean(event.on_path);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.text() + "\n";
}

int print_session(const StoreArguments& arguments, const std::string& name) {
  const Result<StoreReader> reader = open_reader(arguments);
  if (!reader.ok()) return fail(reader.status());
  const Result<SessionTree> tree = reader->show(name);
  if (!tree.ok()) return fail(tree.status());
  if (arguments.as_json) return print(tree_json(*tree, reader->owner()));
  const Result<std::vector<SessionInfo>> sessions = reader->list();
  if (!sessions.ok()) return fail(sessions.status());
  return print(facts_text(*tree, names_by_id(*sessions)) + "\nLog\n" + TreeText(*tree).text() +
               owner_line(*reader));
}

}  // namespace

void add_show_command(CLI::App& app, int& exit_code) {
  struct Arguments : StoreArguments {
    std::string name;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = app.add_subcommand("show", "Shows one session and its log as a tree");
  add_store_arguments(*command, *arguments);
  command->add_option("NAME", arguments->name, "the session's name")->required();
  command->callback(
      [arguments, &exit_code] { exit_code = print_session(*arguments, arguments->name); });
}

}  // namespace cairn::cli
