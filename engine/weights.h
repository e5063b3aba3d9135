// Names -> typed views. One struct per block of the network, in the order of spec/architecture.md
// section 2. Views point into mapped files; nothing is converted or copied.
#ifndef CAIRN_ENGINE_WEIGHTS_H_
#define CAIRN_ENGINE_WEIGHTS_H_

#include <memory>
#include <vector>

#include "kernels/tensor_view.h"

namespace cairn::engine {

using kernels::Bf16View;
using kernels::F32View;
using kernels::Fp4View;
using kernels::Fp8RowView;
using kernels::Fp8View;

struct HyperConnectionWeights {
  F32View fn;     // [hc*(2+hc), hc*dim]
  F32View base;   // [1, hc*(2+hc)]
  F32View scale;  // [1, 3]: pre, post, comb
};

struct CompressorWeights {  // KV source layers only
  Bf16View wkv;    // [head_dim, dim]
  Bf16View wgate;  // [head_dim, dim]; absent at ratio 1
  Bf16View norm;   // [1, head_dim]
};

struct IndexerWeights {  // index source layers only
  Fp8View wq_b;           // [index_n_heads*index_head_dim, q_rank]
  Bf16View weights_proj;  // [index_n_heads, dim]
  Bf16View wk;            // [index_head_dim, head_dim]; KV source layers only
  Bf16View k_norm;        // [1, index_head_dim]; KV source layers only
};

struct AttentionWeights {
  Fp8View wq_a;      // [q_rank, dim]
  Bf16View q_norm;   // [1, q_rank]
  Fp8View wq_b;      // [n_heads*head_dim, q_rank]
  Fp8View wkv;       // [head_dim, dim]
  Bf16View kv_norm;  // [1, head_dim]
  Fp8View wo_a;      // [o_groups*o_rank, n_heads*head_dim/o_groups], block-diagonal
  Fp8View wo_b;      // [dim, o_groups*o_rank]
  F32View sink;      // [1, n_heads]
  CompressorWeights compressor;
  IndexerWeights indexer;
};

struct ExpertWeights {  // routed
  Fp4View w1, w3;  // [expert_dim, dim]: gate, up
  Fp4View w2;      // [dim, expert_dim]: down
};

struct SharedExpertWeights {
  Fp8View w1, w3, w2;
};

struct MoeWeights {
  Bf16View gate;      // [n_experts, dim]
  F32View bias;       // [1, n_experts], text
  F32View bias_image; // [1, n_experts]
  std::vector<ExpertWeights> experts;
  SharedExpertWeights shared;
};

struct EngramWeights {
  Fp8RowView table;  // [rows, engram_head_dim]
  Fp8View wkv;       // [(hc+1)*dim, columns*engram_head_dim]
  Bf16View q_weight, k_weight;  // [hc, dim]
};

struct LayerWeights {
  HyperConnectionWeights hc_attention, hc_ffn;
  Bf16View attention_norm, ffn_norm;  // [1, dim]
  AttentionWeights attention;
  MoeWeights moe;
  EngramWeights engram;  // views are null where the layer has none
};

struct DraftWeights {  // spec/dspark.md
  Fp8View main_proj;                   // [dim, targets*dim]
  Bf16View main_norm;                  // [1, dim]
  std::vector<LayerWeights> stages;    // empty: the checkpoint has none
  Bf16View norm;                       // [1, dim]
  Bf16View markov_embed, markov_head;  // [vocab, rank]
  Bf16View confidence;                 // [1, dim+rank]
};

struct Weights {
  Bf16View embed, head;  // [vocab, dim]
  Bf16View norm;         // [1, dim]
  std::vector<LayerWeights> layers;
  DraftWeights draft;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_WEIGHTS_H_
