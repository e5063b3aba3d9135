#include "kernels/kernels.h"

namespace cairn::kernels {
namespace {

KernelTable scalar_kernels() {
  return {
      .matmul_fp8_q8 = matmul_fp8_q8_scalar,
      .matmul_fp4_q8 = matmul_fp4_q8_scalar,
      .matmul_fp8 = matmul_fp8_scalar,
      .matmul_fp4 = matmul_fp4_scalar,
      .matmul_bf16 = matmul_bf16_scalar,
      .matmul_f32 = matmul_f32_scalar,
      .quantise_q8 = quantise_q8_scalar,
      .encode_row = encode_row,
      .rms_norm = rms_norm_scalar,
      .rope = rope_scalar,
      .hc_mix = hc_mix_scalar,
      .hc_collapse = hc_collapse_scalar,
      .hc_expand = hc_expand_scalar,
      .hc_pass = hc_pass_scalar,
      .sparse_attention = sparse_attention_scalar,
      .compressor_pool = compressor_pool_scalar,
      .index_scores = index_scores_scalar,
      .top_k = top_k_scalar,
      .candidate_blocks = candidate_blocks_scalar,
      .route = route_scalar,
      .swiglu = swiglu_scalar,
      .engram_hash = engram_hash_scalar,
      .engram_gather = engram_gather_scalar,
      .engram_update = engram_update_scalar,
  };
}

}  // namespace

KernelTable select_kernels(InstructionSet ceiling) {
  const InstructionSet set = usable_instruction_set(ceiling);
  KernelTable table = scalar_kernels();
  use_compressor_pool(set, table);
  use_engram_rows(set, table);
  use_expert_routing(set, table);
  use_hyper_connection(set, table);
  use_index_scores(set, table);
  use_index_select(set, table);
  use_kv_row(set, table);
  use_matmul_fp4(set, table);
  use_matmul_fp8(set, table);
  use_matmul_wide(set, table);
  use_rms_norm(set, table);
  use_rope(set, table);
  use_sparse_attention(set, table);
  return table;
}

}  // namespace cairn::kernels
