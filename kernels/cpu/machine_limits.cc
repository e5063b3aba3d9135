// Every thread runs the same loop on its own data; the figure is that of all together, from the
// start of the first to the end of the last.
#include "kernels/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "kernels/cpu/peak_loop.h"
#include "kernels/page_buffer.h"

namespace cairn::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsOfRepetition = 0.12;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What is computed is stored where the compiler must not leave it out.
std::atomic<std::int64_t> result_seen;

std::size_t bytes_no_cache_holds() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t wanted = cache > 0 ? std::size_t{4} * static_cast<std::size_t>(cache) : 0;
  return std::clamp<std::size_t>(wanted, std::size_t{256} << 20, std::size_t{1} << 30);
}

// Sum of four interleaved streams of 64-byte lines.
std::int64_t read_streams(const std::byte* begin, std::size_t n_bytes) {
  typedef std::int64_t Line __attribute__((vector_size(64)));
  const std::size_t n_lines = n_bytes / sizeof(Line) / 4;
  const auto* const lines = reinterpret_cast<const Line*>(begin);
  Line sum[4] = {};
  for (std::size_t i = 0; i < n_lines; ++i) {
    for (std::size_t s = 0; s < 4; ++s) sum[s] += lines[s * n_lines + i];
  }
  const Line total = sum[0] + sum[1] + sum[2] + sum[3];
  return total[0] + total[7];
}

// Seconds that all threads together take for `rounds` rounds each.
double time_rounds(Context& run, const PeakLoop& loop, std::int64_t rounds) {
  const auto start = Clock::now();
  run.parallel_for(run.n_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) result_seen += loop.run(rounds);
  });
  return seconds_since(start);
}

MachineLimit measure_peak(Context& run, const PeakLoop& loop, int repetitions) {
  std::int64_t rounds = 1 << 20;
  while (time_rounds(run, loop, rounds) < kSecondsOfRepetition / 4) rounds *= 2;
  rounds *= 4;
  const double operations =
      loop.operations * static_cast<double>(rounds) * static_cast<double>(run.n_threads());
  const Measured value = measure(repetitions, 2 * repetitions,
                                 [&] { return operations / time_rounds(run, loop, rounds) / 1e9; });
  return {loop.name, loop.instruction_set, loop.unit, run.n_threads(), value};
}

}  // namespace

MachineLimit measure_read_bandwidth(Context& run, int repetitions) {
  const std::size_t n_bytes = bytes_no_cache_holds();
  const PageBuffer memory(n_bytes);
  std::memset(memory.bytes().data(), 1, n_bytes);
  const std::size_t n_threads = static_cast<std::size_t>(run.n_threads());
  const std::size_t share = n_bytes / n_threads / 4096 * 4096;
  const auto read_all = [&] {
    run.parallel_for(run.n_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        result_seen +=
            read_streams(memory.bytes().data() + static_cast<std::size_t>(i) * share, share);
      }
    });
  };
  const Measured value = measure(repetitions, 2 * repetitions, [&] {
    const auto start = Clock::now();
    int n_passes = 0;
    do {
      read_all();
      ++n_passes;
    } while (seconds_since(start) < kSecondsOfRepetition);
    return static_cast<double>(share * n_threads) * n_passes / seconds_since(start) / 1e9;
  });
  return {"read", "any", "GB/s", run.n_threads(), value};
}

std::vector<MachineLimit> measure_arithmetic_peaks(Context& run, int repetitions) {
  std::vector<MachineLimit> limits;
  for (const auto loops : {peak_loops_baseline(), peak_loops_avx2(), peak_loops_avx512()}) {
    for (const PeakLoop& loop : loops) limits.push_back(measure_peak(run, loop, repetitions));
  }
  return limits;
}

double largest(const std::vector<MachineLimit>& limits, const std::string& name) {
  double best = 0;
  for (const MachineLimit& limit : limits) {
    if (limit.name == name) best = std::max(best, limit.value.median);
  }
  return best;
}

}  // namespace cairn::kernels
