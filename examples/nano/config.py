"""The shape of a model: the released configuration keys, and the shape of cairn-nano.

A `Config` holds the keys of `text_config` in a released config.json under their own names, so
that one class describes cairn-nano, the test checkpoints and the released model alike.
"""

import dataclasses
import json
import pathlib
from typing import List, Optional

import primes


@dataclasses.dataclass
class Config:
    """`text_config` of a released config.json; field names are the released key names."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    swiglu_limit: float
    rms_norm_eps: float
    max_position_embeddings: int
    sliding_window: int
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: dict
    compress_ratios: List[int]
    kv_source_layer_ids: List[int]
    index_source_layer_ids: List[int]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: List[int]
    engram_num_embeddings: List[int]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int = 0
    dspark_block_size: int = 5
    dspark_noise_token_id: int = 0
    dspark_target_layer_ids: List[int] = dataclasses.field(default_factory=list)
    dspark_markov_rank: int = 32
    dspark_n_routed_experts: int = 4
    dspark_num_experts_per_tok: int = 2

    @property
    def engram_columns(self) -> int:
        """Hash columns of one token in one Engram layer."""
        return (self.engram_max_ngram_size - 1) * self.engram_n_heads

    @property
    def n_encoder_layers(self) -> int:
        """Layers before the one that owns the decoder's main KV."""
        return self.kv_source_layer_ids[-1]

    def kv_source(self, layer: int) -> Optional[int]:
        """The layer whose compressed entries `layer` reads; None for a window-only layer."""
        if self.compress_ratios[layer] == 0:
            return None
        return max(s for s in self.kv_source_layer_ids if s <= layer)

    def index_source(self, layer: int) -> Optional[int]:
        """The layer whose top-k list `layer` uses; None for a window-only layer."""
        if self.compress_ratios[layer] == 0:
            return None
        return max(s for s in self.index_source_layer_ids if s <= layer)


def from_text_config(text: dict) -> Config:
    """Takes the known keys of a `text_config` object and leaves the others."""
    names = {field.name for field in dataclasses.fields(Config)}
    return Config(**{key: value for key, value in text.items() if key in names})


def read(folder: pathlib.Path) -> Config:
    """The configuration of a checkpoint folder in the released layout."""
    with open(pathlib.Path(folder) / "config.json", encoding="utf-8") as file:
        return from_text_config(json.load(file)["text_config"])


def nano(vocab_size: int, n_classes: int, **changes) -> Config:
    """The shape of cairn-nano.

    Four encoder and four decoder layers hold every kind of layer that the architecture has: window
    only, window with Engram, Full and Reuse at ratio 2, Full, Reuse and Reindex at ratio 1. The
    window, the top-k and the candidate pool are small enough that a conversation of 2,000 tokens
    depends on all of them.
    """
    values = dict(
        vocab_size=vocab_size,
        hidden_size=128,
        num_hidden_layers=8,
        num_attention_heads=4,
        head_dim=64,
        qk_rope_head_dim=16,
        q_lora_rank=96,
        o_lora_rank=64,
        o_groups=2,
        moe_intermediate_size=128,
        n_routed_experts=8,
        num_experts_per_tok=2,
        routed_scaling_factor=1.5,
        swiglu_limit=10.0,
        rms_norm_eps=1e-20,
        max_position_embeddings=65536,
        sliding_window=64,
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_scaling=dict(
            rope_type="yarn", factor=16, beta_fast=32, beta_slow=1,
            original_max_position_embeddings=65536,
        ),
        compress_ratios=[0, 0, 2, 2, 1, 1, 1, 1],
        kv_source_layer_ids=[2, 4],
        index_source_layer_ids=[2, 4, 6],
        index_n_heads=4,
        index_head_dim=32,
        index_topk=128,
        candidate_source_layer_id=4,
        candidate_topk_blocks=128,
        candidate_block_size=8,
        hc_mult=4,
        hc_sinkhorn_iters=4,
        hc_eps=1e-6,
        engram_layer_ids=[1, 3],
        engram_num_embeddings=[],
        engram_max_ngram_size=4,
        engram_vocab_size=3000,
        engram_n_heads=2,
        engram_head_dim=32,
        engram_pad_token_id=2,
        engram_compressed_vocab_size=n_classes,
        dspark_block_size=4,
        dspark_target_layer_ids=[5, 6, 7],
        dspark_markov_rank=64,
    )
    values.update(changes)
    config = Config(**values)
    tables = primes.bucket_primes(config)
    config.engram_num_embeddings = [sum(columns) for columns in tables]
    return config
