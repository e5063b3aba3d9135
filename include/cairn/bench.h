// How fast this machine runs a model of given dimensions, and how near that is to what it can do.
// Needs no checkpoint: weights and KV are made up, and as many as fit the memory that is given.
#ifndef CAIRN_BENCH_H_
#define CAIRN_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/engine.h"
#include "cairn/status.h"

namespace cairn {

struct BenchOptions {
  RuntimeOptions runtime;
  std::string config_json;  // text of a config.json; empty = the released model's dimensions
  std::int64_t weight_bytes = std::int64_t{6} << 30;
  // Tokens before the step, rounded to blocks of 128; those beyond the model's context are left out.
  std::vector<std::int64_t> contexts = {1024, 32768, 262144, 1048576};
  std::int32_t n_sessions = 8;     // that decode together, at the second of the contexts; as drafts
  std::int32_t prefill_rows = 512; // of the chunk that layers are measured with; 0 = no prefill
  std::int32_t repetitions = 3;    // clean ones, of which the median is taken
  std::function<void(std::string_view)> progress;  // what is measured next; may be empty
};

// A bound of the machine, all threads together.
struct BenchLimit {
  std::string name;             // "read", "f32_fma", "pmaddwd", "maddubs", "vpdpwssd", "vpdpbusd"
  std::string instruction_set;  // "any" of "read"
  std::string unit;             // "GB/s", "GFLOP/s", "GMAC/s"
  double value = 0;
  std::int32_t n_kept = 0, n_dropped = 0;  // repetitions; dropped: others used the machine
};

// A part of a step: its own time, what it reads (weights, KV rows, streams) and computes.
struct BenchPart {
  std::string name;  // "experts", "dense", "attention", "indexer", "streams", "router", "engram",
                     // "head", "rest"
  double ms = 0, bytes = 0, multiply_adds = 0;
};

struct BenchMeasure {
  // "decode", "decode together", "draft" (a proposal), "verify" (a pass with a row for each draft),
  // "prefill layer", "product"
  std::string name;
  std::string what;  // of a layer or a product: which
  std::int64_t context = 0, rows = 1;
  double ms = 0;     // of all rows
  double bytes = 0, multiply_adds = 0;
  // What the machine needs at least: every part at its bound, bytes at the read bandwidth or
  // multiply-adds at the peak of their kind.
  double bound_ms = 0;
  double memory_ms = 0;  // bytes alone, at the read bandwidth
  std::vector<BenchPart> parts = {};
  std::int32_t n_kept = 0, n_dropped = 0;
};

struct BenchReport {
  std::int32_t n_threads = 0;
  std::int64_t weight_bytes = 0;  // allocated, and what of it is routed experts
  std::int64_t expert_bytes = 0;
  double kv_bytes_per_token = 0;
  std::vector<BenchLimit> limits;
  std::vector<BenchMeasure> measures;
};

// Blocks, for minutes at the released dimensions. Fails with kInvalidArgument and kUnsupported on
// options, kOutOfMemory.
Result<BenchReport> run_bench(const BenchOptions& options);

}  // namespace cairn

#endif  // CAIRN_BENCH_H_
