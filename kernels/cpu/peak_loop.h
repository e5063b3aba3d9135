// The loop of every arithmetic peak: independent chains of one instruction in registers.
#ifndef CAIRN_KERNELS_CPU_PEAK_LOOP_H_
#define CAIRN_KERNELS_CPU_PEAK_LOOP_H_

#include <cstdint>
#include <span>
#include <utility>

namespace cairn::kernels {

struct PeakLoop {
  const char* name;  // as in MachineLimit
  const char* instruction_set;
  const char* unit;
  double operations;  // of the unit, a round
  // Runs rounds; returns something of the result, so that it is not left out.
  std::int64_t (*run)(std::int64_t rounds);
};

// Of one instruction set; empty where this processor or this build lacks it.
std::span<const PeakLoop> peak_loops_baseline();
std::span<const PeakLoop> peak_loops_avx2();
std::span<const PeakLoop> peak_loops_avx512();

// Steps are done in their order: what is computed ahead would have to be put away.
template <class V>
[[gnu::always_inline]] inline V in_order(V v) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(v));
#endif
  return v;
}

// `Op` is a type of the file that instantiates it: a vector `V`, start(i), step(V) and low(V).
// Chains are variables of their own, not an array, so that they stay in registers; and they start
// differently, so that they are not found to be one.
template <class Op, int kChains>
std::int64_t run_chains(std::int64_t rounds) {
  const auto run = [rounds](auto... chain) {
    for (std::int64_t round = 0; round < rounds; ++round)
      ((chain = in_order(Op::step(chain))), ...);
    return Op::low((chain + ...));
  };
  return [&]<int... kChain>(std::integer_sequence<int, kChain...>) {
    return run(Op::start(kChain)...);
  }
  (std::make_integer_sequence<int, kChains>());
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_PEAK_LOOP_H_
