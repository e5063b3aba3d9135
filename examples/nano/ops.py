"""The operations of the model on torch tensors, as formulas.

These are the definitions; `fast_ops` has the same functions with compiled forward and backward
passes. Shapes: `n` tokens of a batch in a row, `s` residual streams, `d` hidden size.
"""

import torch


def rms_norm(x, weight, eps):
    """architecture.md 3.6 over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def sinkhorn(c, iterations, eps):
    """architecture.md 5.2 steps 7 to 9 for c [n, s, s]: row softmax, then columns and rows."""
    c = torch.softmax(c, dim=2) + eps
    c = c / (c.sum(1, keepdim=True) + eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(2, keepdim=True) + eps)
        c = c / (c.sum(1, keepdim=True) + eps)
    return c


def hyper_in(h, pre, fn, scale, base, weight, iterations, eps, norm_eps):
    """What a sublayer takes from streams h [n, s, d] (5.2 and 5.3).

    Its normalised input [n, d], collapsed with the incoming `pre` [n, s], and the coefficients
    predicted from h: pre [n, s], post [n, s], comb [n, s, s].
    """
    n, s, _ = h.shape
    v = h.reshape(n, -1)
    m = (v @ fn.t()) * torch.rsqrt(v.square().mean(-1, keepdim=True) + norm_eps)
    new_pre = torch.sigmoid(m[:, :s] * scale[0] + base[:s]) + eps
    post = 2 * torch.sigmoid(m[:, s : 2 * s] * scale[1] + base[s : 2 * s])
    comb = (m[:, 2 * s :] * scale[2] + base[2 * s :]).view(n, s, s)
    x = rms_norm(collapse(h, pre), weight, norm_eps)
    return x, new_pre, post, sinkhorn(comb, iterations, eps)


def collapse(h, pre):
    """One input from the streams (5.3): [n, d]."""
    return (h * pre.unsqueeze(-1)).sum(1)


def expand(y, h, post, comb):
    """Streams after a sublayer with output y (5.3); the sum runs over comb's first index."""
    return post.unsqueeze(-1) * y.unsqueeze(1) + torch.bmm(comb.transpose(1, 2), h)


def rotate(x, cos, sin, sign=1.0):
    """RoPE of the last channels of x [b, t, channels] or [b, t, heads, channels] (3.7)."""
    if x.dim() == 4 and cos.dim() == 2:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    sin = sin * sign
    width = 2 * cos.shape[-1]
    plain, turned = x[..., :-width], x[..., -width:]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return torch.cat((plain, pairs.flatten(-2)), dim=-1)


def swiglu(gate, up, limit, share=None):
    """Clamped SwiGLU of an expert (9), times the router's share [n, 1] of each row."""
    gate = gate.clamp(max=limit)
    out = gate * torch.sigmoid(gate) * up.clamp(-limit, limit)
    return out if share is None else out * share


def gather(table, ids):
    """Rows of a table by id."""
    return torch.nn.functional.embedding(ids, table)


def scatter(x, ids, n_out):
    """Sums of rows that go to the same place: out[ids[i]] += x[i]."""
    return torch.zeros(n_out, x.shape[1]).index_add(0, ids, x)


def engram_gate(h, key, weight, eps):
    """Gate [n, s] of streams h against keys [n, s, d] (engram.md 8)."""
    dot = (h * weight * key).sum(-1)
    dot = dot * torch.rsqrt(h.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)
    dot = dot * h.shape[-1] ** -0.5
    return torch.sigmoid(torch.sign(dot) * torch.sqrt(dot.abs().clamp(min=1e-6)))


def window_mask(n_tokens, window):
    """[t, t]: query p sees positions p-window+1 to p."""
    p = torch.arange(n_tokens)
    distance = p.unsqueeze(1) - p.unsqueeze(0)
    return (distance >= 0) & (distance < window)


