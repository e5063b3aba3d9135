// What this machine has of the instruction sets that there are kernels for.
#include "cairn/instruction_set.h"

#include <hwy/targets.h>

#include "kernels/kernels.h"

namespace cairn::kernels {
namespace {

bool machine_has(InstructionSet set) {
  const std::int64_t targets = hwy::SupportedTargets();
  switch (set) {
#if HWY_ARCH_X86
    case InstructionSet::kAvx512:
      return (targets & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512vnni");
    case InstructionSet::kAvx2:
      return (targets & HWY_AVX2) != 0;
#endif
    case InstructionSet::kNeon:
      return (targets & HWY_NEON) != 0;
    default:
      return false;
  }
}

}  // namespace

InstructionSet usable_instruction_set(InstructionSet ceiling) {
  constexpr InstructionSet kFromBest[] = {InstructionSet::kNeon, InstructionSet::kAvx512,
                                          InstructionSet::kAvx2};
  for (const InstructionSet set : kFromBest) {
    if (ceiling != InstructionSet::kBest && set > ceiling) continue;
    if (machine_has(set)) return set;
  }
  return InstructionSet::kScalar;
}

}  // namespace cairn::kernels
