"""The draft stages (dspark.md) in PyTorch, for training on a frozen backbone.

A draft block stands behind an anchor position q: its first input is the token of q + 1, the others
are noise tokens, and its outputs propose the tokens of q + 2, q + 3 and so on. Many anchors of a
row are trained at once; each has the window of backbone keys up to q and its own block's keys.
"""

from typing import Dict

import torch

import ops


def taps(config, hidden: Dict[str, torch.Tensor], shape) -> torch.Tensor:
    """What the backbone exports (2): [b, t, targets * d] from `Model.forward`'s taps."""
    means = [hidden[f"layers.{layer}.h_in"].mean(1) for layer in config.dspark_target_layer_ids]
    return torch.cat(means, dim=-1).view(*shape, -1)


class Drafter:
    """Draft stages over a backbone `model`, whose dictionary also holds the `mtp` parameters."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        self.last = f"mtp.{self.config.num_nextn_predict_layers - 1}."

    def forward(self, ids: torch.Tensor, tapped: torch.Tensor, anchors: torch.Tensor):
        """Draft logits [b, a, block, v] with the true previous tokens, and confidence logits
        [b, a, block]; anchors [b, a] leave room for the block behind them."""
        m, c = self.model, self.config
        b, a = anchors.shape
        k = c.dspark_block_size
        rows = torch.arange(b).unsqueeze(1)
        tokens = torch.full((b, a, k), c.dspark_noise_token_id)
        tokens[..., 0] = ids[rows, anchors + 1]
        u = m.norm(m.linear(tapped, "mtp.0.main_proj"), "mtp.0.main_norm")
        h = m.weight("embed.weight")[tokens].view(b * a * k, 1, -1).repeat(1, c.hc_mult, 1)
        pre = torch.zeros(b * a * k, c.hc_mult)
        pre[:, 0] = 1
        for stage in range(c.num_nextn_predict_layers):
            h, pre = self._stage(f"mtp.{stage}.", h, pre, u, anchors)
        z = ops.collapse(h, pre).view(b, a, k, -1)
        previous = ids[rows.unsqueeze(2), anchors.unsqueeze(2) + 1 + torch.arange(k)]
        return self._heads(z, previous)

    def _heads(self, z, previous):
        m = self.model
        e = m.weight(self.last + "markov_head.embed.weight")[previous]
        logits = m.logits(m.norm(z, self.last + "norm"))
        logits = logits + e @ m.weight(self.last + "markov_head.head.weight").t()
        proj = m.weight(self.last + "confidence_head.proj.weight")
        return logits, (torch.cat((z, e), dim=-1).detach() @ proj.t()).squeeze(-1)

    def _stage(self, name, h, pre, u, anchors):
        m, c = self.model, self.config
        x, pre_a, post, comb = m.hyper_in(h, pre, name, "attn")
        h = m.ops.expand(self._attention(name + "attn.", x, u, anchors), h, post, comb)
        x, pre_f, post, comb = m.hyper_in(h, pre_a, name, "ffn")
        y = m.experts(name + "ffn.", x, c.dspark_num_experts_per_tok)
        return m.ops.expand(y, h, post, comb), pre_f

    def _keys(self, name, x, cos, sin):
        m = self.model
        kv = m.norm(m.linear(x, name + "wkv"), name + "kv_norm")
        kv = ops.rotate(kv, cos, sin)
        return m.quantiser.window(kv) if m.quantiser else kv

    def _attention(self, name, x, u, anchors):
        m, c = self.model, self.config
        b, a = anchors.shape
        k, heads, width, window = (
            c.dspark_block_size, c.num_attention_heads, c.head_dim, c.sliding_window
        )
        cos, sin = m.rope(0, u.shape[1] + k + 1)
        at = (anchors.unsqueeze(2) + 1 + torch.arange(k)).view(b * a, k)
        x = x.view(b * a, k, -1)
        q = m.norm(m.linear(x, name + "wq_a"), name + "q_norm")
        q = m.linear(q, name + "wq_b").view(b * a, k, heads, width)
        q = ops.rotate(q, cos[at].unsqueeze(2), sin[at].unsqueeze(2))
        block = self._keys(name, x, cos[at], sin[at])
        ring = self._keys(name, u, cos[: u.shape[1]], sin[: u.shape[1]])
        back = anchors.unsqueeze(2) - torch.arange(window - 1, -1, -1)
        seen = ring[torch.arange(b).view(b, 1, 1), back.clamp(min=0)].view(b * a, window, width)
        keys = torch.cat((seen, block), dim=1)
        scores = (q.reshape(b * a, k * heads, width) * width**-0.5) @ keys.transpose(1, 2)
        hidden = torch.cat((back < 0, torch.zeros(b, a, k, dtype=torch.bool)), dim=2)
        scores = scores.masked_fill(hidden.view(b * a, 1, -1), -1e30)
        sink = m.p[name + "attn_sink"].repeat(k).view(1, k * heads, 1).expand(b * a, -1, 1)
        p = torch.softmax(torch.cat((scores, sink), dim=-1), dim=-1)[..., :-1]
        out = (p @ keys).view(b * a, k, heads, width)
        out = ops.rotate(out, cos[at].unsqueeze(2), sin[at].unsqueeze(2), -1.0)
        return m.project_out(name, out, b * a * k)
