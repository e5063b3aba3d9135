#!/usr/bin/env python3
"""cairn-nano does in the engine what docs/nano.md says of it: nano_test.py PROBE MODEL

A fast part of evaluation.py with limits below what was measured there. Answers are the same on every
machine, so what varies is the model in the tree alone.
"""

import pathlib
import sys
import unittest

import evaluation

PROBE, MODEL = (pathlib.Path(path) for path in sys.argv[1:3])
N_CONVERSATIONS, N_TOKENS = 6, 1500


def played(name: str, distance: int = 0) -> dict:
    """Shares of what is right in a mode."""
    made = evaluation.tokenizer.Tokenizer.read(MODEL / "tokenizer.json")
    player = evaluation.Player(evaluation.Probe(PROBE, MODEL, evaluation.MODES[name], 1), made)
    talks = evaluation.conversations([], N_CONVERSATIONS, N_TOKENS, made)
    if distance:
        talks = evaluation.fact_conversations([], N_CONVERSATIONS, distance, made)
    for talk in talks:
        player.play(talk)
    shares = {name: entry["share"] for name, entry in player.result().items()
              if isinstance(entry, dict) and "share" in entry}
    print(name, shares)
    return shares


class Nano(unittest.TestCase):
    def check(self, shares: dict):
        self.assertGreaterEqual(shares["valid"], 0.99)
        self.assertGreaterEqual(shares["calls"], 0.9)
        self.assertGreaterEqual(shares["solved"], 0.7)

    def test_it_works_as_an_agent(self):
        self.check(played("exact"))

    def test_it_does_after_a_bounded_restore_before_every_turn(self):
        self.check(played("bounded replay before every turn"))

    def test_drafts_change_nothing(self):
        self.assertEqual(played("drafts"), played("exact"))

    def test_it_remembers_over_more_than_its_window(self):
        self.assertGreaterEqual(played("exact", 256)["task_fact_256"], 0.5)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
