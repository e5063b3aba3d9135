"""Training rows: token ids with loss weights, each row one conversation or one text.

A row is a pure function of (split, seed): training takes seeds 0, 1, 2, ... and never sees one
twice, so the state of the data is one number.
"""

import dataclasses
import pathlib
import random
from typing import Dict, List

import numpy as np

import dialogues
import prompt_format
import text_sources
from tokenizer import Tokenizer

OWN_WEIGHT, GIVEN_WEIGHT, TEXT_WEIGHT = 1.0, 0.1, 0.5


@dataclasses.dataclass
class Mix:
    """What rows of one length hold."""

    n_tokens: int
    kinds: Dict[str, float]  # agent, facts and text, by weight
    with_tools: float  # share of conversations that declare their tools
    max_lines: int  # of a file


def mix_for(n_tokens: int) -> Mix:
    """Short rows leave the declaration of tools out, which alone takes several hundred tokens."""
    with_tools = 0.0 if n_tokens <= 512 else 0.6 if n_tokens <= 1024 else 0.85
    max_lines = {128: 3, 256: 4, 512: 6}.get(n_tokens, 10)
    return Mix(n_tokens, dict(agent=0.5, facts=0.4, text=0.1), with_tools, max_lines)


class RowMaker:
    """Makes rows with the tokenizer and the texts of a folder."""

    def __init__(self, folder: pathlib.Path, held_out: bool):
        self.tokenizer, self.held_out = Tokenizer.read(folder / "tokenizer.json"), held_out
        self.texts = text_sources.read(folder / "texts.json", held_out)

    def conversation(self, rng: random.Random, mix: Mix, kind: str):
        """A conversation of at least mix.n_tokens tokens, its ids and loss weights, and the spans
        (first, end) of what the model writes, one for each of the conversation's marks."""
        thinking = rng.random() < 0.5
        effort = rng.choice((75, 75, 75, 75, 50, 100))
        ids: List[int] = []
        weights: List[float] = []
        talk = dialogues.Conversation(
            rng, self.held_out, thinking, mix.max_lines, rng.random() < mix.with_tools,
            lambda: len(ids), self.texts,
        )
        talk.effort = effort
        tasks = dialogues.PRACTICE if kind == "agent" else dialogues.FACTS
        done, spans = 0, []
        while len(ids) < mix.n_tokens:
            talk.step(tasks)
            segments = prompt_format.render(talk.messages, thinking, effort, done, False)
            done = len(talk.messages)
            for segment in segments:
                new = self.encode(segment)
                if segment.own and (not weights or weights[-1] != OWN_WEIGHT):
                    spans.append([len(ids), len(ids)])
                ids += new
                if segment.own:
                    spans[-1][1] = len(ids)
                weights += [OWN_WEIGHT if segment.own else GIVEN_WEIGHT] * len(new)
        return talk, ids, weights, spans

    def encode(self, segment: prompt_format.Segment) -> List[int]:
        """Token ids of a segment."""
        if segment.marker:
            return [self.tokenizer.added[segment.text]]
        return self.tokenizer.encode(segment.text)

    def _text(self, rng: random.Random, n_tokens: int):
        ids = [self.tokenizer.added[prompt_format.BOS]]
        while len(ids) < n_tokens:
            ids += self.tokenizer.encode(rng.choice(self.texts).rstrip("\n") + "\n\n")
        return ids, [TEXT_WEIGHT] * len(ids)

    def row(self, seed: int, mix: Mix):
        """Ids and weights [n_tokens + 1]; the weight of a token counts for predicting it."""
        rng = random.Random(f"{self.held_out}:{seed}")
        kind = rng.choices(list(mix.kinds), list(mix.kinds.values()))[0]
        if kind == "text":
            ids, weights = self._text(rng, mix.n_tokens + 1)
        else:
            longer = dataclasses.replace(mix, n_tokens=mix.n_tokens + 1)
            _, ids, weights, _ = self.conversation(rng, longer, kind)
        n = mix.n_tokens + 1
        return np.array(ids[:n], dtype=np.int64), np.array(weights[:n], dtype=np.float32)

    def batch(self, first_seed: int, n_rows: int, mix: Mix):
        """Ids and weights [n_rows, n_tokens + 1]."""
        rows = [self.row(first_seed + i, mix) for i in range(n_rows)]
        return np.stack([ids for ids, _ in rows]), np.stack([w for _, w in rows])
