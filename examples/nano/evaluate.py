"""Held-out measures by teacher forcing.

An assistant message counts as right if the model's first choice is the right token at each of its
positions: then greedy decoding from the same history gives exactly this message.
"""

import collections
import dataclasses
import random
from typing import Dict

import torch

import rows

BUCKETS = (128, 256, 512, 1024, 2048, 4096)


def _bucket(distance: int) -> int:
    return next((b for b in BUCKETS if distance <= b), BUCKETS[-1])


@torch.no_grad()
def measure(model, maker: rows.RowMaker, n_tokens: int, n_rows: int, seed: int) -> Dict[str, float]:
    """Shares of right messages, as call, answer and recall_<distance up to>, and held-out loss."""
    right, total = collections.Counter(), collections.Counter()
    loss, weight = 0.0, 0.0
    mix = dataclasses.replace(rows.mix_for(n_tokens), n_tokens=n_tokens + 1)
    for index in range(n_rows):
        rng = random.Random(f"held out:{seed}:{index}")
        kind = "facts" if index % 2 else "agent"
        talk, ids, weights, spans = maker.conversation(rng, mix, kind)
        ids = torch.tensor(ids[: n_tokens + 1])
        hidden, _ = model.forward(ids[None, :-1])
        logits = model.logits(hidden[0])
        hits = logits.argmax(-1) == ids[1:]
        own = torch.tensor(weights[1 : n_tokens + 1]) == rows.OWN_WEIGHT
        losses = torch.nn.functional.cross_entropy(logits[own], ids[1:][own], reduction="sum")
        loss, weight = loss + float(losses), weight + int(own.sum())
        for mark, (first, end) in zip(talk.marks, spans):
            if end > n_tokens or (not mark.is_call and mark.must_say is None):
                continue
            kinds = ["call" if mark.is_call else "answer"]
            if mark.distance and not mark.is_call:
                kinds.append(f"recall_{_bucket(mark.distance)}")
            for name in kinds:
                total[name] += 1
                right[name] += bool(hits[first - 1 : end - 1].all())
    shares = {name: round(right[name] / total[name], 4) for name in sorted(total)}
    shares.update({f"n_{name}": total[name] for name in sorted(total)})
    return dict(loss=round(loss / max(weight, 1), 4), **shares)
