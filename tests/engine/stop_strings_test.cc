// Stop strings against a search of the whole text, however it is split; and in the parser, between
// blocks and at its limit of calls.
#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/output_parser.h"
#include "tests/support/released_tokenizer.h"

namespace cairn::engine {
namespace {

struct Cut {
  std::string text, found;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The definition: the first end of a stop string; of those that end there, the longest.
Cut cut_by_search(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::string said = text.substr(0, end);
    std::string found;
    for (const std::string& stop : stops) {
      if (said.ends_with(stop) && stop.size() > found.size()) found = stop;
    }
    if (!found.empty()) return {said.substr(0, end - found.size()), found};
  }
  return {text, ""};
}

std::string random_text(std::mt19937& rng, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += static_cast<char>('a' + rng() % 3);
  return text;
}

TEST(StopStrings, any_split_finds_what_a_search_finds) {
  constexpr unsigned kSeed = 17;
  std::mt19937 rng(kSeed);
  int n_found = 0;
  constexpr int kRuns = 20000;
  for (int run = 0; run < kRuns; ++run) {
    const std::string text = random_text(rng, rng() % 30);
    std::vector<std::string> stops;
    for (unsigned n = 1 + rng() % 3; n > 0; --n) stops.push_back(random_text(rng, 1 + rng() % 5));
    StopStrings finder(stops);
    std::string released;
    for (std::size_t at = 0; at < text.size() && finder.found().empty();) {
      const std::size_t n = std::min<std::size_t>(1 + rng() % 4, text.size() - at);
      released += finder.push(std::string_view(text).substr(at, n));
      at += n;
      // What is delivered is never part of a stop string that is found later.
      EXPECT_TRUE(cut_by_search(text, stops).text.starts_with(released));
    }
    released += finder.release();
    EXPECT_EQ((Cut{released, finder.found()}), cut_by_search(text, stops)) << text;
    n_found += !finder.found().empty();
  }
  std::printf("seed %u, %d texts, %d found\n", kSeed, kRuns, n_found);
  EXPECT_GT(n_found, kRuns / 4);
  EXPECT_LT(n_found, kRuns);
}

TEST(StopStrings, what_cannot_be_one_is_refused) {
  EXPECT_TRUE(check_stop_strings({}).ok());
  EXPECT_TRUE(check_stop_strings({"\n\nUser:", "é"}).ok());
  for (const std::string& bad : {std::string(), std::string(257, 'x'), std::string("\xc3")}) {
    const Status status = check_stop_strings({"good", bad});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("stop[1]"), std::string_view::npos) << status.to_string();
  }
  EXPECT_EQ(check_stop_strings(std::vector<std::string>(17, "x")).code(),
            StatusCode::kInvalidArgument);
}

// --- In the parser.

struct Parsed {
  std::string text, reasoning;  // as delivered
  std::size_t n_calls = 0;
  OutputStop stopped = OutputStop::kNone;
  ParsedOutput output;
};

// The text in pieces of `n_bytes`.
Parsed parse(const std::string& text, const OutputParserOptions& options, std::size_t n_bytes,
             bool complete = true) {
  OutputParser parser(*tests::toy_tokenizer(), options);
  std::vector<OutputEvent> events;
  for (std::size_t at = 0; at < text.size(); at += n_bytes) {
    parser.push_text(std::string_view(text).substr(at, n_bytes), events);
  }
  parser.finish(complete, events);
  Parsed parsed;
  std::optional<BlockKind> open;
  for (const OutputEvent& event : events) {
    if (event.kind == EventKind::kBlockBegin) {
      EXPECT_FALSE(open);
      open = event.block_kind;
      parsed.n_calls += event.block_kind == BlockKind::kToolCall;
    } else if (event.kind == EventKind::kBlockEnd) {
      EXPECT_EQ(open, event.block_kind);
      open.reset();
    } else if (event.block_kind == BlockKind::kText) {
      parsed.text += event.bytes;
    } else if (event.block_kind == BlockKind::kReasoning) {
      parsed.reasoning += event.bytes;
    }
  }
  EXPECT_FALSE(open);
  parsed.stopped = parser.stopped();
  parsed.output = parser.output();
  EXPECT_EQ(parsed.text, parsed.output.text);
  EXPECT_EQ(parsed.reasoning, parsed.output.reasoning);
  return parsed;
}

TEST(OutputStops, a_stop_string_ends_the_text_and_nothing_of_it_is_delivered) {
  for (std::size_t n_bytes = 1; n_bytes < 20; ++n_bytes) {
    const Parsed parsed = parse("One. Two.\nEND of it", {.stop = {"\nEND", "never"}}, n_bytes);
    EXPECT_EQ(parsed.text, "One. Two.");
    EXPECT_EQ(parsed.stopped, OutputStop::kStopString);
  }
}

TEST(OutputStops, what_only_begins_like_one_is_delivered) {
  for (std::size_t n_bytes = 1; n_bytes < 20; ++n_bytes) {
    const Parsed parsed = parse("aaab\nEN", {.stop = {"\nEND", "aab!"}}, n_bytes);
    EXPECT_EQ(parsed.text, "aaab\nEN");
    EXPECT_EQ(parsed.stopped, OutputStop::kNone);
  }
}

TEST(OutputStops, reasoning_and_arguments_are_not_looked_at) {
  const std::string call =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"x\" string=\"true\">STOP</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  for (std::size_t n_bytes = 1; n_bytes < 40; ++n_bytes) {
    OutputParserOptions options;
    options.starts_in_reasoning = true;
    options.stop = {"STOP"};
    const Parsed parsed = parse("a STOP b</think>STO\n\n" + call, options, n_bytes);
    EXPECT_EQ(parsed.reasoning, "a STOP b");
    EXPECT_EQ(parsed.text, "STO");
    ASSERT_EQ(parsed.output.tool_calls.size(), 1u);
    EXPECT_EQ(parsed.output.tool_calls[0].arguments_json, R"({"x": "STOP"})");
    EXPECT_EQ(parsed.stopped, OutputStop::kNone);
  }
}

TEST(OutputStops, an_answer_that_is_nothing_but_a_stop_string_has_no_block) {
  const Parsed parsed = parse("STOP", {.stop = {"STOP"}}, 1);
  EXPECT_EQ(parsed.text, "");
  EXPECT_EQ(parsed.stopped, OutputStop::kStopString);
}

TEST(OutputStops, a_call_beyond_the_limit_ends_the_output_before_it) {
  const std::string call =
      "<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"x\" string=\"true\">1</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
  const std::string text = "Go.\n\n<｜DSML｜ calls>\n" + call + call + call + "</｜DSML｜ calls>";
  for (std::int32_t limit = 0; limit < 5; ++limit) {
    for (std::size_t n_bytes = 1; n_bytes < 60; n_bytes += 7) {
      OutputParserOptions options;
      options.max_calls = limit;
      const Parsed parsed = parse(text, options, n_bytes);
      const bool is_cut = limit > 0 && limit < 3;
      EXPECT_EQ(parsed.n_calls, is_cut ? static_cast<std::size_t>(limit) : 3u);
      EXPECT_EQ(parsed.output.tool_calls.size(), parsed.n_calls);
      EXPECT_EQ(parsed.text, "Go.");
      EXPECT_EQ(parsed.stopped, is_cut ? OutputStop::kCallLimit : OutputStop::kNone);
    }
  }
}

}  // namespace
}  // namespace cairn::engine
