#include "kernels/machine_load.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

namespace cairn::kernels {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[(values.size() - 1) / 2];
}

}  // namespace

MachineLoad machine_load() {
  MachineLoad load;
  timespec own = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  load.own_s = static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) * 1e-9;
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)) {
    return load;
  }
  const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  load.busy_s = (user + nice + system + irq + softirq) / ticks_per_s;
  load.steal_s = steal / ticks_per_s;
  return load;
}

Measured measure(int n_wanted, int n_most, const std::function<double()>& call) {
  constexpr double kCountersTell = 0.02, kShareOfCore = 0.05;
  std::vector<double> clean, all;
  while (static_cast<int>(clean.size()) < n_wanted && static_cast<int>(all.size()) < n_most) {
    const MachineLoad before = machine_load();
    const auto start = std::chrono::steady_clock::now();
    all.push_back(call());
    const double wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const MachineLoad after = machine_load();
    const double others_s =
        std::max(0.0, after.busy_s - before.busy_s - (after.own_s - before.own_s)) +
        (after.steal_s - before.steal_s);
    if (others_s <= kCountersTell + kShareOfCore * wall_s) clean.push_back(all.back());
  }
  const auto n_clean = static_cast<int>(clean.size());
  return {median(clean.empty() ? all : clean), n_clean, static_cast<int>(all.size()) - n_clean};
}

}  // namespace cairn::kernels
