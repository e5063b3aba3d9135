// What the measuring programs of the store share: flags, clocks, order statistics, and what the
// kernel counted for this process.
#ifndef CAIRN_TESTS_BENCH_MEASURE_H_
#define CAIRN_TESTS_BENCH_MEASURE_H_

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/status.h"

namespace cairn::bench {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Milliseconds that `work` takes.
template <class Work>
double timed_ms(const Work& work) {
  const Clock::time_point start = Clock::now();
  work();
  return ms_since(start);
}

// The smallest value that at least `share` of the values do not exceed; there must be one.
inline double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

inline double median(const std::vector<double>& values) { return percentile(values, 0.5); }

// A measuring program that fails ends.
inline void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

template <class Value>
Value checked(Result<Value> result) {
  check(result.status());
  return std::move(*result);
}

// Flags as pairs of "--name value".
class Flags {
 public:
  Flags(int argc, char** argv) : arguments_(argv + 1, argv + argc) {}

  std::string text(std::string_view name) const {
    const auto found = std::ranges::find(arguments_, name);
    return found == arguments_.end() || found + 1 == arguments_.end() ? "" : *(found + 1);
  }
  int number(std::string_view name, int otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::atoi(value.c_str());
  }

 private:
  std::vector<std::string> arguments_;
};

// Of this process, all threads, since it began.
struct Usage {
  double cpu_s = 0;
  std::int64_t n_handed = 0;   // bytes in write calls (wchar)
  std::int64_t n_dirtied = 0;  // bytes of pages to be sent to a disk (write_bytes)
};

inline Usage usage() {
  Usage usage;
  rusage spent = {};
  getrusage(RUSAGE_SELF, &spent);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  usage.cpu_s = seconds(spent.ru_utime) + seconds(spent.ru_stime);
  std::ifstream io("/proc/self/io");
  std::string name;
  for (std::int64_t value = 0; io >> name >> value;) {
    if (name == "wchar:") usage.n_handed = value;
    if (name == "write_bytes:") usage.n_dirtied = value;
  }
  return usage;
}

inline Usage operator-(const Usage& after, const Usage& before) {
  return {after.cpu_s - before.cpu_s, after.n_handed - before.n_handed,
          after.n_dirtied - before.n_dirtied};
}

inline void print_load() {
  std::ifstream file("/proc/loadavg");
  std::string load;
  std::getline(file, load);
  std::printf("load %s\n", load.c_str());
}

inline const char* verdict(bool holds) { return holds ? "holds" : "MISSED"; }

}  // namespace cairn::bench

#endif  // CAIRN_TESTS_BENCH_MEASURE_H_
