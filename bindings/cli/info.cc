// `cairn info`: the report of cairn/checkpoint.h as text for people or as JSON for programs. Both
// show the same facts; text shortens runs of equal layers and long lists of problems.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/json_writer.h"
#include "bindings/cli/terminal_text.h"
#include "bindings/cli/text_table.h"
#include "cairn/checkpoint.h"

namespace cairn::cli {
namespace {

constexpr std::size_t kMaxProblemLines = 20;  // of text; --json has all

double bytes_per_token(const KvSourceInfo& source) {
  return static_cast<double>(source.bytes_numerator) /
         static_cast<double>(source.bytes_denominator);
}

std::string tensors_and_bytes(std::int64_t tensors, std::int64_t bytes) {
  return with_commas(tensors) + " tensors, " + with_commas(bytes) + " bytes (" +
         in_binary_units(bytes) + ")";
}

std::string model_text(const CheckpointReport& report) {
  const ModelInfo& model = report.model;
  TextTable table({{}, {}});
  table.add_row({"layers", std::to_string(model.n_layers) + ": " +
                               std::to_string(model.n_encoder_layers) + " encoder, " +
                               std::to_string(model.n_layers - model.n_encoder_layers) +
                               " decoder"});
  table.add_row({"draft stages", std::to_string(report.n_draft_stages)});
  table.add_row({"vision", report.has_vision ? "yes" : "no"});
  table.add_row({"vocabulary", with_commas(model.vocab_size)});
  table.add_row({"context", with_commas(model.max_context) + " tokens"});
  table.add_row({"parameters", with_commas(report.parameters)});
  table.add_row({"expected", tensors_and_bytes(report.tensors_expected, report.bytes_expected)});
  table.add_row({"found", report.weights_checked
                              ? tensors_and_bytes(report.tensors_found, report.bytes_found)
                              : "not looked for: this is a configuration without a folder"});
  return model.architecture + "\n" + table.text(2);
}

bool same_kind(const LayerSummary& a, const LayerSummary& b) {
  return a.half == b.half && a.ratio == b.ratio && a.mode == b.mode && a.kv_source == b.kv_source &&
         a.index_source == b.index_source && a.engram == b.engram &&
         a.writes_candidates == b.writes_candidates && a.uses_candidates == b.uses_candidates;
}

std::string layer_notes(const LayerSummary& layer) {
  std::string notes;
  const auto add = [&](bool holds, const char* note) {
    if (holds) notes += (notes.empty() ? "" : ", ") + std::string(note);
  };
  add(layer.engram, "engram");
  add(layer.writes_candidates, "writes candidates");
  add(layer.uses_candidates, "uses candidates");
  return notes;
}

std::string layers_text(const std::vector<LayerSummary>& layers) {
  const auto or_dash = [](int id) { return id < 0 ? std::string("-") : std::to_string(id); };
  TextTable table({{"layers", Align::kRight},
                   {"half"},
                   {"mode"},
                   {"ratio", Align::kRight},
                   {"KV from", Align::kRight},
                   {"top-k from", Align::kRight},
                   {"notes"}});
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() && same_kind(layers[first], layers[last + 1])) ++last;
    const LayerSummary& layer = layers[first];
    std::string ids = std::to_string(layer.layer);
    if (last > first) ids += "-" + std::to_string(layers[last].layer);
    table.add_row({ids, layer.half, layer.mode,
                   layer.ratio == 0 ? "-" : std::to_string(layer.ratio), or_dash(layer.kv_source),
                   or_dash(layer.index_source), layer_notes(layer)});
    first = last + 1;
  }
  return "Layers\n" + table.text(2);
}

std::string kv_text(const ModelInfo& model) {
  TextTable table({{"KV layer", Align::kRight},
                   {"ratio", Align::kRight},
                   {"main entry", Align::kRight},
                   {"index key", Align::kRight},
                   {"bytes/token", Align::kRight}});
  for (const KvSourceInfo& source : model.kv_sources) {
    table.add_row({std::to_string(source.layer), std::to_string(source.ratio),
                   with_commas(source.main_entry_bytes), with_commas(source.index_entry_bytes),
                   plain_number(bytes_per_token(source))});
  }
  table.add_row({"all", "", "", "", plain_number(model.global_kv_bytes_per_token)});
  return "KV cache\n" + table.text(2) + "  " + with_commas(model.global_kv_bytes_per_block) +
         " bytes a block of 128 tokens\n  " + with_commas(model.window_bytes) +
         " bytes of sliding windows (" + std::to_string(model.window) + " tokens) a sequence\n";
}

