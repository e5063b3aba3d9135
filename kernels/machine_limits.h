// What this machine can do at most, measured: the bounds that kernels are judged by.
#ifndef CAIRN_KERNELS_MACHINE_LIMITS_H_
#define CAIRN_KERNELS_MACHINE_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/machine_load.h"

namespace cairn::kernels {

// One bound, all threads of a context together: the median of so many repetitions during which
// nobody else used the machine, as far as twice as many have them.
struct MachineLimit {
  std::string name;             // "read", "f32_fma", "pmaddwd", "maddubs", "vpdpwssd", "vpdpbusd"
  std::string instruction_set;  // "sse4", "avx2", "avx512"; of "read": "any"
  std::string unit;             // "GB/s", "GFLOP/s" (two a multiply-add), "GMAC/s"
  int n_threads = 1;
  Measured value;
};

// Reads of memory that no cache holds, four interleaved streams a thread. Takes 0.2 s and more, and
// as much memory as four last-level caches, 256 MiB to 1 GiB. Throws std::bad_alloc.
MachineLimit measure_read_bandwidth(Context& run, int repetitions);

// Multiply-adds in registers, of every instruction set that this machine has: f32 (fused; before
// AVX2 separate), 16-bit pairs (pmaddwd and an addition, or vpdpwssd) and 8-bit (maddubs with a
// saturating addition, or vpdpbusd). 0.2 s a bound and repetition.
std::vector<MachineLimit> measure_arithmetic_peaks(Context& run, int repetitions);

// The largest value of that name, 0 if there is none.
double largest(const std::vector<MachineLimit>& limits, const std::string& name);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_MACHINE_LIMITS_H_
