"""What is trained when: lengths, rates, selection and rounding as functions of tokens seen."""

import dataclasses
import random
from typing import Dict

MILLION = 1_000_000


@dataclasses.dataclass
class Stage:
    """A stretch of training up to `until` tokens; `lengths` of rows by weight."""

    until: float
    lengths: Dict[int, float]


TOTAL = 27.6 * MILLION
STAGES = [
    Stage(0.22 * TOTAL, {256: 1.0}),
    Stage(0.36 * TOTAL, {256: 0.4, 512: 0.6}),
    Stage(0.55 * TOTAL, {256: 0.2, 512: 0.3, 1024: 0.5}),
    Stage(0.75 * TOTAL, {256: 0.1, 512: 0.2, 1024: 0.3, 2048: 0.4}),
    Stage(TOTAL, {256: 0.1, 512: 0.1, 1024: 0.2, 2048: 0.3, 4096: 0.3}),
]
SMALL_BATCH, LARGE_BATCH = 2048, 4096  # tokens of a step
SMALL_UNTIL = 0.3 * TOTAL
DENSE_UNTIL = 0.15 * TOTAL  # no selection before: the indexers learn from attention first
PEAK_RATE, LAST_RATE = 3e-3, 1e-4
WARM_UP = 0.25 * MILLION
DECAY_FROM = 0.70 * TOTAL
QUANTISE_FROM = 0.90 * TOTAL
EXPORTED_FROM = 0.55 * TOTAL  # where a training goes on that begins with an exported model


def length_of(step: int, tokens: int) -> int:
    """Tokens of a row in this step."""
    stage = next((s for s in STAGES if tokens < s.until), STAGES[-1])
    rng = random.Random(f"length:{step}")
    return rng.choices(list(stage.lengths), list(stage.lengths.values()))[0]


def rows_of(step: int, tokens: int) -> int:
    """Rows of this step; two at least, one for each process."""
    batch = SMALL_BATCH if tokens < SMALL_UNTIL else LARGE_BATCH
    return max(2, batch // length_of(step, tokens))


def rate_of(tokens: int) -> float:
    """Learning rate: warm-up, constant, then linear decay."""
    if tokens < WARM_UP:
        return PEAK_RATE * (tokens + 1) / WARM_UP
    if tokens < DECAY_FROM:
        return PEAK_RATE
    left = max(0.0, (TOTAL - tokens) / (TOTAL - DECAY_FROM))
    return LAST_RATE + (PEAK_RATE - LAST_RATE) * left
