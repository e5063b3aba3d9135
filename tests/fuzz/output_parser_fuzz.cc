// libFuzzer target: any model output gives well-formed events, the same however it is split.
// The first three bytes choose options and the places of the cuts; the rest is what the model says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/parsed_output.h"

namespace {

using cairn::TokenId;
using namespace cairn::engine;

void require(bool holds) {
  if (!holds) std::abort();
}

// In pieces of 1 to `largest` bytes.
std::vector<std::string> pieces_of(std::string_view text, std::size_t largest, std::size_t seed) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const std::size_t n = (seed >> 33) % largest + 1;
    pieces.emplace_back(text.substr(at, n));
    at += n;
  }
  return pieces;
}

// Token by token, the parser replaced by its copy after each `period` of them.
Turn parse_tokens(const std::vector<TokenId>& tokens, const Options& options, std::size_t period) {
  OutputParser parser = parser_for(*cairn::tests::released_tokenizer(), options);
  std::vector<OutputEvent> events;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % period == 0) parser = OutputParser(parser);
    parser.push(tokens[i], events);
  }
  parser.finish(options.complete, events);
  return {joined(events), parser.output()};
}

bool same(const Turn& a, const Turn& b) {
  return a.blocks == b.blocks && a.output.text == b.output.text &&
         a.output.reasoning == b.output.reasoning &&
         a.output.tool_calls.size() == b.output.tool_calls.size();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  testing::InitGoogleTest(argc, *argv);
  GTEST_FLAG_SET(break_on_failure, true);  // what joined() finds ends the run too
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const Options options = {.reasoning = (data[0] & 1) != 0,
                           .complete = (data[0] & 2) != 0,
                           .tools = (data[0] & 4) != 0 ? kTools : std::string_view()};
  const std::string text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t largest = data[1] % 16 + 1U, seed = data[2];

  const Turn whole = parse_pieces({text}, options);
  require(same(whole, parse_pieces(pieces_of(text, largest, seed), options)));

  std::vector<TokenId> tokens;
  cairn::tests::released_tokenizer()->encode_with_added_tokens(text, tokens);
  require(same(parse_tokens(tokens, options, tokens.size() + 1),
               parse_tokens(tokens, options, largest)));
  return 0;
}
