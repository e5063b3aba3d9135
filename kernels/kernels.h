// The dispatch table: one function pointer per operation, filled once at open. The engine calls
// through it only. A file of faster versions is one line in select.cc.
#ifndef CAIRN_KERNELS_KERNELS_H_
#define CAIRN_KERNELS_KERNELS_H_

#include "cairn/instruction_set.h"
#include "kernels/compressor_pool.h"
#include "kernels/engram_rows.h"
#include "kernels/expert_routing.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
#include "kernels/kv_row.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sparse_attention.h"

namespace cairn::kernels {

struct KernelTable {
  MatmulFp8Q8Fn* matmul_fp8_q8;
  MatmulFp4Q8Fn* matmul_fp4_q8;
  MatmulFp8Fn* matmul_fp8;
  MatmulFp4Fn* matmul_fp4;
  MatmulBf16Fn* matmul_bf16;
  MatmulF32Fn* matmul_f32;
  QuantiseQ8Fn* quantise_q8;
  EncodeRowFn* encode_row;
  RmsNormFn* rms_norm;
  RopeFn* rope;
  HcMixFn* hc_mix;
  HcCollapseFn* hc_collapse;
  HcExpandFn* hc_expand;
  HcPassFn* hc_pass;
  SparseAttentionFn* sparse_attention;
  CompressorPoolFn* compressor_pool;
  IndexScoresFn* index_scores;
  TopKFn* top_k;
  CandidateBlocksFn* candidate_blocks;
  RouteFn* route;
  SwigluFn* swiglu;
  EngramHashFn* engram_hash;
  EngramGatherFn* engram_gather;
  EngramUpdateFn* engram_update;
};

// What `ceiling` comes to on this machine: itself, or the best set below that there is. Never
// kBest.
InstructionSet usable_instruction_set(InstructionSet ceiling);

// The fastest kernels of this machine that use no more than `ceiling`; every entry is set. All
// tables compute the same bits.
KernelTable select_kernels(InstructionSet ceiling = InstructionSet::kBest);

// Puts the versions that there are for `set` into the table. cpu/<op>_simd.cc
void use_compressor_pool(InstructionSet set, KernelTable& table);
void use_engram_rows(InstructionSet set, KernelTable& table);
void use_expert_routing(InstructionSet set, KernelTable& table);
void use_hyper_connection(InstructionSet set, KernelTable& table);
void use_index_scores(InstructionSet set, KernelTable& table);
void use_index_select(InstructionSet set, KernelTable& table);
void use_kv_row(InstructionSet set, KernelTable& table);
void use_matmul_fp4(InstructionSet set, KernelTable& table);
void use_matmul_fp8(InstructionSet set, KernelTable& table);
void use_matmul_wide(InstructionSet set, KernelTable& table);
void use_rms_norm(InstructionSet set, KernelTable& table);
void use_rope(InstructionSet set, KernelTable& table);
void use_sparse_attention(InstructionSet set, KernelTable& table);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_KERNELS_H_
