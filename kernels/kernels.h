// The dispatch table: one function pointer per operation, filled once at open. The engine calls
// through it only, so a faster version of an operation is one line in select.cc.
#ifndef CAIRN_KERNELS_KERNELS_H_
#define CAIRN_KERNELS_KERNELS_H_

#include "kernels/compressor_pool.h"
#include "kernels/engram_rows.h"
#include "kernels/expert_routing.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
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
  RmsNormFn* rms_norm;
  RopeFn* rope;
  HcMixFn* hc_mix;
  HcCollapseFn* hc_collapse;
  HcExpandFn* hc_expand;
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

// The table of this machine; every entry is set.
KernelTable select_kernels();

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_KERNELS_H_
