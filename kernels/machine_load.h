// Measuring on a machine that others use too: repetitions during which they took CPU time are
// dropped and counted.
#ifndef CAIRN_KERNELS_MACHINE_LOAD_H_
#define CAIRN_KERNELS_MACHINE_LOAD_H_

#include <cstdint>
#include <functional>

namespace cairn::kernels {

// CPU seconds of the whole machine since it started, as the system counts them (in steps of 10 ms),
// and of this process. Zero where the system does not say.
struct MachineLoad {
  double busy_s = 0;   // all processes
  double steal_s = 0;  // taken by the hypervisor
  double own_s = 0;    // this process
};
MachineLoad machine_load();

// The median of repetitions.
struct Measured {
  double median = 0;
  int n_kept = 0;     // repetitions that it is of; 0: none was clean, it is of all
  int n_dropped = 0;  // others took more than 5 % of a core, and more than the counters can tell
};

// Repeats `call`, which takes at least 0.1 s and returns a figure, until `n_wanted` repetitions are
// clean or `n_most` are done.
Measured measure(int n_wanted, int n_most, const std::function<double()>& call);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_MACHINE_LOAD_H_