std::string problems_text(const std::vector<std::string>& problems) {
  std::string text = "Problems: " + with_commas(static_cast<std::int64_t>(problems.size())) + "\n";
  for (std::size_t i = 0; i < problems.size() && i < kMaxProblemLines; ++i) {
    text += "  " + printable(problems[i]) + "\n";
  }
  if (problems.size() > kMaxProblemLines) {
    text += "  and " + with_commas(static_cast<std::int64_t>(problems.size() - kMaxProblemLines)) +
            " more; --json lists all\n";
  }
  return text;
}

std::string report_text(const CheckpointReport& report) {
  std::string text =
      model_text(report) + "\n" + layers_text(report.layers) + "\n" + kv_text(report.model) + "\n";
  if (!report.problems.empty()) return text + problems_text(report.problems);
  return text + (report.weights_checked ? "Complete: every tensor is as expected.\n"
                                        : "The configuration is supported.\n");
}

void write_model(const ModelInfo& model, JsonWriter& json) {
  json.key("architecture").string(model.architecture);
  json.key("n_layers").integer(model.n_layers);
  json.key("n_encoder_layers").integer(model.n_encoder_layers);
  json.key("vocab_size").integer(model.vocab_size);
  json.key("max_context").integer(model.max_context);
  json.key("window").integer(model.window);
  json.key("window_bytes").integer(model.window_bytes);
  json.key("global_kv_bytes_per_token").number(model.global_kv_bytes_per_token);
  json.key("global_kv_bytes_per_block").integer(model.global_kv_bytes_per_block);
  json.key("kv_sources").begin_array();
  for (const KvSourceInfo& source : model.kv_sources) {
    json.begin_object();
    json.key("layer").integer(source.layer);
    json.key("ratio").integer(source.ratio);
    json.key("main_entry_bytes").integer(source.main_entry_bytes);
    json.key("index_entry_bytes").integer(source.index_entry_bytes);
    json.key("bytes_per_token").number(bytes_per_token(source));
    json.end_object();
  }
  json.end_array();
}

void write_layer(const LayerSummary& layer, JsonWriter& json) {
  json.begin_object();
  json.key("layer").integer(layer.layer);
  json.key("half").string(layer.half);
  json.key("mode").string(layer.mode);
  json.key("ratio").integer(layer.ratio);
  json.key("kv_source").integer(layer.kv_source);
  json.key("index_source").integer(layer.index_source);
  json.key("engram").boolean(layer.engram);
  json.key("writes_candidates").boolean(layer.writes_candidates);
  json.key("uses_candidates").boolean(layer.uses_candidates);
  json.end_object();
}

std::string report_json(const CheckpointReport& report) {
  JsonWriter json;
  json.begin_object();
  write_model(report.model, json);
  json.key("n_draft_stages").integer(report.n_draft_stages);
  json.key("has_vision").boolean(report.has_vision);
  json.key("parameters").integer(report.parameters);
  json.key("tensors_expected").integer(report.tensors_expected);
  json.key("bytes_expected").integer(report.bytes_expected);
  json.key("weights_checked").boolean(report.weights_checked);
  json.key("tensors_found").integer(report.tensors_found);
  json.key("bytes_found").integer(report.bytes_found);
  json.key("layers").begin_array();
  for (const LayerSummary& layer : report.layers) write_layer(layer, json);
  json.end_array();
  json.key("problems").begin_array();
  for (const std::string& problem : report.problems) json.string(problem);
  json.end_array();
  json.end_object();
  return json.text() + "\n";
}

int print_info(const std::string& path, bool as_json) {
  const Result<CheckpointReport> report = inspect_checkpoint(path);
  if (!report.ok()) {
    std::fprintf(stderr, "cairn: %s\n", printable(report.status().to_string()).c_str());
    return kExitNoAnswer;
  }
  std::fputs((as_json ? report_json(*report) : report_text(*report)).c_str(), stdout);
  return report->problems.empty() ? kExitFine : kExitBadNews;
}

}  // namespace

void add_info_command(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::string path;
    bool as_json = false;
  };
  // Shared with the callback, which runs after this function is gone.
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command =
      app.add_subcommand("info", "Describes a checkpoint and lists what is missing or wrong");
  command->add_option("PATH", arguments->path, "a checkpoint folder, or a config.json alone")
      ->required();
  command->add_flag("--json", arguments->as_json, "print one JSON object instead of text");
  command->footer("Exit status: 0 = complete, 1 = problems found, 2 = cannot be read.");
  command->callback(
      [arguments, &exit_code] { exit_code = print_info(arguments->path, arguments->as_json); });
}

}  // namespace cairn::cli
