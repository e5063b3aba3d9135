// What sharing a pass gains: decode steps of n sequences as rows of one pass against one after the
// other, in turn within one run. Usage: batch_bench CHECKPOINT
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "cairn/engine.h"
#include "engine/decode_batch.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace {

using cairn::engine::DecodeRow;
using cairn::engine::Sequence;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 12, kPrefix = 64;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool measure(const cairn::Model& model, std::size_t n) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (std::size_t i = 0; i < n; ++i) {
    sequences.push_back(std::make_unique<Sequence>(model.state()));
    std::vector<cairn::TokenId> prefix;
    for (int t = 0; t < kPrefix; ++t) {
      prefix.push_back(static_cast<cairn::TokenId>(10 + (static_cast<int>(i) * 37 + t * 7) % 300));
    }
    if (!sequences.back()->prefill(prefix).ok()) return false;
  }
  double together_ms = 0, apart_ms = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<DecodeRow> rows;
    for (const auto& sequence : sequences) {
      rows.push_back({.sequence = sequence.get(),
                      .token = 20 + round,
                      .stop_requested = [] { return false; },
                      .status = cairn::Status()});
    }
    Clock::time_point start = Clock::now();
    cairn::engine::decode_together(rows);
    together_ms += ms_since(start);
    start = Clock::now();
    for (DecodeRow& row : rows) cairn::engine::decode_together({&row, 1});
    apart_ms += ms_since(start);
    for (const DecodeRow& row : rows) {
      if (!row.status.ok()) return false;
    }
  }
  std::printf("%zu sequences: %.2f ms a pass together, %.2f ms one after the other, ratio %.2f\n",
              n, together_ms / kRounds, apart_ms / kRounds, apart_ms / together_ms);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: batch_bench CHECKPOINT\n"), 2;
  const auto runtime = cairn::Runtime::create();
  if (!runtime.ok()) return 1;
  const auto model = cairn::Model::open(*runtime, argv[1]);
  if (!model.ok()) return 1;
  for (const std::size_t n : {1u, 2u, 4u, 8u, 16u}) {
    if (!measure(*model, n)) return 1;
  }
  return 0;
}
