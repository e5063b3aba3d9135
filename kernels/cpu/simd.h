// How an operation gets a version for each instruction set. A file <op>_simd.cc is compiled once a
// set by Highway: it defines HWY_TARGET_INCLUDE as its own name, includes hwy/foreach_target.h and
// then this file, and has two parts:
//
//   #if CAIRN_SIMD_TARGET            // once a set: the versions, and which slots they fill
//   HWY_BEFORE_NAMESPACE();
//   namespace cairn::kernels::HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   void rms_norm(Context&, const RmsNormArgs&) {...}
//   void use_rms_norm(KernelTable& table) { table.rms_norm = rms_norm; }
//   }
//   HWY_AFTER_NAMESPACE();
//   #endif
//
//   #if HWY_ONCE                     // once: what select.cc calls
//   namespace cairn::kernels {
//   void use_rms_norm(InstructionSet set, KernelTable& table) { CAIRN_USE(use_rms_norm, set,
//   table); }
//   }
//   #endif
//
// Functions shared by such files are in headers <noun>_simd.h that are included again for each set
// (see lane_sum_simd.h). Nothing here is state: a table is chosen by whoever asks for it. Standard
// headers are included before foreach_target.h, so that none of their inline functions is compiled
// for an instruction set that the machine may lack.
#include <hwy/highway.h>  // has parts for each set: outside the guard

#if HWY_TARGET == HWY_AVX3  // InstructionSet::kAvx512 is this and VNNI
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512vnni"
#endif

#ifndef CAIRN_KERNELS_CPU_SIMD_H_
#define CAIRN_KERNELS_CPU_SIMD_H_

// Highway also compiles a file for the build's baseline. There the scalar definitions serve.
#define CAIRN_SIMD_TARGET \
  (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON)

// Calls `use(table)` of the set's namespace; nothing for a set without versions.
#if HWY_ARCH_X86
#define CAIRN_USE(use, set, table) \
  switch (set) {                   \
    case InstructionSet::kAvx512:  \
      return N_AVX3::use(table);   \
    case InstructionSet::kAvx2:    \
      return N_AVX2::use(table);   \
    default:                       \
      return;                      \
  }
#elif HWY_ARCH_ARM_A64
#define CAIRN_USE(use, set, table) \
  if ((set) == InstructionSet::kNeon) return N_NEON::use(table)
#else
#define CAIRN_USE(use, set, table) static_cast<void>(set), static_cast<void>(table)
#endif

#endif  // CAIRN_KERNELS_CPU_SIMD_H_
