"""What addresses the Engram tables: bucket primes and hash multipliers (engram.md 4 and 5)."""

from typing import List

import numpy


def _is_prime(n: int) -> bool:
    if n < 4:
        return n >= 2
    return n % 2 == 1 and all(n % d for d in range(3, int(n**0.5) + 1, 2))


def bucket_primes(config) -> List[List[int]]:
    """Primes of each Engram layer, order-major then head: the smallest ones, each used once."""
    candidate = config.engram_vocab_size
    layers = []
    for _ in config.engram_layer_ids:
        columns = []
        while len(columns) < config.engram_columns:
            if _is_prime(candidate):
                columns.append(candidate)
            candidate += 1
        layers.append(columns)
    return layers


def multipliers(config) -> List[List[int]]:
    """One odd multiplier for each Engram layer and look-back distance."""
    bound = (2**63 - 1) // config.engram_compressed_vocab_size // 2
    layers = []
    for layer in config.engram_layer_ids:
        draws = numpy.random.default_rng(10007 * layer).integers(
            0, bound, size=config.engram_max_ngram_size, dtype=numpy.int64
        )
        layers.append([2 * int(x) + 1 for x in draws])
    return layers
