#!/usr/bin/env python3
"""cairn-nano does in the engine what docs/nano.md says of it: nano_test.py PROBE MODEL [--full]

A fast part of evaluation.py with limits below what was measured there; with --full, 50 conversations
in every mode and one of 50 turns. Answers are the same on every machine, so what varies is the model
in the tree alone.
"""

import pathlib
import sys
import unittest

import evaluation

PROBE, MODEL = (pathlib.Path(path) for path in sys.argv[1:3])
FULL = "--full" in sys.argv
N_CONVERSATIONS, N_TOKENS = (50 if FULL else 6), 1500
LONG_TOKENS = 8000  # about 50 turns


def played(name: str, talks) -> dict:
    """Shares of what is right in a mode."""
    made = evaluation.tokenizer.Tokenizer.read(MODEL / "tokenizer.json")
    player = evaluation.Player(evaluation.Probe(PROBE, MODEL, evaluation.MODES[name], 1), made)
    for talk in talks(made):
        player.play(talk)
    shares = {name: entry["share"] for name, entry in player.result().items()
              if isinstance(entry, dict) and "share" in entry}
    print(name, shares, flush=True)
    return shares


def agent(made):
    return evaluation.conversations([], N_CONVERSATIONS, N_TOKENS, made)


class Nano(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.exact = played("exact", agent)

    def check(self, shares: dict):
        self.assertGreaterEqual(shares["valid"], 0.99)
        self.assertGreaterEqual(shares["calls"], 0.75)
        self.assertGreaterEqual(shares["solved"], 0.7)

    def test_it_works_as_an_agent(self):
        self.check(self.exact)

    def test_it_does_after_a_bounded_restore_before_every_turn(self):
        self.check(played("bounded replay before every turn", agent))

    def test_drafts_change_nothing(self):
        self.assertEqual(played("drafts", agent), self.exact)

    def test_it_remembers_over_more_than_its_window(self):
        shares = played("exact", lambda made: evaluation.fact_conversations([], 6, 256, made))
        self.assertGreaterEqual(shares["task_fact_256"], 0.5)

    @unittest.skipUnless(FULL, "long")
    def test_one_bounded_restore_costs_no_tasks(self):
        shares = played("bounded replay once", agent)
        self.assertAlmostEqual(shares["solved"], self.exact["solved"], delta=0.02)

    @unittest.skipUnless(FULL, "long")
    def test_no_mode_makes_a_message_malformed(self):
        for name in evaluation.MODES:
            self.assertGreaterEqual(played(name, agent)["valid"], 0.99, name)

    @unittest.skipUnless(FULL, "long")
    def test_a_bounded_restore_before_each_of_fifty_turns(self):
        def long(made):
            return evaluation.conversations([], 4, LONG_TOKENS, made)

        exact, restored = (played(n, long) for n in ("exact", "bounded replay before every turn"))
        self.assertGreaterEqual(restored["solved"], exact["solved"] - 0.1)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
