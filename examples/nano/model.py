"""The text backbone of the architecture in PyTorch, for training: architecture.md and engram.md.

A model is a dictionary of parameters under checkpoint names and a Config; `Model.forward` runs a
batch of token rows [b, t], each from position 0. Numbers are f32 throughout. With `quantised` set,
weights, activations and KV pass through the formats of the checkpoint and the cache (`fake_quant`)
while gradients pass straight through.

Index keys and queries get no gradient from the language loss, because a top-k has none. They learn
from `index_loss`: on a few sampled queries the index scores are held against the attention that the
layers of the group pay to all visible entries.
"""

import dataclasses
import math
from typing import Dict, List, Optional

import numpy as np
import torch

import ops
import primes


@dataclasses.dataclass
class Group:
    """What the layers that share an index source have in common during one forward."""

    main_kv: torch.Tensor  # [b, g, hd]
    index_k: torch.Tensor  # [b, g, ci], of a latent without gradient
    ratio: int
    sampled_visible: Optional[torch.Tensor]  # [b, sampled, g]
    seen: object = None  # the current selection, as the operations have it
    pool: object = None  # candidates of the writer
    scores: Optional[torch.Tensor] = None  # [b, sampled, g] of the current index source
    teacher: Optional[torch.Tensor] = None  # [b, sampled, g] attention of its layers so far


def rope_tables(config, compressed: bool, n_tokens: int):
    """cos and sin [t, rope/2]; with YaRN where the layer has compressed entries (3.7)."""
    half = config.qk_rope_head_dim // 2
    theta = config.compress_rope_theta if compressed else config.rope_theta
    frequency = theta ** (-np.arange(half, dtype=np.float64) / half)
    if compressed and config.rope_scaling:
        frequency = _yarn(config, frequency, theta)
    frequency = frequency.astype(np.float32)
    angle = np.arange(n_tokens, dtype=np.float32)[:, None] * frequency[None]
    return torch.from_numpy(np.cos(angle)), torch.from_numpy(np.sin(angle))


