// What drafts do to the decode time of an agent: the same conversation with tools, without drafts,
// with as many as the guard lets through, and with all of them. Rounds alternate; medians of the
// ratios to the run without, times a round of drafts. Fails if an answer differs.
//
//   drafts_bench [--model DIR] [--rounds N] [--threads N]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cairn/session.h"
#include "examples/workspace_tools.h"
#include "tests/bench/measure.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr std::array kTasks = {"What is index_level in storage/archive.yaml?",
                               "The port of Vennor is 5512.",
                               "Fix the failing test.",
                               "What is 37 times 21?",
                               "Set album_limit in storage/archive.yaml to 750.",
                               "Rename load_voucher to sum_voucher.",
                               "What is the port of Vennor?",
                               "Who are you?"};
constexpr int kMaxAnswers = 12;  // of one task

struct Mode {
  const char* name;
  std::int32_t drafts;  // of ModelOptions
  std::vector<double> ms = {}, ratios = {};
  DraftReport report = {};  // sums of all rounds
  std::int64_t n_tokens = 0;
};

// What a run of the conversation said and how long it decoded.
struct Run {
  double ms = 0;
  std::string said;
};

// One answer; returns the calls that it makes.
std::vector<ToolCall> answer(Session& session, Mode& mode, Run& run) {
  TurnOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 200;
  Turn turn = checked(session.start_turn(options));
  for (;;) {
    const Result<Event> event = turn.next(std::chrono::milliseconds(-1));
    if (event.status().code() == StatusCode::kNotFound) break;  // the end was delivered
    check(event.status());
    check(event->status);
    run.said += event->bytes;
    if (event->kind != EventKind::kUsage) continue;
    const DraftReport& drafts = event->usage.drafts;
    run.ms += event->usage.decode_ms;
    mode.n_tokens += event->usage.output_tokens;
    mode.report.rounds += drafts.rounds;
    mode.report.accepted += drafts.accepted;
    mode.report.draft_ms += drafts.draft_ms;
    mode.report.verify_ms += drafts.verify_ms;
    mode.report.withheld += drafts.withheld;
  }
  return checked(session.messages()).back().tool_calls;
}

// Everything is new: the model too, since it learns what drafts are worth.
Run converse(const Flags& flags, Mode& mode) {
  const test::TemporaryFolder folder;
  const std::string workspace = folder.path().string() + "/workspace";
  std::filesystem::copy(CAIRN_SOURCE_DIR "/examples/workspace", workspace,
                        std::filesystem::copy_options::recursive);
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = flags.number("--threads", 1);
  const Runtime runtime = checked(Runtime::create(runtime_options));
  const std::string path = flags.text("--model");
  ModelOptions options;
  options.drafts = mode.drafts;
  const Model model = checked(Model::open(
      runtime, path.empty() ? CAIRN_SOURCE_DIR "/examples/models/nano" : path, options));
  const Store store = checked(Store::open(runtime, folder.path().string() + "/store"));
  SessionOptions session_options;
  session_options.thinking = true;
  Session session = checked(Session::create(model, store, "s", session_options));
  check(session.append(
      Message::system("You are Cairn, a coding agent in a small repository.", kToolsJson)));
  const auto result = std::make_unique<tool_result>();
  Run run;
  for (const char* task : kTasks) {
    check(session.append(Message::user(task)));
    for (int i = 0; i < kMaxAnswers; ++i) {
      const std::vector<ToolCall> calls = answer(session, mode, run);
      for (const ToolCall& call : calls) {
        run_tool(workspace.c_str(), call.id.c_str(), call.name.c_str(), call.arguments_json.c_str(),
                 result.get());
        check(session.append(
            Message::tool_result(call.id, std::string(result->text, result->n_bytes))));
      }
      if (calls.empty()) break;
    }
  }
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags(argc, argv);
  std::array<Mode, 3> modes = {Mode{"off", -1}, Mode{"auto", 0}, Mode{"all", kMaxDrafts}};
  std::string expected;
  for (int round = 0; round < flags.number("--rounds", 7); ++round) {
    for (Mode& mode : modes) {
      const Run run = converse(flags, mode);
      if (expected.empty()) expected = run.said;
      if (run.said != expected) {
        std::printf("drafts %s: another answer\n", mode.name);
        return 1;
      }
      mode.ms.push_back(run.ms);
      mode.ratios.push_back(modes[0].ms.back() / run.ms);
    }
  }
  std::printf("%-6s %9s %7s %9s %9s %9s %9s %9s\n", "drafts", "tokens/s", "speed", "slowest",
              "accepted", "withheld", "draft", "verify");
  for (const Mode& mode : modes) {
    const double rounds = static_cast<double>(std::max<std::int64_t>(1, mode.report.rounds));
    const double n_tokens =
        static_cast<double>(mode.n_tokens) / static_cast<double>(mode.ms.size());
    std::printf(
        "%-6s %9.0f %6.2fx %8.2fx %9.2f %8.0f%% %6.2f ms %6.2f ms\n", mode.name,
        1e3 * n_tokens / median(mode.ms), median(mode.ratios), percentile(mode.ratios, 0),
        static_cast<double>(mode.report.accepted) / rounds,
        100 * static_cast<double>(mode.report.withheld) / static_cast<double>(mode.n_tokens),
        mode.report.draft_ms / rounds, mode.report.verify_ms / rounds);
  }
}