def attention(q, window_kv, window, main_kv, seen, sink):
    """Attention over window and selected entries (7.5).

    q [b, t, heads, hd], window_kv [b, t, hd], main_kv [b, g, hd] or None, seen [b, t, g] bool,
    sink [heads]. Result [b, t, heads, hd]. Keys are values.
    """
    b, t, heads, width = q.shape
    flat = q.reshape(b, t * heads, width) * width**-0.5
    parts = [(flat @ window_kv.transpose(1, 2)).view(b, t, heads, t)]
    parts[0] = parts[0].masked_fill(~window_mask(t, window).view(1, t, 1, t), -1e30)
    if main_kv is not None:
        scores = (flat @ main_kv.transpose(1, 2)).view(b, t, heads, -1)
        parts.append(scores.masked_fill(~seen.unsqueeze(2), -1e30))
    parts.append(sink.view(1, 1, heads, 1).expand(b, t, heads, 1))
    p = torch.softmax(torch.cat(parts, dim=-1), dim=-1)
    out = p[..., :t].reshape(b, t * heads, t) @ window_kv
    if main_kv is not None:
        out = out + p[..., t:-1].reshape(b, t * heads, -1) @ main_kv
    return out.view(b, t, heads, width)


def index_scores(q, k, w):
    """Scores [b, t, g]: over heads, the sum of relu(q . k) * w (8.3).

    q [b, t, heads, c], k [b, g, c], w [b, t, heads].
    """
    b, t, heads, width = q.shape
    dots = torch.relu(q.reshape(b, t * heads, width) @ k.transpose(1, 2)).view(b, t, heads, -1)
    return torch.einsum("bthg,bth->btg", dots, w)


def visible_entries(n_tokens, ratio):
    """[t, g]: entry j is visible to query p if j < (p + 1) // ratio (7.3)."""
    counts = (torch.arange(n_tokens) + 1) // ratio
    return torch.arange(n_tokens // ratio).unsqueeze(0) < counts.unsqueeze(1)


def see_all(batch, n_tokens, ratio):
    """The selection that leaves nothing out."""
    return visible_entries(n_tokens, ratio).expand(batch, -1, -1)


def highest(scores, visible, top_k):
    """The mask [b, t, g] of the top_k highest visible scores; ties go to the lower entry (8.4)."""
    scores = scores.masked_fill(~visible, float("-inf"))
    if scores.shape[-1] <= top_k:
        return visible.expand_as(scores)
    order = torch.sort(scores, dim=-1, descending=True, stable=True)[1][..., :top_k]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True) & visible


def candidate_pool(scores, visible, top_blocks, block):
    """The mask [b, t, g] of entries in the kept blocks (8.5)."""
    b, t, g = scores.shape
    n_visible, n_blocks = visible.sum(-1), -(-g // block)
    padded = torch.full((b, t, n_blocks * block), float("-inf"))
    padded[..., :g] = scores.masked_fill(~visible, float("-inf"))
    newest = ((n_visible - 1).clamp(min=0) // block).view(1, t, 1).expand(b, t, 1)
    best = padded.view(b, t, n_blocks, block).amax(-1).scatter(-1, newest, float("inf"))
    exists = (torch.arange(n_blocks) * block).view(1, 1, -1) < n_visible.view(1, t, 1)
    kept = highest(best, exists.expand(b, t, n_blocks), top_blocks)
    return kept.repeat_interleave(block, dim=-1)[..., :g] & visible


def select_entries(q, w, keys, ratio, top_k, pool, writes_pool, top_blocks, block):
    """An indexer's selection and the candidate pool after it (8.3 to 8.5).

    q [b, t, heads, c], w [b, t, heads], keys [b, g, c]. The selection is what `attention` takes.
    """
    visible = visible_entries(q.shape[1], ratio)
    scores = index_scores(q, keys, w)
    if writes_pool:
        pool = candidate_pool(scores, visible, top_blocks, block)
        return highest(scores, visible, top_k), pool
    return highest(scores, visible if pool is None else pool, top_k), pool
