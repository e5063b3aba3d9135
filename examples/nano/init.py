"""Fresh parameters of a model, under checkpoint names."""

from typing import Dict

import torch


class _Maker:
    """Makes parameters of one dictionary from one random stream."""

    def __init__(self, seed: int):
        self.p: Dict[str, torch.Tensor] = {}
        self.g = torch.Generator().manual_seed(seed)

    def matrix(self, name, rows, columns, gain=1.0, *stack):
        value = torch.randn(*stack, rows, columns, generator=self.g)
        self.p[name] = value * gain * columns**-0.5

    def ones(self, name, width):
        self.p[name + ".weight"] = torch.ones(width)


def draft_parameters(config, seed: int) -> Dict[str, torch.Tensor]:
    """All parameters of the draft stages (dspark.md, checkpoint.md 4.4)."""
    c, make = config, _Maker(seed)
    p, matrix, ones = make.p, make.matrix, make.ones
    for stage in range(c.num_nextn_predict_layers):
        name = f"mtp.{stage}."
        ones(name + "attn_norm", c.hidden_size)
        ones(name + "ffn_norm", c.hidden_size)
        for part in ("attn", "ffn"):
            _hyper(p, c, f"{name}hc_{part}_", 2 * stage + (part == "ffn"), make.g)
        _attention(p, c, name + "attn.", matrix, ones, 0.5)
        _experts(p, c, name + "ffn.", c.dspark_n_routed_experts, matrix, 0.5)
    matrix("mtp.0.main_proj", c.hidden_size, len(c.dspark_target_layer_ids) * c.hidden_size)
    ones("mtp.0.main_norm", c.hidden_size)
    last = f"mtp.{c.num_nextn_predict_layers - 1}."
    ones(last + "norm", c.hidden_size)
    rank = c.dspark_markov_rank
    p[last + "markov_head.embed.weight"] = torch.randn(c.vocab_size, rank, generator=make.g) * 0.5
    matrix(last + "markov_head.head.weight", c.vocab_size, rank, 0.1)
    matrix(last + "confidence_head.proj.weight", 1, c.hidden_size + rank, 0.1)
    return p


def parameters(config, seed: int) -> Dict[str, torch.Tensor]:
    """All parameters of the backbone."""
    c, make = config, _Maker(seed)
    p, g, matrix, ones = make.p, make.g, make.matrix, make.ones
    p["embed.weight"] = torch.randn(c.vocab_size, c.hidden_size, generator=g) * 0.5
    matrix("head.weight", c.vocab_size, c.hidden_size, 0.5)
    ones("norm", c.hidden_size)
    small = (2 * c.num_hidden_layers) ** -0.5
    for layer in range(c.num_hidden_layers):
        name = f"layers.{layer}."
        ones(name + "attn_norm", c.hidden_size)
        ones(name + "ffn_norm", c.hidden_size)
        for part in ("attn", "ffn"):
            _hyper(p, c, f"{name}hc_{part}_", 2 * layer + (part == "ffn"), g)
        _attention(p, c, name + "attn.", matrix, ones, small)
        if layer in c.kv_source_layer_ids:
            _compressor(p, c, name + "attn.compressor.", layer, matrix, ones)
            matrix(name + "attn.indexer.wk.weight", c.index_head_dim, c.head_dim)
            ones(name + "attn.indexer.k_norm", c.index_head_dim)
        if layer in c.index_source_layer_ids:
            width = c.index_n_heads * c.index_head_dim
            matrix(name + "attn.indexer.wq_b", width, c.q_lora_rank)
            matrix(name + "attn.indexer.weights_proj.weight", c.index_n_heads, c.hidden_size)
        _experts(p, c, name + "ffn.", c.n_routed_experts, matrix, small)
        if layer in c.engram_layer_ids:
            _engram(p, c, name + "engram.", c.engram_layer_ids.index(layer), matrix, g)
    return p


def _hyper(p, c, name, index, g):
    """Streams start apart: each sublayer reads mostly one of them, and mixing is near identity."""
    s = c.hc_mult
    p[name + "fn"] = torch.randn(s * (2 + s), s * c.hidden_size, generator=g)
    p[name + "fn"] *= (s * c.hidden_size) ** -0.5
    p[name + "scale"] = torch.full((3,), 0.1)
    pre = torch.full((s,), -1.5)
    pre[index % s] = 1.5
    post = torch.randn(s, generator=g) * 0.5
    mix = torch.full((s, s), -2.0) + 4.0 * torch.eye(s) + 0.2 * torch.randn(s, s, generator=g)
    p[name + "base"] = torch.cat((pre, post, mix.flatten()))


def _attention(p, c, name, matrix, ones, small):
    width = c.num_attention_heads * c.head_dim
    p[name + "attn_sink"] = torch.zeros(c.num_attention_heads)
    matrix(name + "wq_a", c.q_lora_rank, c.hidden_size)
    ones(name + "q_norm", c.q_lora_rank)
    matrix(name + "wq_b", width, c.q_lora_rank)
    matrix(name + "wkv", c.head_dim, c.hidden_size)
    ones(name + "kv_norm", c.head_dim)
    matrix(name + "wo_a", c.o_groups * c.o_lora_rank, width // c.o_groups)
    matrix(name + "wo_b", c.hidden_size, c.o_groups * c.o_lora_rank, small)


def _compressor(p, c, name, layer, matrix, ones):
    matrix(name + "wkv.weight", c.head_dim, c.hidden_size)
    ones(name + "norm", c.head_dim)
    if c.compress_ratios[layer] > 1:
        matrix(name + "wgate.weight", c.head_dim, c.hidden_size)


def _experts(p, c, name, e, matrix, small):
    d, i = c.hidden_size, c.moe_intermediate_size
    matrix(name + "gate.weight", e, d)
    p[name + "gate.bias"] = torch.zeros(e)
    for w, rows, columns, gain in (("w1", i, d, 1.0), ("w3", i, d, 1.0), ("w2", d, i, small)):
        matrix(name + "experts." + w, rows, columns, gain, e)
        matrix(name + "shared_experts." + w, rows, columns, gain)


def _engram(p, c, name, slot, matrix, g):
    rows = c.engram_num_embeddings[slot]
    p[name + "embed.weight"] = torch.randn(rows, c.engram_head_dim, generator=g) * 0.5
    width = c.engram_columns * c.engram_head_dim
    matrix(name + "wkv", (c.hc_mult + 1) * c.hidden_size, width, 0.5)
    p[name + "q_weight"] = torch.ones(c.hc_mult, c.hidden_size)
    p[name + "k_weight"] = torch.ones(c.hc_mult, c.hidden_size)
