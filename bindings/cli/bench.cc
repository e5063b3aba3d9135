// `cairn bench`: the report of cairn/bench.h as tables or as JSON, which docs/plot_bench.py draws.

#include "cairn/bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/json_writer.h"
#include "bindings/cli/text_table.h"

namespace cairn::cli {
namespace {

struct Arguments {
  BenchOptions options;
  std::string config_path;
  double weight_gib = 6;
  bool json = false;
};

std::string with_digits(double x, int n_digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", n_digits, x);
  return text;
}

std::string percent(double part, double whole) {
  return whole > 0 ? with_digits(100 * part / whole, 0) + " %" : "-";
}

std::string repetitions(std::int32_t n_kept, std::int32_t n_dropped) {
  return std::to_string(n_kept) +
         (n_dropped > 0 ? " (" + std::to_string(n_dropped) + " dropped)" : "");
}

std::string limits_text(const BenchReport& report) {
  TextTable table(
      {{"limit"}, {"instructions"}, {"value", Align::kRight}, {"unit"}, {"repetitions"}});
  for (const BenchLimit& limit : report.limits) {
    table.add_row({limit.name, limit.instruction_set, with_digits(limit.value, 1), limit.unit,
                   repetitions(limit.n_kept, limit.n_dropped)});
  }
  return table.text();
}

std::string context_text(std::int64_t context) {
  return context % 1024 == 0 ? std::to_string(context / 1024) + "k" : std::to_string(context);
}

std::string name_of(const BenchMeasure& measure) {
  std::string name = measure.name + (measure.what.empty() ? "" : ", " + measure.what);
  if (measure.context > 0) name += " after " + context_text(measure.context);
  return name;
}

std::string measures_text(const BenchReport& report) {
  TextTable table({{"step"},
                   {"rows", Align::kRight},
                   {"ms", Align::kRight},
                   {"tokens/s", Align::kRight},
                   {"GB/s", Align::kRight},
                   {"GFLOP/s", Align::kRight},
                   {"of reading", Align::kRight},
                   {"of bound", Align::kRight},
                   {"repetitions"}});
  for (const BenchMeasure& m : report.measures) {
    table.add_row({name_of(m), std::to_string(m.rows), with_digits(m.ms, m.ms < 10 ? 3 : 1),
                   m.name == "product" || m.name == "draft"
                       ? ""
                       : with_digits(static_cast<double>(m.rows) / m.ms * 1e3, 2),
                   with_digits(m.bytes / m.ms / 1e6, 2),
                   with_digits(2 * m.multiply_adds / m.ms / 1e6, 1), percent(m.memory_ms, m.ms),
                   percent(m.bound_ms, m.ms), repetitions(m.n_kept, m.n_dropped)});
  }
  return table.text();
}

// What drafts cost in steps of the same context; empty without draft stages.
std::string drafts_text(const BenchReport& report) {
  std::string text;
  const auto decode = [&](std::int64_t context) {
    const auto found = std::ranges::find_if(report.measures, [&](const BenchMeasure& m) {
      return m.name == "decode" && m.context == context;
    });
    return found == report.measures.end() ? 0.0 : found->ms;
  };
  for (const BenchMeasure& m : report.measures) {
    const double step_ms = decode(m.context);
    if (step_ms <= 0) continue;
    if (m.name == "draft") text += "a proposal takes " + percent(m.ms, step_ms) + " of a step";
    if (m.name == "verify") {
      text += ", its verification in " + std::to_string(m.rows) + " rows " +
              with_digits(m.ms / step_ms, 2) + " steps\n\n";
    }
  }
  return text;
}

// Shares of the parts of whole steps, columns of one table.
std::string parts_text(const BenchReport& report) {
  TextTable table({{"step"},
                   {"part"},
                   {"ms", Align::kRight},
                   {"share", Align::kRight},
                   {"MB read", Align::kRight},
                   {"MMAC", Align::kRight}});
  for (const BenchMeasure& m : report.measures) {
    if (m.name == "product") continue;
    std::string name = name_of(m);
    for (const BenchPart& part : m.parts) {
      table.add_row({name, part.name, with_digits(part.ms, 2), percent(part.ms, m.ms),
                     with_digits(part.bytes / 1e6, 1), with_digits(part.multiply_adds / 1e6, 0)});
      name.clear();
    }
  }
  return table.text();
}

std::string text_of(const BenchReport& report) {
  return std::to_string(report.n_threads) + " threads, " + in_binary_units(report.weight_bytes) +
         " of made-up weights (" + in_binary_units(report.expert_bytes) + " of routed experts), " +
         plain_number(report.kv_bytes_per_token) + " bytes of KV a token\n\n" +
         limits_text(report) + "\n" + measures_text(report) + "\n" + drafts_text(report) +
         parts_text(report);
}

void write_parts(JsonWriter& json, const std::vector<BenchPart>& parts) {
  json.key("parts").begin_array();
  for (const BenchPart& part : parts) {
    json.begin_object();
    json.key("name").string(part.name);
    json.key("ms").number(part.ms);
    json.key("bytes").number(part.bytes);
    json.key("multiply_adds").number(part.multiply_adds);
    json.end_object();
  }
  json.end_array();
}

std::string json_of(const BenchReport& report) {
  JsonWriter json;
  json.begin_object();
  json.key("threads").integer(report.n_threads);
  json.key("weight_bytes").integer(report.weight_bytes);
  json.key("expert_bytes").integer(report.expert_bytes);
  json.key("kv_bytes_per_token").number(report.kv_bytes_per_token);
  json.key("limits").begin_array();
  for (const BenchLimit& limit : report.limits) {
    json.begin_object();
    json.key("name").string(limit.name);
    json.key("instruction_set").string(limit.instruction_set);
    json.key("unit").string(limit.unit);
    json.key("value").number(limit.value);
    json.key("repetitions").integer(limit.n_kept);
    json.key("dropped").integer(limit.n_dropped);
    json.end_object();
  }
  json.end_array();
  json.key("measures").begin_array();
  for (const BenchMeasure& m : report.measures) {
    json.begin_object();
    json.key("name").string(m.name);
    json.key("what").string(m.what);
    json.key("context").integer(m.context);
    json.key("rows").integer(m.rows);
    json.key("ms").number(m.ms);
    json.key("bytes").number(m.bytes);
    json.key("multiply_adds").number(m.multiply_adds);
    json.key("memory_ms").number(m.memory_ms);
    json.key("bound_ms").number(m.bound_ms);
    json.key("of_bound").number(m.ms > 0 ? m.bound_ms / m.ms : 0);
    json.key("repetitions").integer(m.n_kept);
    json.key("dropped").integer(m.n_dropped);
    write_parts(json, m.parts);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.text();
}

int run_bench_command(Arguments& arguments) {
  BenchOptions& options = arguments.options;
  options.weight_bytes = static_cast<std::int64_t>(arguments.weight_gib * (std::int64_t{1} << 30));
  if (!arguments.config_path.empty()) {
    std::ifstream in(arguments.config_path, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cairn: cannot read %s\n", arguments.config_path.c_str());
      return kExitNoAnswer;
    }
    options.config_json = std::string(std::istreambuf_iterator<char>(in), {});
  }
  options.progress = [](std::string_view text) {
    std::fprintf(stderr, "cairn: measuring %.*s\n", static_cast<int>(text.size()), text.data());
  };
  const Result<BenchReport> report = run_bench(options);
  if (!report.ok()) {
    std::fprintf(stderr, "cairn: %s\n", report.status().to_string().c_str());
    return kExitNoAnswer;
  }
  std::printf("%s\n", arguments.json ? json_of(*report).c_str() : text_of(*report).c_str());
  return kExitFine;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  BenchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "bench", "Measure this machine and the engine on it; needs no model, but memory.");
  command->add_option("--threads", options.runtime.compute_threads,
                      "Compute threads, 0 = all cores");
  command->add_option("--cpus", options.runtime.compute_cpus, "CPUs they run on, one each")
      ->delimiter(',');
  command->add_option("--config", arguments->config_path,
                      "A config.json; without it the released model's dimensions");
  command->add_option("--weights", arguments->weight_gib, "GiB of memory for weights")
      ->capture_default_str();
  command->add_option("--contexts", options.contexts, "Tokens before a step")->delimiter(',');
  command->add_option("--sessions", options.n_sessions, "Sessions that decode together")
      ->capture_default_str();
  command->add_option("--rows", options.prefill_rows, "Rows of the prefill chunk, 0 = no prefill")
      ->capture_default_str();
  command->add_option("--repetitions", options.repetitions, "Clean repetitions of each step")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON, for docs/plot_bench.py");
  command->callback([arguments, &exit_code] { exit_code = run_bench_command(*arguments); });
}

}  // namespace cairn::cli
