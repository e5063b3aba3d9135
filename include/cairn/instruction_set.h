// Which instructions the numeric kernels may use.
#ifndef CAIRN_INSTRUCTION_SET_H_
#define CAIRN_INSTRUCTION_SET_H_

#include <cstdint>

namespace cairn {

// A ceiling: where the machine lacks the named set, kernels use the best that it has below. Results
// are the same bits on every set.
enum class InstructionSet : std::int32_t {
  kBest = 0,    // whatever the machine has
  kScalar = 1,  // the plain definitions, on the instructions that every machine of the build has
  kAvx2 = 2,    // x86: AVX2 with FMA and F16C
  kAvx512 = 3,  // x86: AVX-512 (F, VL, DQ, BW) with VNNI
  kNeon = 4,    // AArch64
};

}  // namespace cairn

#endif  // CAIRN_INSTRUCTION_SET_H_