def _yarn(config, frequency, theta):
    scaling, width = config.rope_scaling, config.qk_rope_head_dim

    def correction(beta):
        original = scaling["original_max_position_embeddings"]
        return width * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(correction(scaling["beta_fast"])), 0)
    high = min(math.ceil(correction(scaling["beta_slow"])), width - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return frequency / scaling["factor"] * ramp + frequency * (1 - ramp)


class EngramHash:
    """Row ids of the Engram tables from token ids (engram.md 6)."""

    def __init__(self, config, token_classes: np.ndarray, multipliers=None):
        self.config = config
        self.classes = torch.from_numpy(np.asarray(token_classes, dtype=np.int64))
        self.primes = primes.bucket_primes(config)
        self.multipliers = multipliers or primes.multipliers(config)

    def rows(self, ids: torch.Tensor) -> List[torch.Tensor]:
        """For each Engram layer the ids [b, t, columns]."""
        b, t = ids.shape
        depth = self.config.engram_max_ngram_size
        pad = int(self.classes[self.config.engram_pad_token_id])
        classes = torch.cat((torch.full((b, depth - 1), pad), self.classes[ids]), dim=1)
        back = [classes[:, depth - 1 - s : depth - 1 - s + t] for s in range(depth)]
        return [self._layer_rows(slot, back) for slot in range(len(self.primes))]

    def _layer_rows(self, slot, back):
        heads = self.config.engram_n_heads
        offset, columns = 0, []
        mixed = back[0] * self.multipliers[slot][0]
        for order in range(2, self.config.engram_max_ngram_size + 1):
            mixed = mixed ^ (back[order - 1] * self.multipliers[slot][order - 1])
            for head in range(heads):
                prime = self.primes[slot][(order - 2) * heads + head]
                columns.append(mixed % prime + offset)
                offset += prime
        return torch.stack(columns, dim=-1)


class Model:
    """Parameters and forward pass. `ops_` is a module with the functions of ops.py."""

    def __init__(self, config, parameters: Dict[str, torch.Tensor], engram_hash, ops_=ops):
        self.config, self.p, self.hash, self.ops = config, parameters, engram_hash, ops_
        self.quantiser = None  # a fake_quant.Quantiser while training for the stored formats
        self.dense = False  # leave nothing out, while the indexers are fresh
        self.loads: List[torch.Tensor] = []  # tokens of each expert, one tensor a layer
        self._ropes: Dict[tuple, tuple] = {}

    # Parameters ----------------------------------------------------------------------------------

    def weight(self, name: str) -> torch.Tensor:
        """A parameter as the forward pass uses it."""
        value = self.p[name]
        return self.quantiser.weight(name, value) if self.quantiser else value

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """An FP8 linear layer: the input is quantised too."""
        if self.quantiser:
            x = self.quantiser.activation(x)
        return x @ self.weight(name).t()

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self.ops.rms_norm(x, self.weight(name + ".weight"), self.config.rms_norm_eps)

    def rope(self, layer_ratio: int, n_tokens: int):
        key = (layer_ratio > 0, n_tokens)
        if key not in self._ropes:
            self._ropes[key] = rope_tables(self.config, *key)
        return self._ropes[key]

    # Forward -------------------------------------------------------------------------------------

    def forward(self, ids: torch.Tensor, sampled: Optional[torch.Tensor] = None, taps=None):
        """(final normed hidden [b, t, d], index loss) of token rows ids [b, t].

        `sampled` [b, k] are the positions whose attention teaches the indexers; without them the
        index loss is zero. `taps`, a dictionary, receives intermediate tensors by golden name.
        """
        c = self.config
        b, t = ids.shape
        rows = self.hash.rows(ids)
        h = self.ops.gather(self.weight("embed.weight"), ids)
        h = h.view(b * t, 1, c.hidden_size).repeat(1, c.hc_mult, 1)
        pre = torch.zeros(b * t, c.hc_mult)
        pre[:, 0] = 1
        self.loads, self._index_losses = [], []
        groups: Dict[int, Group] = {}
        for layer in range(c.num_hidden_layers):
            if layer in c.engram_layer_ids:
                slot = c.engram_layer_ids.index(layer)
                h = self._engram(f"layers.{layer}.engram.", h, rows[slot].view(b * t, -1))
            if taps is not None:
                taps[f"layers.{layer}.h_in"] = h
            h, pre = self._layer(layer, h, pre, (b, t), groups, sampled)
        self._close_groups(groups)
        x = self.norm(self.ops.collapse(h, pre), "norm").view(b, t, -1)
        loss = torch.stack(self._index_losses).mean() if self._index_losses else torch.zeros(())
        return x, loss

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of final hidden rows."""
        return hidden @ self.weight("head.weight").t()

    def _layer(self, layer, h, pre, shape, groups, sampled):
        c, name = self.config, f"layers.{layer}."
        x, pre_a, post, comb = self.hyper_in(h, pre, name, "attn")
        h = self.ops.expand(self._attention(layer, x, shape, groups, sampled), h, post, comb)
        x, pre_f, post, comb = self.hyper_in(h, pre_a, name, "ffn")
        h = self.ops.expand(self.experts(name + "ffn.", x, c.num_experts_per_tok), h, post, comb)
        return h, pre_f

    def hyper_in(self, h, pre, name, part):
        c, hc = self.config, f"{name}hc_{part}_"
        return self.ops.hyper_in(
            h, pre, self.p[hc + "fn"], self.p[hc + "scale"], self.p[hc + "base"],
            self.weight(f"{name}{part}_norm.weight"), c.hc_sinkhorn_iters, c.hc_eps,
            c.rms_norm_eps,
        )

    def _engram(self, name, h, rows):
        c = self.config
        table = self.weight(name + "embed.weight")
        e = self.ops.gather(table, rows).view(rows.shape[0], -1)
        u = (e @ self.weight(name + "wkv").t()).view(-1, c.hc_mult + 1, c.hidden_size)
        weight = self.weight(name + "q_weight") * self.weight(name + "k_weight")
        gate = self.ops.engram_gate(h, u[:, :-1], weight, c.rms_norm_eps)
        return h + gate.unsqueeze(-1) * u[:, -1:]

    # Attention -----------------------------------------------------------------------------------

    def _attention(self, layer, x, shape, groups, sampled):
        c, (b, t) = self.config, shape
        name, ratio = f"layers.{layer}.attn.", c.compress_ratios[layer]
        cos, sin = self.rope(ratio, t)
        qr = self.norm(self.linear(x, name + "wq_a"), name + "q_norm")
        q = self.linear(qr, name + "wq_b").view(b, t, c.num_attention_heads, c.head_dim)
        q = self.ops.rotate(q, cos, sin)
        kv = self.norm(self.linear(x, name + "wkv"), name + "kv_norm").view(b, t, -1)
        kv = self.ops.rotate(kv, cos, sin)
        if self.quantiser:
            kv = self.quantiser.window(kv)
        group = self._group(layer, x.view(b, t, -1), qr.view(b, t, -1), groups, sampled)
        sink = self.p[name + "attn_sink"]
        main, seen = (group.main_kv, group.seen) if group else (None, None)
        out = self.ops.attention(q, kv, c.sliding_window, main, seen, sink)
        if group and sampled is not None:
            self._teach(group, q, sampled)
        out = self.ops.rotate(out, cos, sin, -1.0)
        return self.project_out(name, out, b * t)

    def project_out(self, name, out, n):
        """The grouped output projection of attention (7.6): [n, d]."""
        c = self.config
        wo_a = self.weight(name + "wo_a").view(c.o_groups, c.o_lora_rank, -1)
        parts = out.reshape(n, c.o_groups, -1)
        u = torch.cat([parts[:, g] @ wo_a[g].t() for g in range(c.o_groups)], dim=1)
        return self.linear(u, name + "wo_b")

    def _group(self, layer, x, qr, groups, sampled):
        """The KV group of a layer with its selection up to date; None for a window-only layer."""
        c = self.config
        source = c.kv_source(layer)
        if source is None:
            return None
        if layer == source:
            self._close_groups(groups)
            groups[source] = self._compress(layer, x, sampled)
        group = groups[source]
        if layer in c.index_source_layer_ids:
            self._finish_teaching(group)
            self._index(layer, x, qr, group, sampled)
        return group

    def _compress(self, layer, x, sampled):
        """Main KV and index keys of a Full layer (7.3, 8.1)."""
        c, (b, t, _) = self.config, x.shape
        name, ratio = f"layers.{layer}.attn.", c.compress_ratios[layer]
        g = t // ratio
        latent = x @ self.weight(name + "compressor.wkv.weight").t()
        if ratio > 1:
            gates = x @ self.weight(name + "compressor.wgate.weight").t()
            pairs = gates[:, : g * ratio].reshape(b, g, ratio, -1)
            latent = latent[:, : g * ratio].reshape(b, g, ratio, -1)
            latent = (torch.softmax(pairs, dim=2) * latent).sum(2)
        latent = self.norm(latent, name + "compressor.norm")
        cos, sin = (table[::ratio][:g].contiguous() for table in self.rope(ratio, t))
        main = self.ops.rotate(latent, cos, sin)
        index_k = latent.detach() @ self.weight(name + "indexer.wk.weight").t()
        index_k = self.ops.rotate(self.norm(index_k, name + "indexer.k_norm"), cos, sin)
        if self.quantiser:
            main, index_k = self.quantiser.main(main), self.quantiser.index(index_k)
        visible = None
        if sampled is not None:
            visible = torch.arange(g).view(1, 1, -1) < ((sampled + 1) // ratio).unsqueeze(2)
        return Group(main, index_k, ratio, visible)

    def _index(self, layer, x, qr, group, sampled):
        """A fresh selection by an index source (8.2 to 8.5), and its scores at sampled queries."""
        c, (b, t, _) = self.config, x.shape
        if self.dense or t // group.ratio <= c.index_topk:
            group.seen = self.ops.see_all(b, t, group.ratio)
        else:
            with torch.no_grad():
                q, w = self._index_query(layer, x, qr, None)
                group.seen, group.pool = self.ops.select_entries(
                    q, w, group.index_k, group.ratio, c.index_topk, group.pool,
                    layer == c.candidate_source_layer_id, c.candidate_topk_blocks,
                    c.candidate_block_size,
                )
        if sampled is not None:
            q, w = self._index_query(layer, x.detach(), qr.detach(), sampled)
            group.scores = self.ops.index_scores(q, group.index_k, w)

    def _index_query(self, layer, x, qr, sampled):
        """Queries [b, k, heads, ci] and head weights [b, k, heads] at all or sampled positions."""
        c = self.config
        b, t, _ = x.shape
        name = f"layers.{layer}.attn.indexer."
        cos, sin = self.rope(c.compress_ratios[layer], t)
        if sampled is not None:
            rows = torch.arange(b).unsqueeze(1)
            x, qr = x[rows, sampled], qr[rows, sampled]
        q = self.linear(qr, name + "wq_b").view(b, x.shape[1], c.index_n_heads, c.index_head_dim)
        if sampled is None:
            q = self.ops.rotate(q, cos, sin)
        else:  # every row has positions of its own
            q = ops.rotate(q, cos[sampled].unsqueeze(2), sin[sampled].unsqueeze(2))
        if self.quantiser:
            q = self.quantiser.index(q)
        factor = (c.index_head_dim * c.index_n_heads) ** -0.5
        return q, (x @ self.weight(name + "weights_proj.weight").t()) * factor

    # Index loss ----------------------------------------------------------------------------------

    def _teach(self, group, q, sampled):
        """Adds what this layer's attention pays to every visible entry at the sampled queries."""
        c = self.config
        with torch.no_grad():
            b, k = sampled.shape
            rows = torch.arange(b).unsqueeze(1)
            some = q[rows, sampled].reshape(b, -1, c.head_dim) * c.head_dim**-0.5
            scores = (some @ group.main_kv.transpose(1, 2)).view(b, k, c.num_attention_heads, -1)
            visible = group.sampled_visible.unsqueeze(2)
            p = torch.softmax(scores.masked_fill(~visible, -1e30), dim=-1).sum(2)
            group.teacher = p if group.teacher is None else group.teacher + p

    def _finish_teaching(self, group):
        """Closes the current index source of a group: its loss is a cross entropy."""
        if group.teacher is None or group.scores is None:
            return
        visible = group.sampled_visible
        target = group.teacher / group.teacher.sum(-1, keepdim=True)
        scores = group.scores.masked_fill(~visible, -1e30)
        log_p = torch.log_softmax(scores, dim=-1).masked_fill(~visible, 0)
        entropy = -(target * torch.log(target.clamp(min=1e-9))).sum(-1)
        loss = -(target * log_p).sum(-1) - entropy
        useful = visible.any(-1)
        self._index_losses.append((loss * useful).sum() / useful.sum().clamp(min=1))
        group.teacher = group.scores = None

    def _close_groups(self, groups):
        for group in groups.values():
            self._finish_teaching(group)

    # Experts -------------------------------------------------------------------------------------

    def experts(self, name, x, n_active):
        """The routed experts and the shared one for rows x [n, d]."""
        scores = torch.sqrt(torch.nn.functional.softplus(x @ self.weight(name + "gate.weight").t()))
        chosen = torch.topk(scores.detach() + self.p[name + "gate.bias"], n_active)[1]
        weights = torch.gather(scores, 1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * self.config.routed_scaling_factor
        self.loads.append(torch.bincount(chosen.flatten(), minlength=scores.shape[1]))
        return self._routed(name, x, chosen, weights) + self._shared(name, x)

    def _shared(self, name, x):
        name += "shared_experts."
        if self.quantiser:
            x = self.quantiser.activation(x)
        gate, up = x @ self.weight(name + "w1").t(), x @ self.weight(name + "w3").t()
        return self.linear(self.ops.swiglu(gate, up, self.config.swiglu_limit), name + "w2")

    def _routed(self, name, x, chosen, weights):
        """Rows are grouped by expert, so each expert is three plain matrix products."""
        k = chosen.shape[1]
        order = torch.argsort(chosen.flatten(), stable=True)
        token = order // k
        counts = self.loads[-1].tolist()
        if self.quantiser:
            x = self.quantiser.activation(x)
        w1, w3, w2 = (self.weight(name + f"experts.w{i}") for i in (1, 3, 2))
        inputs = torch.split(self.ops.gather(x, token), counts)
        shares = torch.split(weights.flatten()[order].unsqueeze(1), counts)
        limit, outputs = self.config.swiglu_limit, []
        for e, (rows, share) in enumerate(zip(inputs, shares)):
            a = self.ops.swiglu(rows @ w1[e].t(), rows @ w3[e].t(), limit, share)
            if self.quantiser:
                a = self.quantiser.activation(a)
            outputs.append(a @ w2[e].t())
        return self.ops.scatter(torch.cat(outputs), token, len(x))
